"""One client's gRPC connection: the socket side of ``wire.http2`` and ``wire.grpc``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import time
from dataclasses import dataclass, field
from typing import cast

from serving_node.core.errors import InferenceError
from serving_node.frontends.grpc.routing import Plan, Routes
from serving_node.frontends.grpc.status import STATUS_OF
from serving_node.wire.grpc import (
    GrpcCall,
    GrpcError,
    GrpcStatus,
    decompress,
    trailers_only,
)
from serving_node.wire.http2 import (
    Http2Connection,
    Http2Limits,
    KeepAlive,
    KeepAlivePolicy,
    KeepAliveStep,
    RequestHeaders,
    Stream,
)
from serving_node.wire.http2.frames import CANCEL
from serving_node.wire.listener import Listener

_log = logging.getLogger(__name__)

# Messages that may become larger than this are decompressed in a thread (zlib releases the interpreter lock).
_LARGE_BYTES = 64 * 1024
# The socket holds back answers from this on, so that they are counted where they belong.
_WRITE_HIGH_BYTES = 1024 * 1024
# How long a client may take to see that it should open no more calls here.
_RETIRE_SECONDS = 2.0
# Ages of connections are spread by this much, so that clients do not come back all at once.
_AGE_JITTER = 0.1
_NOT_READING = b"the client does not read its answers"
_TOO_MUCH_WAITS = trailers_only(GrpcStatus.RESOURCE_EXHAUSTED, _NOT_READING.decode())


@dataclass(frozen=True, slots=True)
class GrpcLimits:
    """What a client may do. Sizes in bytes, times in seconds.

    A unary request must be complete within ``request_seconds`` plus a second for each ``min_bytes_per_second``.
    An answer that waits for the client's flow control is dropped ``answer_seconds`` after its request. While more than
    ``max_queued_bytes`` of answers wait no new calls are taken, and when none of them moves for ``stall_seconds`` the
    connection is cut off.
    """

    http2: Http2Limits = field(default_factory=Http2Limits)
    keep_alive: KeepAlivePolicy = field(default_factory=KeepAlivePolicy)
    max_message_bytes: int = 2**31 - 1
    max_connections: int = 16384
    preface_seconds: float = 20.0
    request_seconds: float = 60.0
    min_bytes_per_second: int = 16 * 1024
    write_seconds: float = 120.0
    answer_seconds: float = 600.0
    stall_seconds: float = 30.0
    max_queued_bytes: int = 256 * 1024 * 1024


class GrpcConnection(asyncio.BufferedProtocol):
    """Reads into the state machine, writes what it puts out, and keeps deadlines."""

    def __init__(
        self,
        routes: Routes,
        limits: GrpcLimits,
        listener: Listener,
    ) -> None:
        self.http2 = Http2Connection(self._accept, limits.http2, self._may_ping)
        self.max_message_bytes = limits.max_message_bytes
        self._routes = routes
        self._limits = limits
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._keep_alive = KeepAlive(limits.keep_alive, self._loop.time())
        self._heard_at = 0.0
        self._moved_at = self._since = self._loop.time()
        self._retired_at = 0.0
        self._old_at = _random_age(limits.keep_alive)
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._receiving = False
        self._flush_is_due = False
        self._direct = False
        self._write_paused_at = 0.0

    # -- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_WRITE_HIGH_BYTES)
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
        self._heard_at = self._loop.time()
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
        self.http2.block()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Called by the event loop."""
        self._write_paused_at = 0.0
        self._transport.resume_reading()
        self.http2.unblock()
        self.flush()

    # -- Listener

    def check_deadlines(self, now: float) -> None:
        """Expire calls; close the connection of a client that is too slow."""
        http2, limits = self.http2, self._limits
        http2.refill()
        if not self._keep_up(now):
            return
        if self._write_paused_at and now - self._write_paused_at > limits.write_seconds:
            self.abort()
            return
        if not http2.started and now - self._since > limits.preface_seconds:
            self.abort()
            return
        if self._moved_at < now - limits.stall_seconds and http2.queued_bytes > limits.max_queued_bytes:
            http2.cut_off(_NOT_READING)
            self.flush()
            self._transport.close()
            return
        if http2.streams:
            self._check_calls(now)
        self.flush()

    def _check_calls(self, now: float) -> None:
        http2, limits = self.http2, self._limits
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

    def _keep_up(self, now: float) -> bool:
        """Do what keep-alive and age ask for. Return False when the connection has ended."""
        http2, policy = self.http2, self._limits.keep_alive
        if self._heard_at:
            self._keep_alive.heard(self._heard_at)
            self._heard_at = 0.0
        if http2.has_sent or not http2.queued_bytes:
            self._moved_at = now
        if http2.has_sent:
            http2.has_sent = False
            self._keep_alive.sent_data()
        step = self._keep_alive.due(now, has_calls=bool(http2.streams))
        if step is KeepAliveStep.PING:
            http2.ping()
        elif step is KeepAliveStep.CLOSE:
            self.abort()
            return False
        if self._old_at and not self._retired_at and now - self._since >= self._old_at:
            self._retire(b"max_age")
        if self._retired_at:
            age = now - self._retired_at
            if age >= _RETIRE_SECONDS:
                http2.shut_down()
            if self._old_at and 0 < policy.max_age_grace_seconds <= age:
                self._end_calls("the connection has reached its maximum age")
                return False
        return True

    def _may_ping(self) -> bool:
        http2 = self.http2
        if http2.has_sent:
            http2.has_sent = False
            self._moved_at = self._loop.time()
            self._keep_alive.sent_data()
        return not self._keep_alive.is_abusive(self._loop.time(), has_calls=bool(http2.streams))

    def _retire(self, reason: bytes) -> None:
        if not self._retired_at:
            self._retired_at = self._loop.time()
            self.http2.retire(reason)

    def shut_down(self) -> None:
        """Send the client elsewhere; close when the running calls are done."""
        self._retire(b"Server shutdown")
        self.flush()

    def _end_calls(self, reason: str) -> None:
        """Fail what runs and close."""
        for stream in tuple(self.http2.streams.values()):
            if isinstance(stream.sink, GrpcCall):
                stream.sink.fail(GrpcStatus.UNAVAILABLE, reason)
        self.http2.shut_down()
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    # -- CallOwner

    def flush(self) -> None:
        """Write what the state machine has put out, unless a read is being processed (it flushes at its end)."""
        if self._receiving or self._flush_is_due:
            return
        if len(self.http2.streams) > 1:
            # other calls run: what is answered in this turn of the loop leaves with one system call
            self._flush_is_due = True
            self._loop.call_soon(self._write_out)
            return
        self._write_out()

    def _write_out(self) -> None:
        self._flush_is_due = False
        http2 = self.http2
        if http2.output:
            output, http2.output = http2.output, []
            self._transport.writelines(output)
        if http2.shutting_down and not http2.streams:
            self._transport.close()

    # -- calls

    def _accept(self, stream: Stream, headers: RequestHeaders) -> GrpcCall | None:
        plan = headers.annotation
        if not isinstance(plan, Plan):
            plan = headers.annotation = self._routes.plan(headers)
        method = plan.method
        if method is None:
            self.http2.send_headers(stream, plan.refusal, end=True)
            return None
        if self.http2.queued_bytes > self._limits.max_queued_bytes:
            self.http2.send_headers(stream, _TOO_MUCH_WAITS, end=True)
            return None
        streaming = method.open_stream is not None
        call = GrpcCall(self, stream, self._on_message, streaming=streaming, metadata=headers.fields)
        call.encoding = plan.encoding
        call.last_values = headers.last_values
        call.since = self._loop.time()
        if plan.timeout_ns:
            call.deadline_ns = time.monotonic_ns() + plan.timeout_ns
        call.handler = method.unary if method.open_stream is None else method.open_stream(call)
        return call

    def _on_message(self, call: GrpcCall, message: bytes | memoryview, compressed: bool) -> None:
        if compressed and call.encoding != b"identity":
            limit = min(_LARGE_BYTES, self.max_message_bytes)
            try:
                message = decompress(call.encoding, message, limit)
            except GrpcError as error:
                if error.status is not GrpcStatus.RESOURCE_EXHAUSTED or limit == self.max_message_bytes:
                    call.fail(error.status, error.message)
                    return
                if call.streaming:
                    call.hold()
                future = self._loop.run_in_executor(None, decompress, call.encoding, message, self.max_message_bytes)
                future.add_done_callback(lambda done: self._on_decompressed(call, done))
                return
        self._run(call, message)

    def _on_decompressed(self, call: GrpcCall, future: asyncio.Future[bytes]) -> None:
        error = future.exception()
        if isinstance(error, GrpcError):
            call.fail(error.status, error.message)
        elif error is not None:
            call.fail(GrpcStatus.INTERNAL, "internal error")
        elif not call.done:
            self._run(call, future.result())
            if call.streaming:
                call.release()

    def _run(self, call: GrpcCall, message: bytes | memoryview) -> None:
        assert call.handler is not None
        try:
            call.handler(call, message)
        except InferenceError as error:
            call.fail(STATUS_OF[error.code], error.message)
        except GrpcError as error:
            call.fail(error.status, error.message)
        except Exception:
            _log.exception("gRPC handler failed")
            call.fail(GrpcStatus.INTERNAL, "internal error")


def _random_age(policy: KeepAlivePolicy) -> float:
    """Return the age in seconds at which a connection is retired, 0 for never."""
    return policy.max_age_seconds * random.uniform(1 - _AGE_JITTER, 1 + _AGE_JITTER)  # noqa: S311  no secret
