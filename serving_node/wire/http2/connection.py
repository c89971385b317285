"""HTTP/2 for servers, without I/O: bytes in, calls on stream sinks; answers in, bytes out.

``Http2Connection.receive`` takes what the socket gave. For each request it asks ``accept`` for a ``StreamSink``,
which is then told about the request's data and end. Answers are given with ``respond``, ``send_headers``,
``send_data`` and ``end``; bytes to write collect in ``output``. Nothing here knows sockets, clocks or threads.

A peer that breaks the protocol never causes an exception: ``output`` gets a GOAWAY, ``closed`` becomes true and
every sink is reset.

Bounds on a hostile peer: concurrent streams; size and number of frames of a header block; size of a header list;
frame sizes; flow-control windows in both directions; and a budget for frames that cost us more than them (PING,
SETTINGS, RST_STREAM of a running request, empty DATA, data for closed streams, PRIORITY), which time
(``refill``) and finished requests restore.

Source: RFC 9113. Priorities are ignored, as the RFC allows.
"""

from __future__ import annotations

from collections.abc import Callable

from serving_node.wire.http2.frames import (
    ACK,
    CANCEL,
    COMPRESSION_ERROR,
    CONTINUATION,
    DATA,
    DIRECT_BYTES,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEADER,
    HEADERS,
    MAX_FRAME_SIZE,
    MAX_WINDOW,
    MIN_FRAME_SIZE,
    NO_ERROR,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PRIORITY_FLAG,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    RST_STREAM,
    SET_ENABLE_PUSH,
    SET_FRAME_SIZE,
    SET_HEADER_TABLE_SIZE,
    SET_WINDOW,
    SETTING,
    SETTINGS,
    STREAM_CLOSED,
    U32,
    WINDOW_UPDATE,
    Http2Limits,
    Stream,
    StreamSink,
)
from serving_node.wire.http2.headers import HeaderDecoder, HeadersError, RequestHeaders
from serving_node.wire.http2.sender import FrameSender

# What tells our pings apart when the client returns them.
_KEEPALIVE_PING = b"keepaliv"
_RETIRE_PING = b"retiring"


class Http2Connection(FrameSender):
    """The state of one client's connection.

    ``accept(stream, headers)`` returns the sink for a new request, or None if it was answered at once.
    ``may_ping()``, when given, is asked at every PING of the client whether it pings within its limits.

    An orderly end has two steps, so that requests on their way are not lost: ``retire`` says that no new ones should
    be sent, and when the client has seen that, or at ``shut_down``, ``shutting_down`` becomes true and new ones are
    refused.
    """

    def __init__(
        self,
        accept: Callable[[Stream, RequestHeaders], StreamSink | None],
        limits: Http2Limits,
        may_ping: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(limits)
        self.closed = False
        self.retiring = False
        self.shutting_down = False
        self.started = False  # preface and first SETTINGS were received
        self._accept = accept
        self._may_ping = may_ping
        self._reason = b""
        self._decoder = HeaderDecoder(limits.max_header_list_bytes)
        self._preface_left = PREFACE
        self._partial = bytearray()
        self._needed = 0
        self._shrunk_table = False
        self._recv_window = limits.connection_window_bytes
        self._unacked = 0
        self._data_left = 0
        self._pad_left = 0
        self._data_stream: Stream | None = None
        self._data_ends = False
        self._skip_left = 0
        self._block: bytearray | None = None
        self._block_stream = 0
        self._block_ends = False
        self._continuations = 0

    # -- what the connection's owner calls

    def receive(self, data: memoryview) -> None:
        """Process bytes from the socket. Sinks are called from here."""
        if self.closed:
            return
        if self._partial:
            self._partial += data
            if len(self._partial) < self._needed:
                return
            data = memoryview(bytes(self._partial))
            self._partial = bytearray()
        position, end = 0, len(data)
        if self._preface_left:
            position = self._take_preface(data)
        while not self.closed:
            if self._data_left or self._pad_left or self._skip_left:
                if position == end:
                    return
                position = self._take_payload(data, position, end)
                continue
            following = self._take_next(data, position, end)
            if following < 0:
                return
            position = following

    def target(self) -> memoryview | None:
        """Return memory for the next bytes from the socket, when they are known to belong to one message."""
        left = self._data_left
        if left < DIRECT_BYTES or self._data_stream is None or self._data_stream.sink is None:
            return None
        memory = self._data_stream.sink.target()
        return None if memory is None or len(memory) < DIRECT_BYTES else memory[:left]

    def received(self, count: int) -> None:
        """``count`` bytes were read into ``target()``."""
        stream = self._data_stream
        assert stream is not None
        assert stream.sink is not None
        self._data_left -= count
        stream.sink.received(count)
        if not self._data_left and not self._pad_left:
            self._end_data()

    def refill(self) -> None:
        """Restore the budget for control frames. Call once a second."""
        self._budget = min(self._budget + self._limits.control_per_refill, self._limits.control_burst)

    def retire(self, reason: bytes = b"") -> None:
        """Tell the client to open no more requests here. Those that it has sent meanwhile are served."""
        if self.retiring or self.closed:
            return
        self.retiring = True
        self._reason = reason
        if self.started:
            self._goaway(NO_ERROR, reason, MAX_WINDOW)
            self._emit_ping(_RETIRE_PING)
        else:
            self.shut_down()

    def shut_down(self) -> None:
        """Refuse new requests; running ones may finish."""
        if not self.shutting_down and not self.closed:
            self.retiring = self.shutting_down = True
            self._goaway(NO_ERROR, self._reason)

    def cut_off(self, reason: bytes) -> None:
        """End the connection because its client asks for too much."""
        self._die(ENHANCE_YOUR_CALM, reason)

    def ping(self) -> None:
        """Ask the client for a sign of life."""
        if self.started and not self.closed:
            self._emit_ping(_KEEPALIVE_PING)

    def connection_lost(self) -> None:
        """The socket is gone: reset every stream."""
        self.closed = True
        for stream in tuple(self.streams.values()):
            sink = stream.sink
            self._forget(stream)
            if sink is not None:
                sink.on_reset(CANCEL)

    def pause(self, stream: Stream) -> None:
        """Give the client no more credit for this stream: at most one window of data will still come."""
        stream.paused = True

    def resume(self, stream: Stream) -> None:
        """Give credit again."""
        stream.paused = False
        if not stream.ended and not stream.finished:
            self._credit_stream(stream)

    # -- receiving

    def _take_preface(self, data: memoryview) -> int:
        wanted = self._preface_left
        got = bytes(data[: len(wanted)])
        if not wanted.startswith(got):
            self._die(PROTOCOL_ERROR, b"no HTTP/2 preface")
            return 0
        self._preface_left = wanted[len(got) :]
        return len(got)

    def _take_next(self, data: memoryview, position: int, end: int) -> int:
        """Take the frame at ``position``, of DATA the header only. Return where to go on, -1 when bytes are missing."""
        if end - position < 9:
            return self._stash(data, position, 9)
        high, low, kind, flags, stream_id = HEADER.unpack_from(data, position)
        length = high << 8 | low
        stream_id &= MAX_WINDOW
        if kind == DATA and self._block is None and self.started:
            if not flags & PADDED:
                self._begin_data(stream_id, length, flags, -1)
                return position + 9
            if end - position < 10:
                return self._stash(data, position, 10)
            self._begin_data(stream_id, length, flags, data[position + 9])
            return position + 10
        if not self._check_frame(kind, length, stream_id):
            return -1
        if kind > CONTINUATION:  # unknown frames are ignored
            self._skip_left = length
            return position + 9
        following: int = position + 9 + length
        if following > end:
            return self._stash(data, position, 9 + length)
        self._take_frame(kind, flags, stream_id, data[position + 9 : following])
        return following

    def _stash(self, data: memoryview, position: int, needed: int) -> int:
        self._needed = needed
        if position < len(data):
            self._partial = bytearray(data[position:])
        return -1

    def _check_frame(self, kind: int, length: int, stream_id: int) -> bool:
        """Refuse frames by their header alone, before their payload is waited for."""
        if not self.started and kind != SETTINGS:
            self._die(PROTOCOL_ERROR, b"SETTINGS must come first")
        elif self._block is not None and (kind != CONTINUATION or stream_id != self._block_stream):
            self._die(PROTOCOL_ERROR, b"CONTINUATION expected")
        elif length > self._limits.max_frame_bytes:
            self._die(FRAME_SIZE_ERROR, b"frame too large")
        elif kind in (HEADERS, CONTINUATION):
            if length + len(self._block or b"") > self._limits.max_header_block_bytes + 262:
                self._die(ENHANCE_YOUR_CALM, b"header block too large")
        elif kind <= CONTINUATION and length > MIN_FRAME_SIZE:
            self._die(FRAME_SIZE_ERROR, b"control frame too large")
        elif kind > CONTINUATION:
            self._charge(1)
        return not self.closed

    def _take_payload(self, data: memoryview, position: int, end: int) -> int:
        """Consume payload of the DATA frame in progress, or of a frame that is skipped."""
        if self._skip_left:
            count = min(self._skip_left, end - position)
            self._skip_left -= count
            return position + count
        if self._data_left:
            count = min(self._data_left, end - position)
            self._data_left -= count
            stream = self._data_stream
            if stream is not None and stream.sink is not None:
                stream.sink.on_data(data[position : position + count])
            position += count
        count = min(self._pad_left, end - position)
        self._pad_left -= count
        if not self._data_left and not self._pad_left:
            self._end_data()
        return position + count

    def _begin_data(self, stream_id: int, length: int, flags: int, padding: int) -> None:
        if not stream_id or stream_id > self._last_stream:
            self._die(PROTOCOL_ERROR, b"DATA on an idle stream")
            return
        if length > self._limits.max_frame_bytes:
            self._die(FRAME_SIZE_ERROR, b"frame too large")
            return
        if padding >= length and flags & PADDED:
            self._die(PROTOCOL_ERROR, b"padding longer than the frame")
            return
        stream = self.streams.get(stream_id)
        if stream is not None and stream.ended:
            self._die(STREAM_CLOSED, b"DATA after END_STREAM")
            return
        self._recv_window -= length
        if stream is not None:
            stream.recv_window -= length
        if self._recv_window < 0 or (stream is not None and stream.recv_window < 0):
            self._die(FLOW_CONTROL_ERROR, b"window exceeded")
            return
        self._unacked += length
        if self._unacked * 2 >= self._limits.connection_window_bytes:
            self._emit_window_update(0, self._unacked)
            self._recv_window += self._unacked
            self._unacked = 0
        if stream is not None:
            stream.unacked += length
        if stream is None or (length == 0 and not flags & END_STREAM):
            self._charge(1)
        self._data_stream = stream
        self._data_ends = bool(flags & END_STREAM)
        self._pad_left = max(padding, 0)
        self._data_left = length - self._pad_left - (padding >= 0)
        if not self._data_left and not self._pad_left:
            self._end_data()

    def _end_data(self) -> None:
        stream, self._data_stream = self._data_stream, None
        if stream is None or stream.finished:
            return
        if self._data_ends:
            stream.ended = True
            if stream.sink is not None:
                stream.sink.on_end()
        elif not stream.paused:
            self._credit_stream(stream)

    def _credit_stream(self, stream: Stream) -> None:
        if stream.unacked * 2 >= self._limits.stream_window_bytes:
            self._emit_window_update(stream.id, stream.unacked)
            stream.recv_window += stream.unacked
            stream.unacked = 0

    def _take_frame(self, kind: int, flags: int, stream_id: int, payload: memoryview) -> None:
        if kind == HEADERS:
            self._on_headers(flags, stream_id, payload)
        elif kind == WINDOW_UPDATE:
            self._on_window_update(stream_id, payload)
        elif kind == CONTINUATION:
            self._on_continuation(flags, payload)
        elif kind == SETTINGS:
            self._on_settings(flags, stream_id, payload)
        elif kind == PING:
            self._on_ping(flags, stream_id, payload)
        elif kind == RST_STREAM:
            self._on_reset(stream_id, payload)
        elif kind == PRIORITY:
            if len(payload) != 5 or not stream_id:
                self._die(FRAME_SIZE_ERROR if stream_id else PROTOCOL_ERROR, b"bad PRIORITY")
            self._charge(1)
        elif kind == GOAWAY:
            if stream_id or len(payload) < 8:
                self._die(PROTOCOL_ERROR, b"bad GOAWAY")
            self._charge(1)
        else:
            self._die(PROTOCOL_ERROR, b"PUSH_PROMISE from a client")

    def _on_headers(self, flags: int, stream_id: int, payload: memoryview) -> None:
        if not stream_id & 1:
            self._die(PROTOCOL_ERROR, b"HEADERS on a bad stream")
            return
        start, end = 0, len(payload)
        if flags & PADDED:
            start = 1
            end -= payload[0] if end else 0
        if flags & PRIORITY_FLAG:
            start += 5
        if start > end or (flags & PADDED and not len(payload)):
            self._die(PROTOCOL_ERROR, b"padding longer than the frame")
            return
        if flags & END_HEADERS:
            self._on_block(stream_id, bytes(payload[start:end]), bool(flags & END_STREAM))
        else:
            self._block = bytearray(payload[start:end])
            self._block_stream = stream_id
            self._block_ends = bool(flags & END_STREAM)
            self._continuations = 0

    def _on_continuation(self, flags: int, payload: memoryview) -> None:
        if self._block is None:
            self._die(PROTOCOL_ERROR, b"CONTINUATION without HEADERS")
            return
        self._continuations += 1
        if self._continuations > self._limits.max_continuations:
            self._die(ENHANCE_YOUR_CALM, b"too many CONTINUATION frames")
            return
        self._block += payload
        if flags & END_HEADERS:
            block, self._block = bytes(self._block), None
            self._on_block(self._block_stream, block, self._block_ends)

    def _on_block(self, stream_id: int, block: bytes, ends: bool) -> None:
        try:
            if stream_id <= self._last_stream:
                self._decoder.decode_trailers(block)
                self._on_trailers(stream_id, ends)
                return
            headers = self._decoder.decode(block)
        except HeadersError as error:
            self._die(COMPRESSION_ERROR, str(error).encode()[:200])
            return
        self._last_stream = stream_id
        if headers is None or self.shutting_down or len(self.streams) >= self._limits.max_streams:
            self._emit_reset(stream_id, PROTOCOL_ERROR if headers is None else REFUSED_STREAM)
            self._charge(1)
            return
        stream = Stream(stream_id, self._limits.stream_window_bytes, self._peer_window)
        stream.ended = ends
        self.streams[stream_id] = stream
        sink = self._accept(stream, headers)
        if stream.finished:
            return
        stream.sink = sink
        if ends and sink is not None:
            sink.on_end()

    def _on_trailers(self, stream_id: int, ends: bool) -> None:
        stream = self.streams.get(stream_id)
        if stream is None:
            self._charge(1)  # the request was answered or reset before its end
        elif not ends or stream.ended:
            self._die(PROTOCOL_ERROR, b"HEADERS inside a request")
        else:
            stream.ended = True
            if stream.sink is not None:
                stream.sink.on_end()

    def _on_settings(self, flags: int, stream_id: int, payload: memoryview) -> None:
        if stream_id or len(payload) % 6 or (flags & ACK and len(payload)):
            self._die(PROTOCOL_ERROR if stream_id else FRAME_SIZE_ERROR, b"bad SETTINGS")
            return
        if flags & ACK:
            if not self.started:
                self._die(PROTOCOL_ERROR, b"SETTINGS must come first")
            return
        self.started = True
        self._charge(1)
        # only the last value of each counts: applying one may touch every stream
        for key, value in dict(SETTING.iter_unpack(payload)).items():
            self._apply_setting(key, value)
        if not self.closed:
            self.output.append(HEADER.pack(0, 0, SETTINGS, ACK, 0))
            if self.queued_bytes:
                self._pump_all()

    def _apply_setting(self, key: int, value: int) -> None:
        if key == SET_WINDOW:
            if value > MAX_WINDOW:
                self._die(FLOW_CONTROL_ERROR, b"window too large")
                return
            change = value - self._peer_window
            self._peer_window = value
            for stream in self.streams.values():
                stream.send_window += change
                if stream.queue and stream.send_window > 0:
                    self._waiting[stream.id] = stream
                if stream.send_window > MAX_WINDOW:
                    self._die(FLOW_CONTROL_ERROR, b"window too large")
                    return
        elif key == SET_FRAME_SIZE:
            if not MIN_FRAME_SIZE <= value <= MAX_FRAME_SIZE:
                self._die(PROTOCOL_ERROR, b"bad SETTINGS_MAX_FRAME_SIZE")
            self._peer_frame = value
        elif key == SET_ENABLE_PUSH:
            if value > 1:
                self._die(PROTOCOL_ERROR, b"bad SETTINGS_ENABLE_PUSH")
        elif key == SET_HEADER_TABLE_SIZE and value < 4096 and not self._shrunk_table:
            # We never fill the peer's table; RFC 7541 wants its new size said once, and zero fits every limit.
            self._shrunk_table = True
            self._block_prefix = b"\x20"

    def _on_ping(self, flags: int, stream_id: int, payload: memoryview) -> None:
        if stream_id or len(payload) != 8:
            self._die(PROTOCOL_ERROR if stream_id else FRAME_SIZE_ERROR, b"bad PING")
        elif flags & ACK:
            self._charge(1)
            if payload == _RETIRE_PING and self.retiring:
                self.shut_down()
        elif self._may_ping is not None and not self._may_ping():
            self._die(ENHANCE_YOUR_CALM, b"too_many_pings")
        else:
            self._charge(1)
            self.output.append(HEADER.pack(0, 8, PING, ACK, 0) + payload)

    def _emit_ping(self, payload: bytes) -> None:
        self.output.append(HEADER.pack(0, 8, PING, 0, 0) + payload)

    def _on_reset(self, stream_id: int, payload: memoryview) -> None:
        if len(payload) != 4 or not stream_id or stream_id > self._last_stream:
            self._die(FRAME_SIZE_ERROR if len(payload) != 4 else PROTOCOL_ERROR, b"bad RST_STREAM")
            return
        self._charge(1)
        stream = self.streams.get(stream_id)
        if stream is not None and not self.closed:
            sink = stream.sink
            self._forget(stream)
            if sink is not None:
                sink.on_reset(U32.unpack(payload)[0])

    def _on_window_update(self, stream_id: int, payload: memoryview) -> None:
        if len(payload) != 4 or stream_id > self._last_stream:
            self._die(FRAME_SIZE_ERROR if len(payload) != 4 else PROTOCOL_ERROR, b"bad WINDOW_UPDATE")
            return
        increment = U32.unpack(payload)[0] & MAX_WINDOW
        if not increment:
            self._die(PROTOCOL_ERROR, b"WINDOW_UPDATE of zero")
        elif stream_id == 0:
            self._widen(increment)
        else:
            stream = self.streams.get(stream_id)
            if stream is None:
                return
            stream.send_window += increment
            if stream.send_window > MAX_WINDOW:
                self._stream_error(stream, FLOW_CONTROL_ERROR)
                return
            self._pump_one(stream)

    def _widen(self, increment: int) -> None:
        if self._parked_window is not None:
            self._parked_window += increment
        else:
            self._send_window += increment
        if max(self._send_window, self._parked_window or 0) > MAX_WINDOW:
            self._die(FLOW_CONTROL_ERROR, b"window too large")
        elif self.queued_bytes:
            self._pump_all()

    def _stream_error(self, stream: Stream, code: int) -> None:
        sink = stream.sink
        self.reset(stream, code)
        if sink is not None:
            sink.on_reset(code)

    def _charge(self, cost: int) -> None:
        self._budget -= cost
        if self._budget < 0:
            self._die(ENHANCE_YOUR_CALM, b"too many control frames")

    def _die(self, code: int, reason: bytes) -> None:
        """End the connection because of the peer's error."""
        if not self.closed:
            self._goaway(code, reason)
            self._data_left = self._pad_left = self._skip_left = 0
            self._data_stream = None
            self.connection_lost()
