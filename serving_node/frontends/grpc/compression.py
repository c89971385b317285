"""Compressed answers: which encoding a level means for a client, and answers that keep their order.

Source: gRPC core's compression_internal.cc, which picks the algorithm of a level from those that the client takes.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import Callable

from serving_node.frontends.compression_level import CompressionLevel
from serving_node.wire.grpc import Buffer, GrpcCall, GrpcStatus

# zlib releases the interpreter lock: from this size on another thread compresses.
_LARGE_BYTES = 64 * 1024
# in gRPC core's order, from the quickest
_RANKED = (b"gzip", b"deflate")
_WINDOW_BITS = {b"gzip": 31, b"deflate": 15}
_ZLIB_LEVEL = 6


def encoding_for(level: CompressionLevel, accepted: bytes) -> bytes:
    """Return the encoding for a client that sent ``accepted`` as its ``grpc-accept-encoding``."""
    if level is CompressionLevel.NONE:
        return b"identity"
    taken = {part.strip() for part in accepted.split(b",")}
    usable = [name for name in _RANKED if name in taken]
    if not usable:
        return b"identity"
    place = {CompressionLevel.LOW: 0, CompressionLevel.MEDIUM: len(usable) // 2, CompressionLevel.HIGH: -1}[level]
    return usable[place]


def compress(encoding: bytes, parts: list[Buffer]) -> list[Buffer]:
    """Return the compressed message."""
    engine = zlib.compressobj(_ZLIB_LEVEL, zlib.DEFLATED, _WINDOW_BITS[encoding])
    return [*(chunk for part in parts if (chunk := engine.compress(part))), engine.flush()]


class AnswerCompression:
    """Compresses the answers of calls whose clients take that."""

    def __init__(self, level: CompressionLevel) -> None:
        self._level = level

    def answers(self, call: GrpcCall) -> GrpcCall | CompressedAnswers:
        """Return what to answer ``call`` through."""
        encoding = encoding_for(self._level, call.metadata.get(b"grpc-accept-encoding", b""))
        if encoding == b"identity":
            return call
        call.answer_encoding = encoding
        return CompressedAnswers(call, encoding)


class CompressedAnswers:
    """Answers of one call. Large messages are compressed in a thread; what comes after them waits."""

    __slots__ = ("_call", "_encoding", "_waiting", "_waiting_bytes")

    def __init__(self, call: GrpcCall, encoding: bytes) -> None:
        self._call = call
        self._encoding = encoding
        self._waiting: deque[Callable[[], None]] | None = None
        self._waiting_bytes = 0

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait to be compressed, or for the client."""
        return self._waiting_bytes + self._call.queued_bytes

    def reply(self, parts: list[Buffer], size: int) -> None:
        """Answer a unary call."""
        self._compressed(self._call.reply, parts, size)

    def send(self, parts: list[Buffer], size: int) -> None:
        """Send one message of a streaming answer."""
        if self._waiting is None:
            self._compressed(self._call.send, parts, size)
        else:
            self._waiting_bytes += size
            self._waiting.append(lambda: self._compress_waiting(parts, size))

    def finish(self, status: GrpcStatus) -> None:
        """End the call after all messages."""
        if self._waiting is None:
            self._call.finish(status)
        else:
            self._waiting.append(lambda: self._call.finish(status))

    def _compress_waiting(self, parts: list[Buffer], size: int) -> None:
        self._waiting_bytes -= size
        self._compressed(self._call.send, parts, size)

    def _compressed(self, send: Callable[..., None], parts: list[Buffer], size: int) -> None:
        if size < _LARGE_BYTES:
            self._put(send, parts, size, compress(self._encoding, parts))
            return
        self._waiting = deque()
        self._waiting_bytes += size
        future = asyncio.get_running_loop().run_in_executor(None, compress, self._encoding, parts)
        future.add_done_callback(lambda done: self._on_compressed(send, parts, size, done))

    def _on_compressed(
        self, send: Callable[..., None], parts: list[Buffer], size: int, done: asyncio.Future[list[Buffer]]
    ) -> None:
        self._waiting_bytes -= size
        self._put(send, parts, size, parts if done.cancelled() or done.exception() else done.result())
        waiting, self._waiting = self._waiting, None
        while waiting:
            step = waiting.popleft()
            step()
            if self._is_waiting():  # a large message again, with nothing behind it yet
                self._waiting = waiting
                return

    def _is_waiting(self) -> bool:
        return self._waiting is not None

    @staticmethod
    def _put(send: Callable[..., None], parts: list[Buffer], size: int, smaller: list[Buffer]) -> None:
        """Send what is smaller: gRPC marks each message as compressed or not."""
        new_size = sum(map(len, smaller))
        if new_size < size:
            send(smaller, new_size, compressed=True)
        else:
            send(parts, size)
