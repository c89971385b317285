"""HTTP/2 frames, error codes, limits and streams. Source: RFC 9113."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Protocol

Buffer = bytes | bytearray | memoryview

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

NO_ERROR = 0x0
PROTOCOL_ERROR = 0x1
INTERNAL_ERROR = 0x2
FLOW_CONTROL_ERROR = 0x3
STREAM_CLOSED = 0x5
FRAME_SIZE_ERROR = 0x6
REFUSED_STREAM = 0x7
CANCEL = 0x8
COMPRESSION_ERROR = 0x9
ENHANCE_YOUR_CALM = 0xB

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = 0x1
ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY_FLAG = 0x20

SET_HEADER_TABLE_SIZE, SET_ENABLE_PUSH, SET_MAX_STREAMS, SET_WINDOW, SET_FRAME_SIZE, SET_LIST_SIZE = range(1, 7)

HEADER = Struct(">HBBBI")  # length (high 16 bits, low 8 bits), type, flags, stream
SETTING = Struct(">HI")
U32 = Struct(">I")
TWO_U32 = Struct(">II")

MAX_WINDOW = 0x7FFFFFFF
DEFAULT_WINDOW = 65535
MIN_FRAME_SIZE = 16384
MAX_FRAME_SIZE = 0xFFFFFF
# Answers up to this size are joined into one buffer: cheaper than several entries of a gathering write.
JOIN_BYTES = 8192
# An answer of which no more than this waits counts as drained.
DRAINED_BYTES = 1024 * 1024
# Reading directly into a message pays only when much of the frame is still to come.
DIRECT_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True)
class Http2Limits:
    """What a client may do. Sizes in bytes.

    ``max_header_list_bytes`` is announced; whoever serves a request refuses one with more. Only much more than that
    ends the connection, as does a larger ``max_header_block_bytes``.
    """

    max_streams: int = 1024
    max_header_block_bytes: int = 64 * 1024
    max_header_list_bytes: int = 16 * 1024
    max_continuations: int = 16
    max_frame_bytes: int = 4 * 1024 * 1024
    stream_window_bytes: int = 8 * 1024 * 1024
    connection_window_bytes: int = 64 * 1024 * 1024
    control_burst: int = 2000
    control_per_refill: int = 1000


class StreamSink(Protocol):
    """Takes the data of one request."""

    def on_data(self, chunk: memoryview) -> None:
        """Take a piece of the body. The memory is reused after the call."""

    def on_end(self) -> None:
        """The client has sent the whole body."""

    def on_reset(self, code: int) -> None:
        """The client, or the loss of the connection, has ended the stream. Answers go nowhere from now on."""

    def target(self) -> memoryview | None:
        """Return memory where the next bytes of the body should be put, if there is a preference."""

    def received(self, count: int) -> None:
        """``count`` bytes were put at the start of ``target()``."""


class Stream:
    """One request and its answer. Everything in it belongs to the connection."""

    __slots__ = (
        "ended",
        "finished",
        "id",
        "on_drained",
        "paused",
        "queue",
        "queued",
        "recv_window",
        "send_window",
        "sink",
        "unacked",
    )

    def __init__(self, stream_id: int, recv_window: int, send_window: int) -> None:
        self.id = stream_id
        self.recv_window = recv_window
        self.send_window = send_window
        self.sink: StreamSink | None = None
        self.ended = False  # by the client
        self.finished = False  # by us
        self.paused = False
        self.on_drained: Callable[[], None] | None = None
        self.unacked = 0
        # what flow control holds back: views, then perhaps the block of the trailers
        self.queue: deque[memoryview | bytes] | None = None
        self.queued = 0
