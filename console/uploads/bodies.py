"""Where the bytes of a PATCH come from: the socket, or the pieces that the web server hands out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from console.middleware.direct_body import EXTENSION, ClientLeft
from console.middleware.pace import Pace

Receive = Callable[[], Awaitable[Mapping[str, Any]]]


class Body(Protocol):
    """The body of one request, read once from its beginning."""

    async def fill(self, buffer: memoryview, pace: Pace) -> int:
        """Fill ``buffer`` and return how much of it: less than all at the end of the body only, and 0 after it.

        Raises:
            ClientLeft: the connection ended; what had arrived was returned by the call before.
            TooSlow: it comes slower than ``pace``; likewise.
        """

    def close(self) -> None:
        """Want no more of it."""


class ReceivedBody:
    """A body in pieces of the web server: short ones, those of unknown length, and any behind another server."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._rest = memoryview(b"")
        self._failure: Exception | None = None
        self._is_over = False

    async def fill(self, buffer: memoryview, pace: Pace) -> int:
        """Copy pieces into ``buffer``; see ``Body``."""
        filled = 0
        while filled < len(buffer):
            if not self._rest and not await self._go_on(pace):
                break
            count = min(len(self._rest), len(buffer) - filled)
            buffer[filled : filled + count] = self._rest[:count]
            self._rest = self._rest[count:]
            filled += count
        if self._failure is not None and filled == 0:
            raise self._failure
        return filled

    def close(self) -> None:
        """Leave the rest to the web server."""

    async def _go_on(self, pace: Pace) -> bool:
        """Take the next piece; False when there is none."""
        if self._is_over or self._failure is not None:
            return False
        event = await self._next(pace)
        if event is None:
            return False
        if event["type"] == "http.disconnect":
            self._failure = ClientLeft()
            return False
        self._rest = memoryview(event.get("body", b""))
        self._is_over = not event.get("more_body", False)
        return True

    async def _next(self, pace: Pace) -> Mapping[str, Any] | None:
        """Wait for the next event; None when the body is too slow by then."""
        clock = asyncio.get_running_loop().time
        event: Mapping[str, Any] | None = None
        pace.wait(clock())
        while event is None:
            try:
                async with asyncio.timeout(pace.seconds_left(clock())):
                    event = await self._receive()
            except TimeoutError:
                self._failure = pace.look(0, clock())
                if self._failure is not None:
                    break
        pace.rest(len(event.get("body", b"")) if event else 0, clock())
        # One that came in time may be too late all the same, when each brings no more than a byte.
        if event is not None and event.get("more_body", False):
            self._failure = pace.look(0, clock())
        return event


def open_body(scope: Mapping[str, Any], receive: Receive) -> Body:
    """Return the body of the request, from the socket where the server offers that."""
    direct: Callable[[], Body | None] | None = (scope.get("extensions") or {}).get(EXTENSION)
    return (direct() if direct is not None else None) or ReceivedBody(receive)
