"""One client's gRPC connection: the socket side of ``wire.http2`` and ``wire.grpc``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

from serving_node.core.errors import InferenceError
from serving_node.frontends.grpc.status import STATUS_OF
from serving_node.wire.grpc import (
    ACCEPTED_ENCODINGS,
    GrpcCall,
    GrpcError,
    GrpcStatus,
    MessageHandler,
    decompress,
    parse_timeout,
    trailers_only,
)
from serving_node.wire.http2 import Http2Connection, Http2Limits, RequestHeaders, Stream, encode_headers
from serving_node.wire.http2.frames import CANCEL
from serving_node.wire.listener import Listener

_log = logging.getLogger(__name__)

# Compressed messages from this size on are decompressed in a thread (zlib releases the interpreter lock).
_LARGE_COMPRESSED_BYTES = 64 * 1024
_ACCEPT_ENCODING = (b"grpc-accept-encoding", b"identity,deflate,gzip")
_NOT_GRPC = encode_headers([(b":status", b"415")])
_NOT_POST = encode_headers([(b":status", b"405")])


@dataclass(frozen=True, slots=True)
class GrpcLimits:
    """What a client may do. Sizes in bytes, times in seconds.

    A unary request must be complete within ``request_seconds`` plus a second for each ``min_bytes_per_second``.
    An answer that waits for the client's flow control is dropped ``answer_seconds`` after its request.
    """

    http2: Http2Limits = field(default_factory=Http2Limits)
    max_message_bytes: int = 2**31 - 1
    max_connections: int = 8192
    preface_seconds: float = 20.0
    request_seconds: float = 60.0
    min_bytes_per_second: int = 16 * 1024
    write_seconds: float = 120.0
    answer_seconds: float = 600.0
    max_queued_bytes: int = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Method:
    """How a method is served: ``unary`` takes the one message; ``open_stream`` returns what takes each message."""

    unary: MessageHandler | None = None
    open_stream: Callable[[GrpcCall], MessageHandler] | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    """What the headers of a request mean: a method to run, or an answer to give at once."""

    method: Method | None
    refusal: bytes = b""
    timeout_ns: int = 0
    encoding: bytes = b"identity"


class GrpcConnection(asyncio.BufferedProtocol):
    """Reads into the state machine, writes what it puts out, and keeps deadlines."""

    def __init__(self, methods: Mapping[bytes, Method], limits: GrpcLimits, listener: Listener) -> None:
        self.http2 = Http2Connection(self._accept, limits.http2)
        self.max_message_bytes = limits.max_message_bytes
        self._methods = methods
        self._limits = limits
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._receiving = False
        self._direct = False
        self._since = self._loop.time()
        self._write_paused_at = 0.0

    # -- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast(asyncio.Transport, transport)
        if not self._listener.add(self):
            self._transport.abort()
            return
        # clients keep idle connections for hours: the kernel finds out which of them have vanished
        peer = transport.get_extra_info("socket")
        if peer is not None:
            with contextlib.suppress(OSError):  # it has vanished already
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by the event loop."""
        target = self.http2.target()
        self._direct = target is not None
        return self._listener.receive_view if target is None else target

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the event loop."""
        http2 = self.http2
        self._receiving = True
        try:
            if self._direct:
                http2.received(nbytes)
            else:
                http2.receive(self._listener.receive_view[:nbytes])
        finally:
            self._receiving = False
        if http2.output:
            self.flush()
        if http2.closed:
            self._transport.close()

    def eof_received(self) -> bool:
        """Called by the event loop."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._listener.discard(self)
        self.http2.connection_lost()
        self.http2.output.clear()

    def pause_writing(self) -> None:
        """Called by the event loop: the client reads too slowly, so it may not ask for more."""
        self._write_paused_at = self._loop.time()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Called by the event loop."""
        self._write_paused_at = 0.0
        self._transport.resume_reading()

    # -- Listener

    def check_deadlines(self, now: float) -> None:
        """Expire calls; close the connection of a client that is too slow."""
        http2, limits = self.http2, self._limits
        http2.refill()
        if self._write_paused_at and now - self._write_paused_at > limits.write_seconds:
            self.abort()
            return
        if not http2.started and now - self._since > limits.preface_seconds:
            self.abort()
            return
        if http2.queued_bytes > limits.max_queued_bytes + self._limits.max_message_bytes:
            self.abort()
            return
        now_ns = time.monotonic_ns()
        for stream in tuple(http2.streams.values()):
            call = stream.sink
            if not isinstance(call, GrpcCall):
                continue
            if call.done:
                if now - call.since > limits.answer_seconds:
                    http2.reset(stream, CANCEL)  # its client gives no window for the answer
                continue
            late = call.deadline_ns and now_ns > call.deadline_ns
            if late or call.is_slow(now, limits.request_seconds, limits.min_bytes_per_second):
                call.expire()
        self.flush()

    def shut_down(self) -> None:
        """Send GOAWAY; close when the running calls are done."""
        self.http2.shut_down()
        self.flush()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    # -- CallOwner

    def flush(self) -> None:
        """Write what the state machine has put out, unless a read is being processed (it flushes at its end)."""
        if self._receiving:
            return
        http2 = self.http2
        if http2.output:
            output, http2.output = http2.output, []
            self._transport.writelines(output)
        if http2.shutting_down and not http2.streams:
            self._transport.close()

    # -- calls

    def _accept(self, stream: Stream, headers: RequestHeaders) -> GrpcCall | None:
        plan = headers.annotation
        if not isinstance(plan, _Plan):
            plan = headers.annotation = self._plan(headers)
        method = plan.method
        if method is None:
            self.http2.send_headers(stream, plan.refusal, end=True)
            return None
        streaming = method.open_stream is not None
        call = GrpcCall(self, stream, self._on_message, streaming=streaming, metadata=headers.fields)
        call.encoding = plan.encoding
        call.since = self._loop.time()
        if plan.timeout_ns:
            call.deadline_ns = time.monotonic_ns() + plan.timeout_ns
        call.handler = method.unary if method.open_stream is None else method.open_stream(call)
        return call

    def _plan(self, headers: RequestHeaders) -> _Plan:
        if headers.method != b"POST":
            return _Plan(None, _NOT_POST)
        if not headers.fields.get(b"content-type", b"").startswith(b"application/grpc"):
            return _Plan(None, _NOT_GRPC)
        method = self._methods.get(headers.path)
        if method is None:
            return _Plan(None, trailers_only(GrpcStatus.UNIMPLEMENTED, ""))
        timeout_ns = 0
        if b"grpc-timeout" in headers.fields:
            parsed = parse_timeout(headers.fields[b"grpc-timeout"])
            if parsed is None:
                return _Plan(None, trailers_only(GrpcStatus.INTERNAL, "malformed grpc-timeout"))
            timeout_ns = max(parsed, 1)
        encoding = headers.fields.get(b"grpc-encoding", b"identity")
        if encoding not in ACCEPTED_ENCODINGS:
            name = encoding.decode("ascii", "replace")
            text = f"message encoding '{name}' is not supported"
            return _Plan(None, trailers_only(GrpcStatus.UNIMPLEMENTED, text, (_ACCEPT_ENCODING,)))
        return _Plan(method, b"", timeout_ns, encoding)

    def _on_message(self, call: GrpcCall, message: bytes | memoryview, compressed: bool) -> None:
        if compressed and call.encoding != b"identity":
            if len(message) >= _LARGE_COMPRESSED_BYTES and not call.streaming:
                future = self._loop.run_in_executor(None, decompress, call.encoding, message, self.max_message_bytes)
                future.add_done_callback(lambda done: self._on_decompressed(call, done))
                return
            # messages of a stream are decompressed here whatever their size: they must keep their order
            try:
                message = decompress(call.encoding, message, self.max_message_bytes)
            except GrpcError as error:
                call.finish(error.status, error.message)
                return
        self._run(call, message)

    def _on_decompressed(self, call: GrpcCall, future: asyncio.Future[bytes]) -> None:
        error = future.exception()
        if isinstance(error, GrpcError):
            call.finish(error.status, error.message)
        elif error is not None:
            call.finish(GrpcStatus.INTERNAL, "failed to decompress the message")
        elif not call.done:
            self._run(call, future.result())

    def _run(self, call: GrpcCall, message: bytes | memoryview) -> None:
        assert call.handler is not None
        try:
            call.handler(call, message)
        except InferenceError as error:
            call.finish(STATUS_OF[error.code], error.message)
        except GrpcError as error:
            call.finish(error.status, error.message)
        except Exception:
            _log.exception("gRPC handler failed")
            call.finish(GrpcStatus.INTERNAL, "internal error")
