"""The HTTP/2 connection under any sequence of what a client and a server may do, checked by a model of the windows."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from serving_node.wire.http2 import Http2Limits

from .test_http2 import HEAD, TRAILERS, Peer, RecordingSink, frame, settings_frame

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
MAX_WINDOW = 2**31 - 1
STREAMS = 4


class Http2Machine(RuleBasedStateMachine):
    """A client that keeps the rules, except where ``misbehave`` says so, and a server that answers as it likes."""

    def __init__(self) -> None:
        super().__init__()
        limits = Http2Limits(max_streams=STREAMS, stream_window_bytes=50_000, connection_window_bytes=100_000)
        self.peer = Peer(limits)
        self.window, self.initial, self.largest = 65535, 65535, 16384
        self.windows: dict[int, int] = {}  # what the server may send on each stream
        self.credit: dict[int, int] = {}  # what the client may send
        self.connection_credit = 100_000
        self.next_stream = 1
        self.open: list[int] = []  # streams whose request is not complete
        self.unanswered: dict[int, RecordingSink] = {}
        self.begun: set[int] = set()
        self.expected: dict[int, bytes] = {}
        self.got: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.dead: set[int] = set()  # reset by one side, or answered

    @initialize(window=st.integers(0, 200_000))
    def start(self, window: int) -> None:
        self.peer.start(window=window)
        self.initial = window

    @property
    def alive(self) -> bool:
        return not self.peer.connection.closed

    # -- the client

    @precondition(lambda self: self.alive and len(self.windows) - len(self.dead) < STREAMS + 1)
    @rule(body=st.binary(max_size=300), end=st.booleans())
    def request(self, body: bytes, end: bool) -> None:
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        self.windows[stream] = self.initial
        self.credit[stream] = 50_000
        size = len(body)
        if size > self.connection_credit:
            body, size = b"", 0
        self.connection_credit -= size
        self.credit[stream] -= size
        self.peer.send(self.peer.request(stream, body, end=end))
        if stream in self.peer.sinks:
            self.unanswered[stream] = self.peer.sinks[stream]
            self.expected[stream] = self.got[stream] = b""
            if not end:
                self.open.append(stream)
        else:
            self.dead.add(stream)

    @precondition(lambda self: self.alive and self.open)
    @rule(data=st.data(), size=st.integers(0, 30_000), end=st.booleans())
    def body(self, data: Any, size: int, end: bool) -> None:
        stream = data.draw(st.sampled_from(self.open))
        size = min(size, self.credit[stream], self.connection_credit)
        self.credit[stream] -= size
        self.connection_credit -= size
        self.peer.send(frame(DATA, int(end), stream, bytes(size)))
        if end:
            self.open.remove(stream)

    @precondition(lambda self: self.alive and self.windows)
    @rule(data=st.data())
    def reset(self, data: Any) -> None:
        stream = data.draw(st.sampled_from(sorted(self.windows)))
        self.peer.send(frame(RST_STREAM, 0, stream, struct.pack(">I", 8)))
        self.forget(stream)

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), increment=st.integers(1, 100_000))
    def widen(self, data: Any, increment: int) -> None:
        stream = data.draw(st.sampled_from([0, *sorted(set(self.windows) - self.dead)]))
        if stream:
            self.windows[stream] += increment
        else:
            self.window += increment
        self.peer.send(frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", increment)))

    @precondition(lambda self: self.alive)
    @rule(window=st.integers(0, 200_000), largest=st.integers(16384, 40_000))
    def change_settings(self, window: int, largest: int) -> None:
        for stream in self.windows:
            self.windows[stream] += window - self.initial
        self.initial, self.largest = window, largest
        self.peer.send(settings_frame(window=window, frame=largest))

    @precondition(lambda self: self.alive)
    @rule()
    def ping(self) -> None:
        self.peer.send(frame(PING, 0, 0, b"12345678"))
        assert not self.alive or any(bytes(part).endswith(b"12345678") for part in self.peer.connection.output)

    @rule(kind=st.integers(0, 11), flags=st.integers(0, 255), stream=st.integers(0, 12), payload=st.binary(max_size=40))
    def misbehave(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        # most of this ends the connection; a SETTINGS or WINDOW_UPDATE that does not would need no model of its own
        if kind not in (SETTINGS, WINDOW_UPDATE, RST_STREAM, DATA, HEADERS, 9):
            self.peer.send(frame(kind, flags, stream, payload))

    # -- the server

    @precondition(lambda self: self.unanswered)
    @rule(data=st.data(), size=st.integers(0, 120_000))
    def respond(self, data: Any, size: int) -> None:
        stream = data.draw(st.sampled_from(sorted(self.unanswered)))
        sink = self.unanswered.pop(stream)
        content = bytes([stream % 256]) * size
        self.note_answer(stream, content)
        connection = self.peer.connection
        if stream in self.begun:
            connection.send_data(sink.stream, [content], size)
            connection.end(sink.stream, TRAILERS)
        else:
            connection.respond(sink.stream, HEAD, [content[: size // 2], content[size // 2 :]], size, TRAILERS)

    @precondition(lambda self: self.unanswered)
    @rule(data=st.data(), size=st.integers(0, 50_000))
    def send(self, data: Any, size: int) -> None:
        stream = data.draw(st.sampled_from(sorted(self.unanswered)))
        sink = self.unanswered[stream]
        if stream not in self.begun:
            self.begun.add(stream)
            self.peer.connection.send_headers(sink.stream, HEAD)
        content = bytes([size % 256]) * size
        self.note_answer(stream, content)
        self.peer.connection.send_data(sink.stream, [content], size)

    @rule()
    def block(self) -> None:
        self.peer.connection.block()

    @rule()
    def unblock(self) -> None:
        self.peer.connection.unblock()

    @rule()
    def refill(self) -> None:
        self.peer.connection.refill()

    @rule()
    def retire(self) -> None:
        self.peer.connection.retire(b"old")

    @precondition(lambda self: self.windows)
    @rule(data=st.data())
    def pause_and_resume(self, data: Any) -> None:
        stream = data.draw(st.sampled_from(sorted(self.windows)))
        if stream in self.peer.sinks:
            self.peer.connection.pause(self.peer.sinks[stream].stream)
            self.peer.connection.resume(self.peer.sinks[stream].stream)

    # -- what must hold

    def note_answer(self, stream: int, content: bytes) -> None:
        if not self.peer.sinks[stream].stream.finished:
            self.expected[stream] += content

    def forget(self, stream: int) -> None:
        self.dead.add(stream)
        self.unanswered.pop(stream, None)
        self.expected.pop(stream, None)
        if stream in self.open:
            self.open.remove(stream)

    @invariant()
    def frames_keep_the_rules(self) -> None:
        for kind, flags, stream, payload in self.peer.take():
            assert len(payload) <= self.largest or kind != DATA
            if kind == DATA:
                self.windows[stream] -= len(payload)
                self.window -= len(payload)
                assert self.windows[stream] >= 0 or not payload
                assert self.window >= 0
                if stream in self.expected:
                    self.got[stream] += payload
                    assert self.expected[stream].startswith(self.got[stream])
            elif kind == RST_STREAM:
                # the answer came before the end of the request, or the request was refused
                assert stream not in self.expected or self.got[stream] == self.expected[stream]
                self.forget(stream)
            elif kind == WINDOW_UPDATE:
                increment = int.from_bytes(payload, "big")
                if stream:
                    self.credit[stream] += increment
                    assert self.credit[stream] <= 50_000
                else:
                    self.connection_credit += increment
                    assert self.connection_credit <= 100_000
            elif kind == HEADERS and flags & 1:
                assert stream not in self.expected or self.got[stream] == self.expected[stream]
                self.ended.add(stream)
                self.dead.add(stream)
                if stream in self.open:
                    self.open.remove(stream)
            elif kind == PING and not flags & 1:
                self.peer.send(frame(PING, 1, 0, payload))

    @invariant()
    def the_books_are_kept(self) -> None:
        connection = self.peer.connection
        assert connection.queued_bytes == sum(stream.queued for stream in connection.streams.values())
        assert len(connection.streams) <= STREAMS
        if not self.alive:
            assert not connection.streams

    def teardown(self) -> None:
        """With windows wide open every answer arrives whole."""
        if not self.alive:
            return
        for stream in list(self.unanswered):
            sink = self.unanswered.pop(stream)
            if stream not in self.begun:
                self.peer.connection.send_headers(sink.stream, HEAD)
            self.peer.connection.end(sink.stream, TRAILERS)
        self.peer.connection.unblock()
        for _ in range(3):
            self.frames_keep_the_rules()
            for stream in [0, *sorted(set(self.windows) - self.dead)]:
                if stream:
                    self.windows[stream] += 2_000_000
                else:
                    self.window += 20_000_000
                increment = 2_000_000 if stream else 20_000_000
                self.peer.send(frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", increment)))
        self.frames_keep_the_rules()
        if self.alive:
            for stream, content in self.expected.items():
                assert self.got[stream] == content


TestHttp2Machine = pytest.mark.fuzz(Http2Machine.TestCase)
