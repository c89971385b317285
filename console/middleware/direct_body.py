"""The body of a large request, from the socket straight into memory of the application.

uvicorn hands out a body in pieces of 64 KiB, pausing the socket after each and copying the bytes four times, which
costs more than hashing them. Here the connection changes its protocol until the body is over: the kernel writes into
the buffer that the application gave. Concurrency: everything on the event loop; one caller of ``fill`` at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from console.middleware.pace import Pace, TooSlow

# The name under which a scope's extensions offer it: a function that returns one, or None when it cannot be had.
EXTENSION = "flotilla.direct_body"
_SCRATCH_BYTES = 64 * 1024
# While a body comes fast we are woken for so much at once, which spares the processor a dozen turns of the event loop
# for each megabyte. It is slow when a buffer has not filled after so long.
_BATCH_BYTES = 512 * 1024
_SLOW_SECONDS = 1.0
# Until the loop has read what the kernel held back.
_READ_SECONDS = 0.05


class ClientLeft(Exception):
    """The connection ended before the body did."""


class DirectBody(asyncio.BufferedProtocol):
    """Takes over the connection of ``http`` until its current request's body of ``length`` bytes is over.

    ``give_back`` is called with the last byte, when the parser may go on with the next request.
    """

    def __init__(self, http: HttpToolsProtocol, length: int, give_back: Callable[[], None]) -> None:
        self._http = http
        self._cycle = http.cycle
        self._transport = http.transport
        self._give_back = give_back
        self._buffer: memoryview | None = None
        self._filled = 0
        self._waiter: asyncio.Future[None] | None = None
        self._socket = _tcp_socket(http.transport)
        self._batch, self._is_fast = 1, True
        self._is_lost = self._cycle.disconnected
        self._too_slow: TooSlow | None = None
        http.flow.pause_reading()
        if self._cycle.waiting_for_100_continue:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._cycle.waiting_for_100_continue = False
        # What came together with the head; the parser has seen it.
        self._early, self._cycle.body = memoryview(self._cycle.body), bytearray()
        self._missing = length - len(self._early)
        if self._missing and not self._is_lost:
            self._transport.set_protocol(self)

    async def fill(self, buffer: memoryview, pace: Pace) -> int:
        """Fill ``buffer`` and return how much of it: less than all at the end of the body only, and 0 after it.

        Raises:
            ClientLeft: the connection ended; what had arrived was returned by the call before.
            TooSlow: it comes slower than ``pace``; likewise.
        """
        filled = min(len(self._early), len(buffer))
        buffer[:filled], self._early = self._early[:filled], self._early[filled:]
        wanted = min(len(buffer), filled + self._missing)
        if filled == wanted:
            return filled
        if not (self._is_lost or self._too_slow):
            self._buffer, self._filled = buffer[:wanted], filled
            # What follows this piece is no less, so the kernel never waits for more than will come.
            is_long = self._missing - (wanted - filled) >= _BATCH_BYTES
            self._ask_for(_BATCH_BYTES if is_long and self._is_fast else 1)
            self._http.flow.resume_reading()
            try:
                await self._filling(pace)
            finally:
                self._pause()
            filled = self._filled
        if filled == 0:
            raise self._too_slow or ClientLeft
        return filled

    def close(self) -> None:
        """Want no more of the body; the rest is dropped while uvicorn keeps the connection alive."""
        self._buffer = None
        if self._missing and not self._transport.is_closing():
            self._ask_for(1)
            self._http.flow.resume_reading()

    async def _filling(self, pace: Pace) -> None:
        """Wait until the buffer is full, the client has left, or what comes is too slow."""
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        self._is_fast = True
        pace.wait(loop.time())
        self._timer = loop.call_later(min(pace.seconds_left(loop.time()), _SLOW_SECONDS), self._note_slow, pace)
        try:
            await self._waiter
        finally:
            self._timer.cancel()
            pace.rest(self._filled, loop.time())

    def _note_slow(self, pace: Pace) -> None:
        """Take from now on whatever there is; then look how much comes."""
        self._is_fast = False
        self._ask_for(1)
        self._look_later(pace, _READ_SECONDS)  # what waits in the kernel is read first

    def _look_later(self, pace: Pace, least_seconds: float = 0) -> None:
        loop = self._http.loop
        self._timer = loop.call_later(max(least_seconds, pace.seconds_left(loop.time())), self._look, pace)

    def _look(self, pace: Pace) -> None:
        # It may be full, or the client gone, although the time was up first.
        is_over = self._buffer is None or self._is_lost
        self._too_slow = None if is_over else pace.look(self._filled, self._http.loop.time())
        if self._too_slow is not None:
            self._wake()
        elif not is_over:
            self._look_later(pace)

    def _ask_for(self, count: int) -> None:
        """Let the kernel wake us for so many bytes at once, or for the end of the connection."""
        if self._socket is not None and count != self._batch:
            self._batch = count
            with contextlib.suppress(OSError):  # it is closed already
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def _pause(self) -> None:
        """Let the bytes wait in the kernel until somebody wants them."""
        self._buffer = None
        if self._missing and not self._transport.is_closing():
            self._http.flow.pause_reading()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # What the transport calls.

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return where the next bytes go; never more than the body has, or the next request would land in it."""
        if self._buffer is not None:
            return self._buffer[self._filled :]
        return memoryview(bytearray(min(_SCRATCH_BYTES, self._missing)))

    def buffer_updated(self, count: int) -> None:
        """Count what came; with the last byte the connection is HTTP again."""
        self._missing -= count
        if self._buffer is not None:
            self._filled += count
            if self._filled == len(self._buffer):
                self._pause()  # at once: the loop may read again before the waiter runs
                self._wake()
        if self._missing == 0:
            self._http.flow.pause_reading()
            self._transport.set_protocol(self._http)
            self._give_back()
            self._http.flow.resume_reading()

    def eof_received(self) -> None:
        """Let the transport close: half a body is no request."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever waits, and uvicorn."""
        self._is_lost = True
        self._http.connection_lost(exc)
        self._wake()

    def pause_writing(self) -> None:
        """Pass it on."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._http.resume_writing()


def _tcp_socket(transport: asyncio.Transport) -> socket.socket | None:
    """Return the socket whose bytes are those of the body: none under TLS."""
    found: socket.socket | None = transport.get_extra_info("socket")
    is_plain = found is not None and found.family in (socket.AF_INET, socket.AF_INET6)
    return found if is_plain and transport.get_extra_info("sslcontext") is None else None


def announced_length(headers: list[tuple[bytes, bytes]]) -> int:
    """Return Content-Length in bytes; 0 when there is none, or the body comes in pieces of unknown number."""
    found = dict(headers)
    text = found.get(b"content-length", b"")
    return int(text) if text.isdigit() and b"transfer-encoding" not in found else 0
