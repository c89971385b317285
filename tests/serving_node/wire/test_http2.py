"""The HTTP/2 state machine against a client whose frames are made by hand, so that wrong ones can be sent too."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import pytest
from hpack import Decoder, Encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_node.wire.http2 import Http2Connection, Http2Limits, RequestHeaders, Stream, encode_headers
from serving_node.wire.http2.frames import PREFACE
from serving_node.wire.http2.headers import HeaderDecoder, HeadersError, validate_request

HEAD = encode_headers([(b":status", b"200"), (b"content-type", b"application/grpc")])
TRAILERS = encode_headers([(b"grpc-status", b"0")])
REQUEST = [(":method", "POST"), (":scheme", "http"), (":path", "/a/b"), (":authority", "x"), ("te", "trailers")]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def settings_frame(**values: int) -> bytes:
    keys = {"table": 1, "push": 2, "window": 4, "frame": 5}
    return frame(4, 0, 0, b"".join(struct.pack(">HI", keys[key], value) for key, value in values.items()))


def parse_frames(data: bytes) -> list[tuple[int, int, int, bytes]]:
    frames = []
    while data:
        length = int.from_bytes(data[:3], "big")
        frames.append((data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + length]))
        assert len(data) >= 9 + length
        data = data[9 + length :]
    return frames


@dataclass
class RecordingSink:
    events: list[tuple[object, ...]]
    stream: Stream
    memory: memoryview | None = None
    body: bytearray = field(default_factory=bytearray)
    filled: int = 0

    def on_data(self, chunk: memoryview) -> None:
        self.body += chunk

    def on_end(self) -> None:
        self.events.append(("end", self.stream.id, bytes(self.body)))

    def on_reset(self, code: int) -> None:
        self.events.append(("reset", self.stream.id, code))

    def target(self) -> memoryview | None:
        return None if self.memory is None else self.memory[self.filled :]

    def received(self, count: int) -> None:
        assert self.memory is not None
        self.body += self.memory[self.filled : self.filled + count]
        self.filled += count


class Peer:
    """A server connection and the client's side of its bytes."""

    def __init__(self, limits: Http2Limits | None = None) -> None:
        self.events: list[tuple[object, ...]] = []
        self.sinks: dict[int, RecordingSink] = {}
        self.encoder = Encoder()
        self.connection = Http2Connection(self.accept, limits or Http2Limits())

    def accept(self, stream: Stream, headers: RequestHeaders) -> RecordingSink:
        self.events.append(("request", stream.id, headers.path, tuple(sorted(headers.fields.items()))))
        self.sinks[stream.id] = RecordingSink(self.events, stream)
        return self.sinks[stream.id]

    def start(self, **settings: int) -> Peer:
        self.send(PREFACE + settings_frame(**settings))
        self.take()
        return self

    def send(self, data: bytes) -> None:
        self.connection.receive(memoryview(data))

    def request(self, stream: int, body: bytes = b"", *, end: bool = True) -> bytes:
        block = self.encoder.encode(REQUEST)
        if not body and end:
            return frame(1, 0x5, stream, block)
        data = frame(0, 1 if end else 0, stream, body) if body or end else b""
        return frame(1, 0x4, stream, block) + data

    def take(self) -> list[tuple[int, int, int, bytes]]:
        data = b"".join(bytes(part) for part in self.connection.output)
        self.connection.output.clear()
        return parse_frames(data)

    def goaway(self) -> tuple[int, bytes] | None:
        for kind, _, _, payload in self.take():
            if kind == 7:
                return int.from_bytes(payload[4:8], "big"), payload[8:]
        return None


def headers_of(payload: bytes) -> list[tuple[str, str]]:
    return [(str(name), str(value)) for name, value in Decoder().decode(payload)]


def answer(peer: Peer, stream: int, body: bytes) -> None:
    peer.connection.respond(peer.sinks[stream].stream, HEAD, [body], len(body), TRAILERS)


def data_of(frames: list[tuple[int, int, int, bytes]], stream: int) -> bytes:
    return b"".join(payload for kind, _, sid, payload in frames if kind == 0 and sid == stream)


def test_request_and_answer() -> None:
    peer = Peer().start()
    peer.send(peer.request(1, b"hello"))
    assert peer.events == [("request", 1, b"/a/b", ((b"te", b"trailers"),)), ("end", 1, b"hello")]
    answer(peer, 1, b"world")
    frames = peer.take()
    assert [(kind, flags, sid) for kind, flags, sid, _ in frames] == [(1, 4, 1), (0, 0, 1), (1, 5, 1)]
    assert headers_of(frames[0][3]) == [(":status", "200"), ("content-type", "application/grpc")]
    assert frames[1][3] == b"world"
    assert headers_of(frames[2][3]) == [("grpc-status", "0")]
    assert peer.connection.streams == {}


def test_settings_and_pings_are_acknowledged() -> None:
    peer = Peer()
    peer.send(PREFACE + settings_frame(window=100))
    peer.send(frame(6, 0, 0, b"12345678") + frame(6, 1, 0, b"87654321"))
    frames = peer.take()
    assert (4, 1, 0, b"") in frames
    assert (6, 1, 0, b"12345678") in frames
    assert not any(payload == b"87654321" for *_, payload in frames)


def test_small_table_of_the_peer_is_acknowledged_by_a_size_update() -> None:
    peer = Peer().start(table=0)
    peer.send(peer.request(1) + peer.request(3))
    answer(peer, 1, b"x")
    answer(peer, 3, b"x")
    blocks = [payload for kind, flags, _, payload in peer.take() if kind == 1 and flags == 4]
    assert blocks == [b"\x20" + HEAD, HEAD]


def test_answer_waits_for_windows_and_respects_the_frame_size() -> None:
    peer = Peer().start(window=10)
    peer.send(peer.request(1))
    body = bytes(range(256)) * 400
    answer(peer, 1, body)
    frames = peer.take()
    assert data_of(frames, 1) == body[:10]
    peer.send(frame(8, 0, 1, struct.pack(">I", 200000)))
    frames += peer.take()
    assert len(data_of(frames, 1)) == 65535
    peer.send(frame(8, 0, 0, struct.pack(">I", 200000)))
    frames += peer.take()
    assert data_of(frames, 1) == body
    assert max(len(payload) for *_, payload in frames) <= 16384
    assert frames[-1][:3] == (1, 5, 1)
    assert peer.connection.queued_bytes == 0


def test_shrinking_the_window_setting_may_make_windows_negative() -> None:
    peer = Peer().start(window=100)
    peer.send(peer.request(1))
    answer(peer, 1, bytes(150))
    assert len(data_of(peer.take(), 1)) == 100
    peer.send(settings_frame(window=20))
    peer.send(frame(8, 0, 1, struct.pack(">I", 90)))
    assert len(data_of(peer.take(), 1)) == 10
    peer.send(settings_frame(window=100))
    assert len(data_of(peer.take(), 1)) == 40


def test_waiting_streams_share_the_connection_window() -> None:
    peer = Peer().start(window=1 << 20)
    for stream in (1, 3, 5):
        peer.send(peer.request(stream))
        answer(peer, stream, bytes(100_000))
    peer.take()
    peer.send(frame(8, 0, 0, struct.pack(">I", 16384 * 3)))
    frames = peer.take()
    assert {sid: len(data_of(frames, sid)) for sid in (1, 3, 5)} == {1: 16384, 3: 16384, 5: 16384}


def test_reset_stream_is_told_and_its_answer_dropped() -> None:
    peer = Peer().start(window=0)
    peer.send(peer.request(1))
    answer(peer, 1, b"held back")
    peer.send(frame(3, 0, 1, struct.pack(">I", 8)))
    assert peer.events[-1] == ("reset", 1, 8)
    assert peer.connection.queued_bytes == 0
    answer(peer, 1, b"too late")
    peer.send(frame(8, 0, 0, struct.pack(">I", 100)))
    assert data_of(peer.take(), 1) == b""


def test_early_answer_resets_the_rest_of_the_request() -> None:
    peer = Peer().start()
    peer.send(peer.request(1, b"part", end=False))
    answer(peer, 1, b"no")
    assert peer.take()[-1] == (3, 0, 1, struct.pack(">I", 0))
    peer.send(frame(0, 1, 1, b"rest"))
    assert peer.goaway() is None


def test_windows_are_refilled_as_data_is_taken() -> None:
    peer = Peer(Http2Limits(stream_window_bytes=1000, connection_window_bytes=70000)).start()
    peer.send(peer.request(1, bytes(600), end=False))
    assert peer.take() == [(8, 0, 1, struct.pack(">I", 600))]
    peer.connection.pause(peer.sinks[1].stream)
    peer.send(frame(0, 0, 1, bytes(600)))
    assert peer.take() == []
    peer.connection.resume(peer.sinks[1].stream)
    assert peer.take() == [(8, 0, 1, struct.pack(">I", 600))]


def test_padding_counts_for_flow_control_but_is_not_data() -> None:
    peer = Peer(Http2Limits(stream_window_bytes=100)).start()
    peer.send(peer.request(1, end=False) + frame(0, 0x8, 1, bytes([50]) + b"data" + bytes(50)))
    assert bytes(peer.sinks[1].body) == b"data"
    assert peer.take() == [(8, 0, 1, struct.pack(">I", 55))]


def test_large_data_is_received_into_the_sink_s_memory() -> None:
    peer = Peer().start()
    peer.send(peer.request(1, end=False))
    sink = peer.sinks[1]
    sink.memory = memoryview(bytearray(100_000))
    assert peer.connection.target() is None
    body = bytes(range(250)) * 400
    whole = frame(0, 1, 1, body)
    peer.send(whole[: 9 + 1000])
    rest = body[1000:]
    while rest:
        target = peer.connection.target()
        if target is None:
            peer.send(rest)
            break
        count = min(len(target), 30_000, len(rest))
        target[:count] = rest[:count]
        peer.connection.received(count)
        rest = rest[count:]
    assert peer.events[-1] == ("end", 1, body)


def test_trailers_of_the_request_end_it() -> None:
    peer = Peer().start()
    peer.send(peer.request(1, b"x", end=False) + frame(1, 0x5, 1, peer.encoder.encode([("a", "b")])))
    assert peer.events[-1] == ("end", 1, b"x")


def test_continuation_frames_are_joined() -> None:
    peer = Peer().start()
    block = peer.encoder.encode(REQUEST)
    peer.send(frame(1, 1, 1, block[:3]) + frame(9, 0, 1, block[3:5]) + frame(9, 4, 1, block[5:]))
    assert [event[0] for event in peer.events] == ["request", "end"]


def test_streams_over_the_limit_are_refused() -> None:
    peer = Peer(Http2Limits(max_streams=1)).start()
    peer.send(peer.request(1) + peer.request(3))
    assert peer.take() == [(3, 0, 3, struct.pack(">I", 7))]
    answer(peer, 1, b"")
    peer.send(peer.request(5))
    assert 5 in peer.sinks


def test_shut_down_refuses_new_streams_and_lets_old_ones_end() -> None:
    peer = Peer().start()
    peer.send(peer.request(1, end=False))
    peer.connection.shut_down()
    assert peer.take() == [(7, 0, 0, struct.pack(">II", 1, 0))]
    peer.send(peer.request(3, b"x") + frame(0, 1, 1, b"y"))
    assert peer.take() == [(3, 0, 3, struct.pack(">I", 7))]
    assert peer.events[-1] == ("end", 1, b"y")


def test_lost_connection_resets_every_stream_once() -> None:
    peer = Peer().start()
    peer.send(peer.request(1) + peer.request(3))
    peer.connection.connection_lost()
    peer.connection.connection_lost()
    assert [event for event in peer.events if event[0] == "reset"] == [("reset", 1, 8), ("reset", 3, 8)]


START = PREFACE + settings_frame()
OPEN = frame(1, 4, 1, encode_headers([(k.encode(), v.encode()) for k, v in REQUEST]))
ENDED = frame(1, 5, 1, encode_headers([(k.encode(), v.encode()) for k, v in REQUEST]))


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 1),
        (PREFACE + frame(6, 0, 0, bytes(8)), 1),
        (PREFACE + frame(4, 1, 0), 1),
        (START + frame(4, 0, 0, bytes(5)), 6),
        (START + frame(4, 0, 1), 1),
        (START + frame(4, 1, 0, bytes(6)), 6),
        (START + settings_frame(window=1 << 31), 3),
        (START + settings_frame(frame=100), 1),
        (START + settings_frame(push=2), 1),
        (START + frame(6, 0, 0, bytes(7)), 6),
        (START + frame(6, 0, 1, bytes(8)), 1),
        (START + frame(3, 0, 1, bytes(4)), 1),
        (START + frame(3, 0, 1, bytes(3)), 6),
        (START + frame(8, 0, 0, bytes(4)), 1),
        (START + frame(8, 0, 1, bytes(3) + b"x"), 1),
        (START + frame(8, 0, 0, b"\x7f\xff\xff\xff"), 3),
        (START + frame(0, 0, 1, b"x"), 1),
        (START + frame(0, 0, 0, b"x"), 1),
        (START + OPEN + frame(0, 8, 1, b"\x05abcd"), 1),
        (START + OPEN + frame(0, 8, 1, b"") + b"x", 1),
        (START + ENDED + frame(0, 0, 1, b"x"), 5),
        (START + OPEN + frame(1, 4, 1, b""), 1),
        (START + frame(1, 5, 2, b"\x82"), 1),
        (START + frame(1, 0, 1, b"\x82") + frame(0, 0, 1, b""), 1),
        (START + frame(1, 0, 1, b"\x82") + frame(9, 4, 3, b""), 1),
        (START + frame(9, 4, 1, b""), 1),
        (START + frame(1, 5, 1, b"\xff\xff\xff\xff\xff\xff\xff"), 9),
        (START + frame(1, 5, 1, b"\x40"), 9),
        (START + frame(1, 0xD, 1, b"\x09a"), 1),
        (START + frame(5, 4, 1, bytes(4)), 1),
        (START + frame(7, 0, 0, bytes(7)), 1),
        (START + frame(2, 0, 1, bytes(4)), 6),
        (START + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01", 1),
        (START + b"\x01\x00\x00\x06\x00\x00\x00\x00\x00", 6),
        (START + b"\x02\x00\x00\x01\x04\x00\x00\x00\x01", 11),
    ],
)
def test_protocol_errors_end_the_connection(data: bytes, code: int) -> None:
    peer = Peer()
    peer.send(data)
    goaway = peer.goaway()
    assert goaway is not None
    assert goaway[0] == code
    assert peer.connection.closed
    peer.send(frame(6, 0, 0, bytes(8)))
    assert peer.take() == []


@pytest.mark.parametrize(
    "flood",
    [
        frame(6, 0, 0, bytes(8)),
        frame(4, 0, 0),
        frame(2, 0, 1, bytes(5)),
        frame(0, 0, 1, b""),
        frame(0x77, 0, 0, b""),
        frame(3, 0, 1, bytes(4)),
    ],
)
def test_floods_of_cheap_frames_end_the_connection(flood: bytes) -> None:
    peer = Peer(Http2Limits(control_burst=50, control_per_refill=10)).start()
    peer.send(peer.request(1, end=False) + flood * 40)
    assert not peer.connection.closed
    peer.connection.refill()
    peer.send(flood * 20)
    goaway = peer.goaway()
    assert goaway == (11, b"too many control frames")


def test_rapid_reset_ends_the_connection() -> None:
    peer = Peer(Http2Limits(control_burst=50)).start()
    for stream in range(1, 201, 2):
        peer.send(peer.request(stream) + frame(3, 0, stream, struct.pack(">I", 8)))
    assert peer.connection.closed
    assert len(peer.sinks) < 60


def test_resets_of_a_client_that_also_finishes_requests_are_allowed() -> None:
    peer = Peer(Http2Limits(control_burst=50)).start()
    for stream in range(1, 801, 4):
        peer.send(peer.request(stream) + frame(3, 0, stream, struct.pack(">I", 8)))
        peer.send(peer.request(stream + 2))
        answer(peer, stream + 2, b"")
        peer.take()
    assert not peer.connection.closed


@pytest.mark.parametrize("piece", [1, 2000])
def test_endless_header_blocks_end_the_connection(piece: int) -> None:
    peer = Peer().start()
    peer.send(frame(1, 0, 1, b"\x82"))
    for _ in range(50):
        peer.send(frame(9, 0, 1, b"\x00" * piece))
    goaway = peer.goaway()
    assert goaway is not None
    assert goaway[0] == 11


def test_windows_may_not_be_exceeded() -> None:
    peer = Peer(Http2Limits(stream_window_bytes=100)).start()
    peer.send(peer.request(1, bytes(101), end=False))
    goaway = peer.goaway()
    assert goaway is not None
    assert goaway[0] == 3


@pytest.mark.parametrize(
    "headers",
    [
        [(":method", "POST"), (":path", "/")],
        [(":method", "POST"), (":scheme", "http"), (":path", "")],
        [(":method", "POST"), (":method", "POST"), (":scheme", "http"), (":path", "/")],
        [*REQUEST, (":path", "/")],
        [*REQUEST, (":status", "200")],
        [*REQUEST, ("Upper", "x")],
        [*REQUEST, ("connection", "close")],
        [*REQUEST, ("te", "gzip")],
        [*REQUEST, ("x", "a\r\nb: c")],
    ],
)
def test_malformed_requests_are_reset_and_the_connection_lives(headers: list[tuple[str, str]]) -> None:
    peer = Peer().start()
    peer.send(frame(1, 5, 1, peer.encoder.encode(headers)))
    assert peer.take() == [(3, 0, 1, struct.pack(">I", 1))]
    peer.send(peer.request(3))
    assert 3 in peer.sinks


@pytest.mark.fuzz
@given(
    plan=st.lists(st.tuples(st.integers(0, 40000), st.booleans()), min_size=1, max_size=5),
    cuts=st.lists(st.integers(1, 20000), max_size=30),
)
def test_any_split_of_the_bytes_gives_the_same_events(plan: list[tuple[int, bool]], cuts: list[int]) -> None:
    whole, split, client = Peer().start(), Peer().start(), Peer()
    data = b""
    for index, (size, interleave) in enumerate(plan):
        data += client.request(2 * index + 1, bytes([index]) * size)
        if interleave:
            data += frame(6, 0, 0, bytes(8)) + settings_frame(window=size) + frame(0x55, 0, 9, bytes(size % 300))
    whole.send(data)
    for cut in cuts:
        split.send(data[:cut])
        data = data[cut:]
    split.send(data)
    assert split.events == whole.events
    assert len(whole.events) == 2 * len(plan)
    assert split.take() == whole.take()


@pytest.mark.fuzz
@given(st.binary(max_size=400), st.integers(1, 100))
def test_garbage_never_raises(data: bytes, cut: int) -> None:
    peer = Peer().start()
    while data:
        peer.send(data[:cut])
        data = data[cut:]
    peer.take()


FRAMES = st.builds(
    frame,
    st.integers(0, 10),
    st.sampled_from([0, 1, 4, 5, 8, 9, 0xD, 0x20, 0x25, 0x2D]),
    st.sampled_from([0, 1, 2, 3, 5, 7]),
    st.one_of(st.binary(max_size=40), st.just(ENDED[9:]), st.just(b"\x00\x00\x00\x64")),
)


@pytest.mark.fuzz
@given(st.lists(FRAMES, max_size=40), st.booleans())
def test_random_frames_never_raise_and_keep_the_books(frames: list[bytes], respond: bool) -> None:
    peer = Peer(Http2Limits(max_streams=2)).start()
    for data in frames:
        peer.send(data)
        if respond:
            for sink in list(peer.sinks.values()):
                peer.connection.respond(sink.stream, HEAD, [b"12", b"345"], 5, TRAILERS)
        connection = peer.connection
        assert connection.queued_bytes == sum(stream.queued for stream in connection.streams.values())
        assert len(connection.streams) <= 2
    for _, _, _, payload in peer.take():
        assert len(payload) <= 16384
    ends = [event[1] for event in peer.events if event[0] in ("end", "reset")]
    assert len(ends) <= 2 * len(peer.sinks)


@pytest.mark.fuzz
@given(st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["1", "22"])), max_size=5), max_size=8))
def test_decoder_memo_changes_nothing(blocks: list[list[tuple[str, str]]]) -> None:
    encoder, memo = Encoder(), HeaderDecoder(10_000)
    for pairs in blocks:
        expected = validate_request([(k.encode(), v.encode()) for k, v in [*REQUEST, *pairs]])
        got = memo.decode(encoder.encode([*REQUEST, *pairs]))
        assert expected is not None
        assert got is not None
        assert (got.path, got.fields) == (expected.path, expected.fields)


def test_decoder_memo_is_dropped_when_the_table_changes() -> None:
    decoder = HeaderDecoder(10_000)
    base = encode_headers([(k.encode(), v.encode()) for k, v in REQUEST])
    decoder.decode_trailers(b"\x40\x01a\x011")
    first = decoder.decode(base + b"\xbe")
    assert first is decoder.decode(base + b"\xbe")
    decoder.decode_trailers(b"\x40\x01b\x012")
    second = decoder.decode(base + b"\xbe")
    assert first is not None
    assert second is not None
    assert first.fields[b"a"] == b"1"
    assert second.fields[b"b"] == b"2"


def test_decoder_memo_is_dropped_when_the_table_is_emptied() -> None:
    decoder = HeaderDecoder(10_000)
    base = encode_headers([(k.encode(), v.encode()) for k, v in REQUEST])
    decoder.decode_trailers(b"\x40\x01a\x011")
    decoder.decode(base + b"\xbe")
    decoder.decode_trailers(b"\x20\x3f\xe1\x1f")
    with pytest.raises(HeadersError):
        decoder.decode(base + b"\xbe")


def test_header_list_far_over_the_limit_is_refused() -> None:
    decoder = HeaderDecoder(500)
    with pytest.raises(HeadersError):
        decoder.decode(encode_headers([(b"a", b"x" * 300), (b"b", b"x" * 4000)]))


def test_the_size_of_a_header_list_is_known() -> None:
    pairs = [(key.encode(), value.encode()) for key, value in REQUEST] + [(b"a", b"x" * 300)]
    headers = HeaderDecoder(500).decode(encode_headers(pairs))
    assert headers is not None
    assert headers.list_bytes == sum(len(name) + len(value) + 32 for name, value in pairs)


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=300), st.binary(max_size=300)), max_size=6))
@settings(max_examples=100, deadline=None)
def test_encoded_headers_are_decoded_by_hpack(pairs: list[tuple[bytes, bytes]]) -> None:
    assert [tuple(pair) for pair in Decoder().decode(encode_headers(pairs), raw=True)] == pairs
