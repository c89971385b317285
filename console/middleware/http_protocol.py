"""The web server's HTTP/1.1 with bounds that uvicorn does not have: how long and how large the head of a request is.

And with a way past it for large bodies (``console.middleware.direct_body``).

Named to uvicorn by ``--http console.middleware.http_protocol:BoundedProtocol``. Without it, connections that never
finish their headers stay open for ever, and headers that never end fill the memory.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any, ClassVar

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from console.middleware.direct_body import EXTENSION, DirectBody, announced_length


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection whose request line and headers take more than 20 seconds or 64 KiB.

    The time counts from the connection, later from the first byte of the next request; between two requests uvicorn's
    own keep-alive timer runs. Bodies have their own bounds (``console.middleware.body_limit``, uploads) until they are
    answered; what is left of one then has the time of a head.
    """

    HEAD_SECONDS: ClassVar[float] = 20.0
    HEAD_BYTES: ClassVar[int] = 64 * 1024

    _head_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _is_in_head = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time of the first head."""
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse, then look how much of an unfinished head there is."""
        if self._is_in_head:  # Also for empty lines before a request, which the parser skips in silence.
            self._start_timer()
        super().data_received(data)
        if not self._is_in_head or self._head_timer is None or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > self.HEAD_BYTES:
            self.send_400_response("The headers are too large.")

    def on_message_begin(self) -> None:
        """Start the time of a head that follows another request in the same piece of data."""
        super().on_message_begin()
        self._start_timer()

    def on_headers_complete(self) -> None:
        """End the time of this head."""
        self._stop_timer()
        self._is_in_head, self._head_bytes = False, 0
        length = announced_length(self.headers)
        if length > HIGH_WATER_LIMIT:
            scope: Any = self.scope
            scope["extensions"] = {EXTENSION: functools.partial(self._open_body, scope, length)}
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Expect the next head; after an answer that came first, in time: uvicorn's timer ended with the next byte."""
        self._is_in_head = True
        self._stop_timer()
        if self.cycle and self.cycle.response_complete:
            self._start_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Give a body whose answer did not wait for it no longer than a head: nobody else looks at the clock."""
        super().on_response_complete()
        if self.cycle.response_complete and self.cycle.more_body:
            self._start_timer()

    def _open_body(self, scope: Any, length: int) -> DirectBody | None:
        """Return the body of a request for reading it from the socket; None when the parser has gone on already."""
        if self.cycle.scope is not scope or not self.cycle.more_body:
            return None
        return DirectBody(self, length, self._go_on)

    def _go_on(self) -> None:
        """Parse again, after a body that the parser has not seen."""
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self.on_message_complete()

    def _start_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.HEAD_SECONDS, self._give_up)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.close()
