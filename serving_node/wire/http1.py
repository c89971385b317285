"""HTTP/1.1 server connections: bytes of a socket in, complete exchanges out, answers in order.

``Http1Connection`` is an ``asyncio.BufferedProtocol``. Small requests are read into the listener's shared buffer;
a body whose length is known and that has not arrived whole is received straight into memory of its own.
Heads that were seen before, byte for byte, are not parsed again: clients that send one shape of request
repeatedly (every benchmark, most services) send the same head each time.

Source: RFC 9110, RFC 9112. Parsing of new heads and of chunked bodies: llhttp through httptools.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import httptools
import numpy as np

from serving_node.wire.exchange import Buffer, Headers, HttpExchange, RequestHead
from serving_node.wire.listener import RECEIVE_BYTES, Listener

__all__ = ["Buffer", "Handler", "Headers", "Http1Connection", "Http1Limits", "Http1Server", "HttpExchange"]

_log = logging.getLogger(__name__)

# status, headers, body
Refusal = tuple[int, Headers, bytes]

_END_OF_HEAD = b"\r\n\r\n"
_MEMO_ENTRIES = 1024
_MEMO_HEAD_BYTES = 2048
# Bodies from this size on that have not arrived whole get memory of their own instead of being joined from pieces.
_OWN_BUFFER_BYTES = 16 * 1024
# Bodies of unknown length are joined from pieces up to this size, and grow in place beyond: the memory of a large
# bytearray is remapped, not copied, so that the body is never there twice.
_GROWN_BYTES = 1024 * 1024
# Answers up to this size are joined: one small copy costs less than handing each part to the socket.
_JOINED_BYTES = 8 * 1024
_LINGER_SECONDS = 2.0


def _error(status: int, message: str) -> Refusal:
    return status, [(b"content-type", b"application/json")], b'{"error":"' + message.encode() + b'"}'


def _refuse_oversize(size: int, limit: int) -> Refusal:
    return _error(413, f"request body of {size} bytes exceeds the limit of {limit} bytes")


@dataclass(frozen=True, slots=True)
class Http1Limits:
    """What a client may do. Sizes in bytes, times in seconds.

    ``refuse_oversize(size, limit)`` makes the answer to a body that is too large.
    A body must arrive within ``body_seconds`` plus one second for each ``min_bytes_per_second`` of it.
    """

    max_head_bytes: int = 64 * 1024
    max_headers: int = 256
    max_body_bytes: int = 64 * 1024 * 1024
    max_chunks: int = 65536
    max_pipelined: int = 64
    idle_seconds: float = 300.0
    head_seconds: float = 20.0
    body_seconds: float = 30.0
    min_bytes_per_second: int = 16 * 1024
    write_seconds: float = 60.0
    max_buffered_bytes: int = 64 * 1024 * 1024
    refuse_oversize: Callable[[int, int], Refusal] = _refuse_oversize


Handler = Callable[[HttpExchange], None]


class Http1Connection(asyncio.BufferedProtocol):
    """One client's connection. ``handler`` is called, on the loop's thread, with each complete request.

    States: head (nothing or part of a head is there), body (parsed by llhttp, or received into ``_own``),
    discarding (no more requests are taken, input is thrown away), lingering (the last answer is sent; the client
    gets a moment to read it), closed.
    A handler that raises is answered with 500; the trace goes to the log.
    """

    def __init__(
        self,
        handler: Handler,
        limits: Http1Limits,
        listener: Listener | None = None,
        memo: dict[bytes, RequestHead] | None = None,
    ) -> None:
        self.closed = False
        self.shutting_down = False
        self.peer = ""
        self._handler = handler
        self._limits = limits
        self._listener = listener
        self._buffer = listener.receive_buffer if listener else bytearray(RECEIVE_BYTES // 4)
        self._view = listener.receive_view if listener else memoryview(self._buffer)
        self._memo = {} if memo is None else memo
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._exchanges: deque[HttpExchange] = deque()
        self._paused_reading = False
        self._write_paused_at = 0.0
        self._discarding = False
        self._refused = False
        self._lingering = False
        # the request that is being received
        self._parser = _parser(self)
        self._at_boundary = True
        self._candidate: bytes | None = None
        self._head: RequestHead | None = None
        self._url = b""
        self._header_list: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._pieces: list[bytes] = []
        self._grown: bytearray | None = None
        self._received = 0
        self._chunks = 0
        self._own: memoryview | None = None
        self._continue_due = False
        self._since = self._loop.time()

    # -- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else ""
        if self._listener is not None and not self._listener.add(self):
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by the event loop."""
        if self._own is not None:
            return self._own[self._received :]
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the event loop."""
        if self._discarding or self.closed:
            return
        if self._own is not None:
            self._received += nbytes
            if self._received == len(self._own):
                self._complete_own()
            return
        self._process(nbytes)

    def eof_received(self) -> bool:
        """Called by the event loop. A half-closed client counts as gone: its requests are cancelled."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self.closed = True
        if self._listener is not None:
            self._listener.discard(self)
        exchanges, self._exchanges = self._exchanges, deque()
        self._own = None
        for exchange in exchanges:
            exchange.done = True
            on_disconnect, exchange.on_disconnect = exchange.on_disconnect, None
            if on_disconnect is not None:
                on_disconnect()
            if exchange.trace is not None:
                exchange.trace.finish()

    def pause_writing(self) -> None:
        """Called by the event loop: the client reads too slowly."""
        self._write_paused_at = self._loop.time()
        self._regulate_reading()

    def resume_writing(self) -> None:
        """Called by the event loop."""
        self._write_paused_at = 0.0
        self._regulate_reading()

    # -- Listener

    def check_deadlines(self, now: float) -> None:
        """Close if the client is idle, sends too slowly or reads too slowly."""
        limits = self._limits
        elapsed = now - self._since
        if self._write_paused_at and now - self._write_paused_at > limits.write_seconds:
            self.abort()
        elif self._lingering:
            if elapsed > _LINGER_SECONDS:
                self.abort()
        elif self._discarding:
            pass  # the handler owes an answer; its deadlines are not ours
        elif self._head is not None:
            if elapsed > limits.body_seconds + self._received / limits.min_bytes_per_second:
                self._fail(*_error(408, "request body arrived too slowly"))
        elif not self._at_boundary:
            if elapsed > limits.head_seconds:
                self._fail(*_error(408, "request head arrived too slowly"))
        elif not self._exchanges and elapsed > limits.idle_seconds:
            self._transport.close()

    def shut_down(self) -> None:
        """Answer what was received, then close."""
        self.shutting_down = True
        if not self._exchanges and self._at_boundary and self._own is None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once; unsent output is lost. Handlers see at once that nobody listens any more."""
        self.closed = True
        self._transport.abort()

    # -- receiving

    def _process(self, end: int) -> None:
        """Take requests out of the first ``end`` bytes of the receive buffer."""
        buffer, view, memo = self._buffer, self._view, self._memo
        start = 0
        while start < end and not self._discarding and not self.closed:
            if self._at_boundary:
                stop = buffer.find(_END_OF_HEAD, start, end) + 4
                if 3 < stop <= start + _MEMO_HEAD_BYTES:
                    raw = bytes(view[start:stop])
                    head = memo.get(raw)
                    if head is not None:
                        start = self._take_known(head, stop, end)
                        continue
                    self._candidate = raw
            self._feed(view[start:end])
            self._candidate = None
            return

    def _take_known(self, head: RequestHead, start: int, end: int) -> int:
        """Take the body of a request whose head was parsed before. Return where the next request starts."""
        size = head.content_length
        if size == 0:
            self._dispatch(head, b"")
        elif end - start >= size:
            self._dispatch(head, bytes(self._view[start : start + size]))
        elif size > self._limits.max_body_bytes:
            self._refuse_size(size)
            return end
        else:
            self._since = self._loop.time()
            self._head = head
            self._own = _allocate(size)
            self._received = end - start
            self._own[: self._received] = self._view[start:end]
            return end
        return start + size

    def _feed(self, data: memoryview) -> None:
        if self._at_boundary:
            self._since = self._loop.time()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # answered as a plain request; on_message_complete has made it the last one
        except httptools.HttpParserError as error:
            if not self._discarding and not self._closing_after_last():
                _log.debug("bad request from %s: %s", self.peer, error)
                self._fail(*_error(400, "Bad Request"))
            return
        if self._discarding or self._at_boundary:
            return
        if self._head is None:
            self._head_bytes += len(data)
            if self._head_bytes > self._limits.max_head_bytes:
                self._fail(*_error(431, "Request Header Fields Too Large"))
        elif self._head.content_length - self._received >= _OWN_BUFFER_BYTES:
            self._own = _allocate(self._head.content_length)
            offset = 0
            for piece in self._pieces:
                self._own[offset : offset + len(piece)] = piece
                offset += len(piece)
            self._pieces = []

    def _closing_after_last(self) -> bool:
        return bool(self._exchanges and not self._exchanges[-1].keep_alive) or self._transport.is_closing()

    # -- httptools

    def on_message_begin(self) -> None:
        """Called by the parser."""
        self._at_boundary = False
        self._head = None
        self._url = b""
        self._header_list = []
        self._head_bytes = 0
        self._pieces = []
        self._received = 0
        self._chunks = 0

    def on_url(self, url: bytes) -> None:
        """Called by the parser, possibly several times for one URL."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser; trailers of chunked bodies come here too and are dropped."""
        if self._head is None:
            self._header_list.append((name, value.strip()))

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        if self._discarding:
            return
        head = self._build_head()
        self._head = head
        if head is None:
            return
        if head.content_length > self._limits.max_body_bytes:
            self._refuse_size(head.content_length)
            return
        expects = b"expect" in head.headers
        if expects and head.headers[b"expect"].lower() == b"100-continue" and not head.old:
            if self._exchanges:
                self._continue_due = True
            else:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        known_size = b"transfer-encoding" not in head.headers and not expects
        if self._candidate is not None and known_size and head.keep_alive:
            if len(self._memo) >= _MEMO_ENTRIES:
                self._memo.clear()
            self._memo[self._candidate] = head
        self._candidate = None

    def on_chunk_header(self) -> None:
        """Called by the parser."""
        self._chunks += 1
        if self._chunks > self._limits.max_chunks + 1 and not self._discarding:
            sentence = f"Chunked request body exceeds maximum of {self._limits.max_chunks} non-empty chunks."
            self._fail(*_error(400, f"{sentence} Send fewer or larger HTTP chunks."))

    def on_body(self, piece: bytes) -> None:
        """Called by the parser with a copy of a part of the body."""
        if self._discarding:
            return
        self._received += len(piece)
        if self._received > self._limits.max_body_bytes:
            self._refuse_size(self._received)
            return
        if self._grown is not None:
            self._grown += piece
            return
        self._pieces.append(piece)
        if self._received > _GROWN_BYTES:
            self._grown = bytearray().join(self._pieces)
            self._pieces = []

    def on_message_complete(self) -> None:
        """Called by the parser."""
        head, pieces, grown = self._head, self._pieces, self._grown
        self._at_boundary = True
        self._head = None
        self._pieces = []
        self._grown = None
        if head is not None and not self._discarding:
            self._continue_due = False
            if grown is None:
                self._dispatch(head, pieces[0] if len(pieces) == 1 else b"".join(pieces), self._since)
            else:
                self._dispatch(head, memoryview(grown), self._since)

    def _build_head(self) -> RequestHead | None:
        limits = self._limits
        url, pairs, parser = self._url, self._header_list, self._parser
        size = len(url) + sum(len(name) + len(value) + 4 for name, value in pairs)
        if size > limits.max_head_bytes or len(pairs) > limits.max_headers:
            self._fail(*_error(431, "Request Header Fields Too Large"))
            return None
        headers: dict[bytes, bytes] = {}
        for given, value in pairs:
            name = given.lower()
            headers[name] = headers[name] + b", " + value if name in headers else value
        is_chunked = b"transfer-encoding" in headers
        if is_chunked and headers[b"transfer-encoding"].lower().rpartition(b",")[2].strip() != b"chunked":
            self._fail(*_error(400, "Bad Request"))
            return None
        length = headers.get(b"content-length")
        if not url.startswith(b"/") and url != b"*":
            try:  # absolute form, as sent to proxies
                parsed = httptools.parse_url(url)
            except httptools.HttpParserInvalidURLError:
                self._fail(*_error(400, "Bad Request"))
                return None
            path, query = parsed.path or b"/", parsed.query or b""
        else:
            path, _, query = url.partition(b"?")
        return RequestHead(
            method=parser.get_method().decode("ascii"),
            path=path,
            query=query,
            headers=headers,
            fields=tuple(pairs),
            content_length=0 if is_chunked else int(length or b"0"),
            # With both the chunks count; whoever counted bytes instead must not get another answer (RFC 9112, 6.3).
            keep_alive=parser.should_keep_alive() and not parser.should_upgrade() and not (is_chunked and length),
            old=parser.get_http_version() == "1.0",
        )

    def _complete_own(self) -> None:
        own, head, received_by_parser = self._own, self._head, not self._at_boundary
        self._own = None
        self._head = None
        if received_by_parser:  # llhttp still waits for the body that went past it
            self._parser = _parser(self)
            self._at_boundary = True
        self._continue_due = False
        assert own is not None
        assert head is not None
        self._dispatch(head, own, self._since)

    def _dispatch(self, head: RequestHead, body: memoryview | bytes, since: float = 0.0) -> None:
        self._since = self._loop.time()
        if self._exchanges and not self._exchanges[-1].keep_alive:
            self._discarding = True  # an answer that says "close" is already on its way
            return
        exchange = HttpExchange(self, head, body)
        exchange.since = since
        if not head.keep_alive:
            self._discarding = True  # anything after the last request is ignored
        self._exchanges.append(exchange)
        if len(self._exchanges) >= self._limits.max_pipelined:
            self._regulate_reading()
        try:
            self._handler(exchange)
        except Exception:
            _log.exception("handler failed for %s %r", exchange.method, exchange.path)
            if exchange.streaming:
                self.abort()
            elif not exchange.done:
                status, headers, body_bytes = _error(500, "internal error")
                exchange.respond(status, headers, [body_bytes])

    def _refuse_size(self, size: int) -> None:
        self._fail(*self._limits.refuse_oversize(size, self._limits.max_body_bytes))

    def _fail(self, status: int, headers: Headers, body: bytes) -> None:
        """Answer a request that was not fully received, after the answers of earlier ones, and close."""
        head = RequestHead("GET", b"", b"", {}, (), 0, keep_alive=False, old=False)
        self._discarding = True
        self._refused = True
        self._own = None
        self._grown = None
        self._pieces = []
        self._since = self._loop.time()
        exchange = HttpExchange(self, head, b"")
        self._exchanges.append(exchange)
        exchange.respond(status, headers, [body])

    # -- sending

    def is_last(self, exchange: HttpExchange) -> bool:
        """Return whether no request was received after that of ``exchange``."""
        return bool(self._exchanges) and self._exchanges[-1] is exchange

    def write(self, exchange: HttpExchange, parts: list[Buffer]) -> None:
        """Send parts of an answer, now or when all earlier requests are answered."""
        if self.closed or self._lingering:
            return
        if self._exchanges[0] is not exchange:
            if exchange.held is None:
                exchange.held = []
            exchange.held.extend(parts)
            if exchange.streaming and sum(map(len, exchange.held)) > self._limits.max_buffered_bytes:
                self.abort()  # a stream without end behind an answer that does not come
            return
        if parts:
            self._send(parts)
        if exchange.done:
            self._exchanges.popleft()
            self._finish(exchange)
        elif self._transport.get_write_buffer_size() > self._limits.max_buffered_bytes:
            self.abort()  # a stream whose reader does not keep up

    def _send(self, parts: list[Buffer]) -> None:
        if sum(map(len, parts)) <= _JOINED_BYTES:
            self._transport.write(b"".join(parts))
        else:
            self._transport.writelines(parts)

    def _finish(self, exchange: HttpExchange) -> None:
        """Close, or send what the answer to ``exchange`` held up."""
        self._since = self._loop.time()
        while True:
            if not exchange.keep_alive:
                self._close_gently()
                return
            if not self._exchanges:
                break
            exchange = self._exchanges[0]
            held, exchange.held = exchange.held, None
            if held:
                self._send(held)
            if not exchange.done:
                break
            self._exchanges.popleft()
        if self._continue_due and not self._exchanges:
            self._continue_due = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self._paused_reading:
            self._regulate_reading()
        if self.shutting_down and not self._exchanges and self._at_boundary and self._own is None:
            self._transport.close()

    def _close_gently(self) -> None:
        """Close after the output is sent; if input was refused, give the client time to read the answer first.

        Closing a socket with unread input resets the connection, and the reset may overtake the answer.
        """
        self._discarding = True
        if not self._refused:
            self._transport.close()
            return
        self._lingering = True
        if self._transport.can_write_eof():
            self._transport.write_eof()
        if self._listener is None:
            self._loop.call_later(_LINGER_SECONDS, self._transport.abort)

    def _regulate_reading(self) -> None:
        want_pause = bool(self._write_paused_at) or len(self._exchanges) >= self._limits.max_pipelined
        if want_pause != self._paused_reading and not self._transport.is_closing():
            self._paused_reading = want_pause
            if want_pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()


def _parser(connection: Http1Connection) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(connection)
    # Some clients say both Content-Length and Transfer-Encoding; see ``_build_head``.
    parser.set_dangerous_leniencies(lenient_chunked_length=True)
    return parser


def _allocate(size: int) -> memoryview:
    """Return memory for a body, not zeroed: pages that never arrive are never touched."""
    return np.empty(size, np.uint8).data


class Http1Server:
    """``Http1Connection`` for every client of one address. ``listener`` starts and stops it."""

    def __init__(self, handler: Handler, limits: Http1Limits | None = None, *, max_connections: int = 8192) -> None:
        chosen = limits or Http1Limits()
        memo: dict[bytes, RequestHead] = {}
        self.listener = Listener(
            lambda listener: Http1Connection(handler, chosen, listener, memo), max_connections=max_connections
        )
