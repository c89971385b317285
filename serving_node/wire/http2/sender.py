"""The outgoing half of an HTTP/2 connection: answers become frames within the peer's windows and frame size."""

from __future__ import annotations

from collections import OrderedDict, deque

from serving_node.wire.http2.frames import (
    CONTINUATION,
    DATA,
    DEFAULT_WINDOW,
    DRAINED_BYTES,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADER,
    HEADERS,
    JOIN_BYTES,
    MIN_FRAME_SIZE,
    NO_ERROR,
    RST_STREAM,
    SET_FRAME_SIZE,
    SET_LIST_SIZE,
    SET_MAX_STREAMS,
    SET_WINDOW,
    SETTING,
    SETTINGS,
    TWO_U32,
    U32,
    WINDOW_UPDATE,
    Buffer,
    Http2Limits,
    Stream,
)


class FrameSender:
    """Collects bytes to write in ``output``.

    ``respond`` sends a whole answer; ``send_headers``, ``send_data`` and ``end`` send one piecewise. What the peer's
    flow control holds back waits in the stream and is sent when window space arrives. ``block`` holds back all data
    until ``unblock``: for when the socket takes no more. ``has_sent`` becomes true with every header or data frame.
    """

    def __init__(self, limits: Http2Limits) -> None:
        self.output: list[Buffer] = []
        self.streams: dict[int, Stream] = {}
        # those that the connection's window holds back, in turn: a tiny window update must cost little
        self._waiting: OrderedDict[int, Stream] = OrderedDict()
        self.queued_bytes = 0
        self.has_sent = False
        self._limits = limits
        self._budget = limits.control_burst
        self._last_stream = 0
        self._send_window = DEFAULT_WINDOW
        self._parked_window: int | None = None
        self._peer_window = DEFAULT_WINDOW
        self._peer_frame = MIN_FRAME_SIZE
        self._block_prefix = b""
        self._greet()

    def respond(self, stream: Stream, head: bytes, parts: list[Buffer], size: int, trailers: bytes) -> None:
        """Send a whole answer: header block, ``size`` bytes of data in ``parts``, trailer block."""
        if stream.finished:
            return
        self.has_sent = True
        if self._block_prefix:
            head, self._block_prefix = self._block_prefix + head, b""
        if size > self._send_window or size > stream.send_window or size > self._peer_frame or stream.queue:
            self.send_headers(stream, head)
            self.send_data(stream, parts, size)
            self.end(stream, trailers)
            return
        self._send_window -= size
        stream.send_window -= size
        sid = stream.id
        head_frame = HEADER.pack(len(head) >> 8, len(head) & 0xFF, HEADERS, END_HEADERS, sid)
        data_frame = HEADER.pack(size >> 8, size & 0xFF, DATA, 0, sid)
        tail_frame = HEADER.pack(0, len(trailers), HEADERS, END_HEADERS | END_STREAM, sid)
        if len(trailers) > 0xFF or size > JOIN_BYTES:
            self.output += (b"".join((head_frame, head, data_frame)), *parts)
            self._emit_block(sid, trailers, END_STREAM)
        else:
            self.output.append(b"".join((head_frame, head, data_frame, *parts, tail_frame, trailers)))
        self._finish(stream)

    def send_headers(self, stream: Stream, block: bytes, *, end: bool = False) -> None:
        """Send a header block; with ``end`` it is the whole answer."""
        if stream.finished:
            return
        self.has_sent = True
        if self._block_prefix:
            block, self._block_prefix = self._block_prefix + block, b""
        self._emit_block(stream.id, block, END_STREAM if end else 0)
        if end:
            self._finish(stream)

    def send_data(self, stream: Stream, parts: list[Buffer], size: int) -> None:
        """Send data, now or when flow control allows. The buffers must not change until sent."""
        if stream.finished:
            return
        self.has_sent = True
        if not stream.queue and size <= self._send_window and size <= stream.send_window and size <= self._peer_frame:
            self._send_window -= size
            stream.send_window -= size
            self.output.append(HEADER.pack(size >> 8, size & 0xFF, DATA, 0, stream.id))
            self.output += parts
            return
        if stream.queue is None:
            stream.queue = deque()
        for part in parts:
            if len(part):
                stream.queue.append(memoryview(part).cast("B"))
        stream.queued += size
        self.queued_bytes += size
        self._pump_one(stream)

    def end(self, stream: Stream, trailers: bytes) -> None:
        """End the answer with a block of trailers, after all data."""
        if stream.finished:
            return
        if stream.queue:
            stream.queue.append(trailers)
        else:
            self._emit_block(stream.id, trailers, END_STREAM)
            self._finish(stream)

    def reset(self, stream: Stream, code: int) -> None:
        """End the stream at once. The sink is not called."""
        if not stream.finished:
            self._emit_reset(stream.id, code)
            self._forget(stream)

    def block(self) -> None:
        """Hold back all data until ``unblock``."""
        if self._parked_window is None:
            self._parked_window, self._send_window = self._send_window, 0

    def unblock(self) -> None:
        """Send what was held back."""
        if self._parked_window is not None:
            self._send_window, self._parked_window = self._parked_window, None
            if self.queued_bytes:
                self._pump_all()

    # -- sending

    def _greet(self) -> None:
        limits = self._limits
        settings = (
            (SET_MAX_STREAMS, limits.max_streams),
            (SET_WINDOW, limits.stream_window_bytes),
            (SET_FRAME_SIZE, limits.max_frame_bytes),
            (SET_LIST_SIZE, limits.max_header_list_bytes),
        )
        body = b"".join(SETTING.pack(key, value) for key, value in settings)
        self.output.append(HEADER.pack(0, len(body), SETTINGS, 0, 0) + body)
        self._emit_window_update(0, limits.connection_window_bytes - DEFAULT_WINDOW)

    def _emit_block(self, stream_id: int, block: bytes, flags: int) -> None:
        limit = self._peer_frame
        first, rest = block[:limit], block[limit:]
        size = len(first)
        flags |= 0 if rest else END_HEADERS
        self.output.append(HEADER.pack(size >> 8, size & 0xFF, HEADERS, flags, stream_id) + first)
        while rest:
            first, rest = rest[:limit], rest[limit:]
            size = len(first)
            flags = 0 if rest else END_HEADERS
            self.output.append(HEADER.pack(size >> 8, size & 0xFF, CONTINUATION, flags, stream_id) + first)

    def _emit_window_update(self, stream_id: int, increment: int) -> None:
        if increment > 0:
            self.output.append(HEADER.pack(0, 4, WINDOW_UPDATE, 0, stream_id) + U32.pack(increment))

    def _emit_reset(self, stream_id: int, code: int) -> None:
        self.output.append(HEADER.pack(0, 4, RST_STREAM, 0, stream_id) + U32.pack(code))

    def _goaway(self, code: int, reason: bytes, last_stream: int | None = None) -> None:
        last = self._last_stream if last_stream is None else last_stream
        self.output.append(HEADER.pack(0, 8 + len(reason), GOAWAY, 0, 0) + TWO_U32.pack(last, code) + reason)

    def _pump(self, stream: Stream) -> bool:
        """Send what the windows allow of one stream, at most one frame. Return whether anything was sent."""
        queue = stream.queue
        assert queue is not None
        room = min(self._send_window, stream.send_window, self._peer_frame, stream.queued)
        if room > 0:
            frame: list[Buffer] = []
            left = room
            while left:
                part = queue.popleft()
                if len(part) > left:
                    view = memoryview(part)
                    queue.appendleft(view[left:])
                    part = view[:left]
                frame.append(part)
                left -= len(part)
            self._send_window -= room
            stream.send_window -= room
            stream.queued -= room
            self.queued_bytes -= room
            self.has_sent = True
            self.output.append(HEADER.pack(room >> 8, room & 0xFF, DATA, 0, stream.id))
            self.output += frame
            if stream.on_drained is not None and stream.queued <= DRAINED_BYTES:
                on_drained, stream.on_drained = stream.on_drained, None
                on_drained()
        if not stream.queued and queue:
            trailers = queue.popleft()
            self._emit_block(stream.id, bytes(trailers), END_STREAM)
            self._finish(stream)
        return room > 0

    def _pump_all(self) -> None:
        """Send what new window space allows: one frame of each waiting stream in turn."""
        waiting = self._waiting
        while waiting and self._send_window > 0:
            _, stream = waiting.popitem(last=False)
            if self._pump(stream) and stream.queue:
                waiting[stream.id] = stream

    def _pump_one(self, stream: Stream) -> None:
        """Send what the windows allow of one stream."""
        while stream.queue and self._pump(stream):
            pass
        if stream.queue and stream.send_window > 0:
            self._waiting[stream.id] = stream

    def _finish(self, stream: Stream) -> None:
        """Our side of the stream is done."""
        if not stream.ended:
            self._emit_reset(stream.id, NO_ERROR)  # the answer came before the end of the request
        elif self._budget < self._limits.control_burst:
            self._budget += 1
        self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        stream.finished = True
        stream.sink = None
        self.queued_bytes -= stream.queued
        stream.queued = 0
        stream.queue = None
        stream.on_drained = None
        self.streams.pop(stream.id, None)
        self._waiting.pop(stream.id, None)
