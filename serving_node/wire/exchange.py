"""One HTTP/1.1 request and its answer, as handlers see it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from serving_node.core.trace import RequestTrace

Buffer = bytes | bytearray | memoryview
Headers = Sequence[tuple[bytes, bytes]]

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_NO_BODY = frozenset({204, 304})


def answer_head(status: int, headers: Headers, length: int) -> bytes:
    """Return status line, headers and length of an answer, to be made once for answers that are alike."""
    head = [_STATUS_LINES[status]]
    for name, value in headers:
        head += (name, b": ", value, b"\r\n")
    if status not in _NO_BODY:
        head.append(b"content-length: %d\r\n" % length)
    return b"".join(head)


class ExchangeConnection(Protocol):
    """What an exchange needs from its connection."""

    closed: bool
    shutting_down: bool
    peer: str

    def write(self, exchange: HttpExchange, parts: list[Buffer]) -> None:
        """Send parts of an answer, now or when all earlier requests are answered."""

    def is_last(self, exchange: HttpExchange) -> bool:
        """Return whether no request was received after that of ``exchange``."""

    def abort(self) -> None:
        """Close at once."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """What a request says before its body. Shared by all requests with the same head: never changed."""

    method: str
    path: bytes
    query: bytes
    headers: dict[bytes, bytes]
    fields: tuple[tuple[bytes, bytes], ...]  # the headers as sent: names in their own case, repeated ones apart
    content_length: int
    keep_alive: bool
    old: bool  # HTTP/1.0: no chunked answers, keep-alive must be said


class HttpExchange:
    """One request and its answer. May be answered now or later, from the event loop's thread.

    ``path`` and ``query`` are raw (percent-encoded) bytes; ``headers`` has lower-case names, repeated ones joined
    by ``", "``, and must not be changed; ``fields`` has them as they were sent. ``body`` owns its memory.
    ``on_disconnect`` is called at most once, and only while the exchange is unanswered or streaming.
    ``keep_alive``, ``held``, ``streaming`` and ``done`` belong to the connection. ``since`` is when the first byte of a
    request came that was received in pieces, in seconds of the loop's clock, else 0. A ``trace`` that somebody sets is
    told when the answer is sent.
    """

    __slots__ = (
        "_connection",
        "_old",
        "body",
        "done",
        "fields",
        "headers",
        "held",
        "keep_alive",
        "method",
        "on_disconnect",
        "path",
        "query",
        "since",
        "streaming",
        "trace",
    )

    def __init__(self, connection: ExchangeConnection, head: RequestHead, body: memoryview | bytes) -> None:
        self.method = head.method
        self.path = head.path
        self.query = head.query
        self.headers = head.headers
        self.fields = head.fields
        self.body = memoryview(body)
        self.on_disconnect: Callable[[], None] | None = None
        self._connection = connection
        self.keep_alive = head.keep_alive
        self._old = head.old
        self.held: list[Buffer] | None = None  # output that waits for the answers of earlier requests
        self.streaming = False
        self.done = False
        self.since = 0.0
        self.trace: RequestTrace | None = None

    @property
    def disconnected(self) -> bool:
        """True once the client is gone: answers go nowhere."""
        return self._connection.closed

    @property
    def peer(self) -> str:
        """Address of the client, for logs."""
        return self._connection.peer

    def respond(self, status: int, headers: Headers, body: Sequence[Buffer] = ()) -> None:
        """Send the whole answer, in one write. Buffers must stay unchanged until sent. Content-Length is added."""
        length = 0
        for part in body:
            length += part.nbytes if type(part) is memoryview else len(part)
        self.respond_with(answer_head(status, headers, length), () if status in _NO_BODY else body)

    def respond_with(self, head: bytes, body: Sequence[Buffer]) -> None:
        """Send the whole answer, of which ``answer_head`` made the head."""
        if self.done or self.streaming:
            raise RuntimeError("the exchange is already answered")
        self.done = True
        self.on_disconnect = None  # it refers to the request: without this, tensors would wait for the cycle collector
        out: list[Buffer] = [head, self._end_of_head()]
        if self.method != "HEAD":
            out += body
        if self.trace is None:
            self._connection.write(self, out)
        else:
            self.trace.mark("HTTP_SEND_START", time.monotonic_ns())
            self._connection.write(self, out)
            self._end_trace(self.trace)

    def start_stream(self, status: int, headers: Headers) -> None:
        """Send the head of an answer whose length is unknown."""
        if self.done or self.streaming:
            raise RuntimeError("the exchange is already answered")
        self.streaming = True
        if self.trace is not None:
            self.trace.mark("HTTP_SEND_START", time.monotonic_ns())
        head = [_STATUS_LINES[status]]
        for name, value in headers:
            head += (name, b": ", value, b"\r\n")
        if self._old:
            self.keep_alive = False  # HTTP/1.0 knows the end of the body only by the end of the connection
        else:
            head.append(b"transfer-encoding: chunked\r\n")
        head.append(self._end_of_head())
        self._connection.write(self, [b"".join(head)])

    def send_chunk(self, chunk: Buffer) -> None:
        """Send one piece of the body. Empty pieces are skipped."""
        if not self.streaming or self.done:
            raise RuntimeError("the exchange does not stream")
        size = chunk.nbytes if type(chunk) is memoryview else len(chunk)
        if size == 0 or self.method == "HEAD":
            return
        self._connection.write(self, [chunk] if self._old else [b"%x\r\n" % size, chunk, b"\r\n"])

    def end_stream(self) -> None:
        """End the body."""
        if not self.streaming or self.done:
            raise RuntimeError("the exchange does not stream")
        self.done = True
        self.on_disconnect = None
        self._connection.write(self, [] if self._old or self.method == "HEAD" else [b"0\r\n\r\n"])
        if self.trace is not None:
            self._end_trace(self.trace)

    @staticmethod
    def _end_trace(trace: RequestTrace) -> None:
        trace.mark("HTTP_SEND_END", time.monotonic_ns())
        trace.finish()

    def abort(self) -> None:
        """Close the connection: what was sent so far cannot be completed."""
        self._connection.abort()

    def _end_of_head(self) -> bytes:
        """Return what follows the headers: whether the connection stays open, and the empty line."""
        if self.keep_alive and self._connection.shutting_down and self._connection.is_last(self):
            self.keep_alive = False
        if not self.keep_alive:
            return b"connection: close\r\n\r\n"
        return b"connection: keep-alive\r\n\r\n" if self._old else b"\r\n"
