"""gRPC over HTTP/2, without I/O: messages of a call in, messages and a status out.

Source: "gRPC over HTTP2" (PROTOCOL-HTTP2.md of the gRPC project).
"""

from __future__ import annotations

import re
import zlib
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Protocol

import numpy as np

from serving_node.wire.http2 import Http2Connection, Stream, encode_headers

Buffer = bytes | bytearray | memoryview

# gRPC C++'s sentence for a call without a whole message
UNPARSABLE = "Unable to parse request"
_PREFIX = Struct(">BI")
_NONE: dict[bytes, bytes] = {}
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])\Z")
_UNIT_NS = {
    b"H": 3_600_000_000_000,
    b"M": 60_000_000_000,
    b"S": 1_000_000_000,
    b"m": 1_000_000,
    b"u": 1_000,
    b"n": 1,
}
# Clients refuse more than 8 KiB of headers by default.
_MAX_STATUS_TEXT = 6000
_CONTENT_TYPE = (b"content-type", b"application/grpc")
ACCEPTED_ENCODINGS = (b"identity", b"gzip", b"deflate")
# what begins an answer, by the encoding of its messages
_HEADS = {
    name: encode_headers([(b":status", b"200"), _CONTENT_TYPE, (b"grpc-encoding", name)]) for name in ACCEPTED_ENCODINGS
}
_HEAD = encode_headers([(b":status", b"200"), _CONTENT_TYPE])
_HEADS[b"identity"] = _HEAD
_OK = encode_headers([(b"grpc-status", b"0")])


class GrpcStatus(IntEnum):
    """Status codes of gRPC that this server answers."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class GrpcError(Exception):
    """A call fails with a status and a sentence."""

    def __init__(self, status: GrpcStatus, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class CallOwner(Protocol):
    """What a call needs from the connection that carries it."""

    http2: Http2Connection
    max_message_bytes: int

    def flush(self) -> None:
        """Write what the state machine has put out, now or at the end of the current read."""


MessageHandler = Callable[["GrpcCall", bytes | memoryview], object]


class GrpcCall:
    """One call: the sink of an HTTP/2 stream.

    ``on_message(call, message, compressed)`` is called with each message; a message owns its memory.
    For unary methods it is called once, after the client's half-close. For streaming methods ``on_half_close``
    follows the last message. ``on_cancel`` is called at most once, when the client has reset the call, its deadline
    has passed or the connection is gone, and only while the call is unanswered. ``handler`` is for the owner.

    ``metadata`` are the request's headers, ``last_values`` the last value of those that came more than once. Units:
    ``deadline_ns`` monotonic nanoseconds, 0 for none; ``since`` seconds of the loop's clock, when the call came.

    ``hold`` makes a streaming call keep what the client sends until ``release``: for whoever needs time with one
    message and must keep their order. ``answer_encoding`` is how messages of the answer are compressed that are
    given as ``compressed``; set it before the first.
    """

    __slots__ = (
        "_compressed",
        "_filled",
        "_headers_sent",
        "_held",
        "_holds",
        "_message",
        "_own",
        "_owner",
        "_prefix",
        "_stream",
        "answer_encoding",
        "complete",
        "deadline_ns",
        "done",
        "encoding",
        "handler",
        "last_values",
        "metadata",
        "on_cancel",
        "on_half_close",
        "on_message",
        "since",
        "streaming",
    )

    def __init__(
        self,
        owner: CallOwner,
        stream: Stream,
        on_message: Callable[[GrpcCall, bytes | memoryview, bool], None],
        *,
        streaming: bool,
        metadata: dict[bytes, bytes],
    ) -> None:
        self.on_message = on_message
        self.on_half_close: Callable[[], None] | None = None
        self.on_cancel: Callable[[], None] | None = None
        self.done = False
        self.complete = False  # the client has half-closed
        self.deadline_ns = 0
        self.since = 0.0
        self.metadata = metadata
        self.last_values = _NONE
        self.encoding = b"identity"
        self.answer_encoding = b"identity"
        self.handler: MessageHandler | None = None
        self._owner = owner
        self._stream = stream
        self.streaming = streaming
        self._headers_sent = False
        self._holds = 0
        self._held: deque[tuple[bytes | memoryview, bool]] | None = None  # what came since ``hold``
        self._message: bytes | memoryview | None = None
        self._compressed = False
        self._prefix = b""
        self._own: memoryview | None = None
        self._filled = 0

    # -- answers

    def reply(self, parts: list[Buffer], size: int, *, compressed: bool = False) -> None:
        """Answer a unary call with one message of ``size`` bytes in ``parts`` and status OK."""
        if self.done:
            return
        self.done = True
        self.on_cancel = None  # it refers to the request: without this, tensors would wait for the cycle collector
        parts.insert(0, _PREFIX.pack(compressed, size))
        self._owner.http2.respond(self._stream, _HEADS[self.answer_encoding], parts, size + 5, _OK)
        self._owner.flush()

    def send(self, parts: list[Buffer], size: int, *, compressed: bool = False) -> None:
        """Send one message of a streaming answer."""
        if self.done:
            return
        http2 = self._owner.http2
        if not self._headers_sent:
            self._headers_sent = True
            http2.send_headers(self._stream, _HEADS[self.answer_encoding])
        parts.insert(0, _PREFIX.pack(compressed, size))
        http2.send_data(self._stream, parts, size + 5)
        self._owner.flush()

    def finish(self, status: GrpcStatus, message: str = "", *, extra: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        """End the call with a status. Does nothing if it has ended."""
        if self.done:
            return
        self.done = True
        self.on_cancel = None
        self._own = self._held = None
        http2 = self._owner.http2
        if self._headers_sent:
            http2.end(self._stream, _OK if status is GrpcStatus.OK else encode_headers(status_fields(status, message)))
        elif status is GrpcStatus.OK:
            http2.send_headers(self._stream, _HEAD)
            http2.end(self._stream, _OK)
        else:
            http2.send_headers(self._stream, trailers_only(status, message, extra), end=True)
        self._owner.flush()

    def expire(self) -> None:
        """The deadline has passed: tell whoever works on the call, and answer."""
        self.fail(GrpcStatus.DEADLINE_EXCEEDED, "Deadline Exceeded")

    def fail(self, status: GrpcStatus, message: str) -> None:
        """End the call whatever runs for it, and tell whoever works on it."""
        if not self.done:
            on_cancel, self.on_cancel = self.on_cancel, None
            self.finish(status, message)
            if on_cancel is not None:
                on_cancel()

    def is_slow(self, now: float, seconds: float, min_bytes_per_second: int) -> bool:
        """Return whether a unary request should be complete by now and is not."""
        if self.complete or self.streaming or self.done:
            return False
        return now - self.since > seconds + self._filled / min_bytes_per_second

    def pause(self) -> None:
        """Stop giving the client credit to send more messages."""
        self._owner.http2.pause(self._stream)

    def resume(self) -> None:
        """Give credit again."""
        if not self.done:
            self._owner.http2.resume(self._stream)
            self._owner.flush()

    def hold(self) -> None:
        """Keep the following messages, and the half-close, until as many ``release`` as ``hold``.

        The client gets no more credit meanwhile.
        """
        self._holds += 1
        if self._held is None:
            self._held = deque()
            self.pause()

    def release(self) -> None:
        """Hand over what was kept. A message that holds again keeps the rest."""
        self._holds -= 1
        if self._holds or self._held is None:
            return
        held, self._held = self._held, None
        self.resume()
        while held and not self.done:
            message, compressed = held.popleft()
            self.on_message(self, message, compressed)
            if self._is_holding():
                self._held = held  # nothing can have come meanwhile
                return
        if self.complete and not self.done and self.on_half_close is not None:
            self.on_half_close()

    def when_drained(self, action: Callable[[], None]) -> None:
        """Call ``action`` once, when little of the answer is left that the client's flow control holds back."""
        self._stream.on_drained = action

    def _is_holding(self) -> bool:
        return self._held is not None

    @property
    def queued_bytes(self) -> int:
        """Bytes of the answer that the client's flow control holds back."""
        return self._stream.queued

    # -- http2.StreamSink

    def on_data(self, chunk: memoryview) -> None:
        """Called by the connection."""
        own = self._own
        if own is None:
            if not self._prefix and len(chunk) >= 5 and self._message is None:
                flag, length = _PREFIX.unpack_from(chunk)
                if length == len(chunk) - 5:  # the usual small message, whole
                    self._take(flag, bytes(chunk[5:]))
                    return
            self._collect(chunk)
            return
        room = len(own) - self._filled
        if len(chunk) <= room:
            own[self._filled : self._filled + len(chunk)] = chunk
            self.received(len(chunk))
            return
        own[self._filled :] = chunk[:room]
        self.received(room)
        if not self.done:
            self._collect(chunk[room:])

    def target(self) -> memoryview | None:
        """Called by the connection."""
        return None if self._own is None else self._own[self._filled :]

    def received(self, count: int) -> None:
        """Called by the connection."""
        own = self._own
        assert own is not None
        self._filled += count
        if self._filled == len(own):
            self._own = None
            self._take(self._compressed, own)

    def on_end(self) -> None:
        """Called by the connection."""
        self.complete = True
        if self.done:
            return
        if self._own is not None or self._prefix:
            self.fail(GrpcStatus.INTERNAL, UNPARSABLE)
        elif self.streaming:
            if self.on_half_close is not None and self._held is None:
                self.on_half_close()
        elif self._message is None:
            self.fail(GrpcStatus.INTERNAL, UNPARSABLE)
        else:
            message, self._message = self._message, None
            self.on_message(self, message, self._compressed)

    def on_reset(self, code: int) -> None:
        """Called by the connection."""
        self._own = self._held = None
        if not self.done:
            self.done = True
            on_cancel, self.on_cancel = self.on_cancel, None
            if on_cancel is not None:
                on_cancel()

    # -- receiving

    def _collect(self, chunk: memoryview) -> None:
        """Take messages, and parts of messages, from where no message is in progress."""
        # what follows the message of a unary call does not matter
        while chunk and not self.done and self._message is None:
            if len(self._prefix) < 5:
                missing = 5 - len(self._prefix)
                self._prefix += bytes(chunk[:missing])
                chunk = chunk[missing:]
                if len(self._prefix) < 5:
                    return
            flag, length = _PREFIX.unpack(self._prefix)
            self._prefix = b""
            if flag > 1:
                self.fail(GrpcStatus.INTERNAL, "bad flags of a message")
            elif length > self._owner.max_message_bytes:
                limit = self._owner.max_message_bytes
                self.fail(GrpcStatus.RESOURCE_EXHAUSTED, f"Received message larger than max ({length} vs. {limit})")
            elif length <= len(chunk):
                self._take(flag, bytes(chunk[:length]))
                chunk = chunk[length:]
            else:
                self._compressed = bool(flag)
                self._begin_own(length, chunk)
                return

    def _begin_own(self, length: int, chunk: memoryview) -> None:
        try:
            # not zeroed: pages that never arrive are never touched
            self._own = np.empty(length, np.uint8).data
        except MemoryError:
            self.fail(GrpcStatus.RESOURCE_EXHAUSTED, f"no memory for a message of {length} bytes")
            return
        self._own[: len(chunk)] = chunk
        self._filled = len(chunk)

    def _take(self, flag: int, message: bytes | memoryview) -> None:
        if flag > 1:
            self.fail(GrpcStatus.INTERNAL, "bad flags of a message")
        elif len(message) > self._owner.max_message_bytes:
            limit = self._owner.max_message_bytes
            text = f"Received message larger than max ({len(message)} vs. {limit})"
            self.fail(GrpcStatus.RESOURCE_EXHAUSTED, text)
        elif self._held is not None:
            self._held.append((message, bool(flag)))
        elif self.streaming:
            self.on_message(self, message, bool(flag))
        elif self._message is None:
            self._compressed = bool(flag)
            self._message = message


def parse_timeout(value: bytes) -> int | None:
    """Return the nanoseconds of a ``grpc-timeout`` header, None if it is malformed."""
    match = _TIMEOUT.match(value)
    return None if match is None else int(match[1]) * _UNIT_NS[match[2]]


def status_fields(status: GrpcStatus, message: str) -> list[tuple[bytes, bytes]]:
    """Return the headers that say how a call ended."""
    fields = [(b"grpc-status", b"%d" % status)]
    if message:
        fields.append((b"grpc-message", encode_status_text(message)))
    return fields


def trailers_only(status: GrpcStatus, message: str, extra: tuple[tuple[bytes, bytes], ...] = ()) -> bytes:
    """Return the header block of an answer that is nothing but a status."""
    return encode_headers([(b":status", b"200"), _CONTENT_TYPE, *status_fields(status, message), *extra])


def encode_status_text(text: str) -> bytes:
    """Return ``text`` percent-encoded for ``grpc-message``, cut where clients would refuse the headers."""
    out = bytearray()
    for character in text:
        encoded = b"".join(
            bytes((byte,)) if 0x20 <= byte <= 0x7E and byte != 0x25 else b"%%%02X" % byte
            for byte in character.encode("utf-8", "replace")
        )
        if len(out) + len(encoded) > _MAX_STATUS_TEXT:
            break
        out += encoded
    return bytes(out)


def decompress(encoding: bytes, data: Buffer, limit: int) -> bytes:
    """Return the content of a compressed message.

    Raises:
        GrpcError: the encoding is not supported, the data is damaged, or the content is larger than ``limit`` bytes.
    """
    if encoding == b"gzip":
        engine = zlib.decompressobj(31)
    elif encoding == b"deflate":
        engine = zlib.decompressobj()
    else:
        name = encoding.decode("ascii", "replace")
        raise GrpcError(GrpcStatus.UNIMPLEMENTED, f"message encoding '{name}' is not supported")
    try:
        content = engine.decompress(data, min(limit + 1, 2**31 - 1))
    except zlib.error as error:
        raise GrpcError(GrpcStatus.INTERNAL, _undecompressable(encoding)) from error
    if len(content) > limit:
        raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, f"decompressed message is larger than max ({limit})")
    if not engine.eof:
        raise GrpcError(GrpcStatus.INTERNAL, _undecompressable(encoding))
    return content


def _undecompressable(encoding: bytes) -> str:
    return f"Unexpected error decompressing data for algorithm {encoding.decode()}"
