"""gRPC framing without sockets."""

from __future__ import annotations

import gzip
import struct
import zlib
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_node.wire.grpc import GrpcCall, GrpcError, GrpcStatus, decompress, encode_status_text, parse_timeout
from serving_node.wire.http2 import Http2Connection, Http2Limits, Stream


@dataclass
class Owner:
    http2: Http2Connection = field(default_factory=lambda: Http2Connection(lambda stream, headers: None, Http2Limits()))
    max_message_bytes: int = 100_000

    def flush(self) -> None:
        self.http2.output.clear()


def framed(message: bytes, flag: int = 0) -> bytes:
    return struct.pack(">BI", flag, len(message)) + message


def make_call(streaming: bool) -> tuple[GrpcCall, list[tuple[bytes, bool]]]:
    messages: list[tuple[bytes, bool]] = []
    call = GrpcCall(
        Owner(),
        Stream(1, 100, 100),
        lambda _, message, compressed: messages.append((bytes(message), compressed)),
        streaming=streaming,
        metadata={},
    )
    return call, messages


def feed(call: GrpcCall, data: bytes, cuts: list[int]) -> None:
    """Deliver data in pieces, into the call's own memory where it offers that, as a connection does."""
    for cut in [*cuts, len(data) or 1]:
        piece, data = data[:cut], data[cut:]
        target = call.target()
        if target is not None and len(piece) % 2:
            count = min(len(target), len(piece))
            target[:count] = piece[:count]
            call.received(count)
            piece = piece[count:]
        if piece:
            call.on_data(memoryview(piece))


@pytest.mark.fuzz
@given(
    messages=st.lists(st.tuples(st.binary(max_size=3000), st.booleans()), max_size=6),
    cuts=st.lists(st.integers(1, 2000), max_size=20),
)
def test_any_split_of_a_stream_gives_its_messages(messages: list[tuple[bytes, bool]], cuts: list[int]) -> None:
    call, got = make_call(streaming=True)
    ended: list[bool] = []
    call.on_half_close = lambda: ended.append(True)
    feed(call, b"".join(framed(message, int(flag)) for message, flag in messages), cuts)
    call.on_end()
    assert got == messages
    assert ended == [True]


@given(message=st.binary(max_size=3000), cuts=st.lists(st.integers(1, 2000), max_size=20))
@settings(max_examples=100, deadline=None)
def test_unary_message_is_given_after_the_half_close(message: bytes, cuts: list[int]) -> None:
    call, got = make_call(streaming=False)
    feed(call, framed(message), cuts)
    assert got == []
    call.on_end()
    assert got == [(message, False)]


@pytest.mark.fuzz
@given(data=st.binary(max_size=200), cuts=st.lists(st.integers(1, 50), max_size=10), streaming=st.booleans())
def test_garbage_never_raises(data: bytes, cuts: list[int], streaming: bool) -> None:
    call, _ = make_call(streaming)
    feed(call, data, cuts)
    call.on_end()


@pytest.mark.parametrize(
    ("data", "streaming"),
    [
        (b"", False),
        (framed(b"abc")[:-1], False),
        (framed(b"abc")[:-1], True),
        (b"\0\0", True),
        (framed(b"abc", 2), True),
        (b"\2" + bytes(4) + b"x", True),
        (framed(bytes(100_001)), True),
        (framed(bytes(100_001))[:50], False),
    ],
)
def test_bad_framing_ends_the_call(data: bytes, streaming: bool) -> None:
    call, got = make_call(streaming)
    feed(call, data, [])
    call.on_end()
    assert call.done
    assert got == []


def test_a_unary_call_takes_the_first_message() -> None:
    call, got = make_call(streaming=False)
    feed(call, framed(b"a") + framed(b"b") + framed(bytes(100_001)), [7])
    call.on_end()
    assert got == [(b"a", False)]


def test_what_is_held_comes_after_the_release() -> None:
    call, got = make_call(streaming=True)
    ended: list[bool] = []
    call.on_half_close = lambda: ended.append(True)
    call.hold()
    call.hold()
    feed(call, framed(b"a") + framed(b"b", 1), [])
    call.on_end()
    call.release()
    assert (got, ended) == ([], [])
    call.release()
    assert (got, ended) == ([(b"a", False), (b"b", True)], [True])


def test_a_message_that_holds_keeps_the_rest() -> None:
    call, got = make_call(streaming=True)
    take = call.on_message

    def take_and_hold(of: GrpcCall, message: bytes | memoryview, compressed: bool) -> None:
        take(of, message, compressed)
        of.hold()

    call.on_message = take_and_hold
    call.hold()
    feed(call, framed(b"a") + framed(b"b"), [])
    for expected in ([], [b"a"], [b"a", b"b"]):
        assert [message for message, _ in got] == expected
        call.release()


def test_reset_and_expiry_cancel_once() -> None:
    for end in (lambda call: call.on_reset(8), GrpcCall.expire):
        call, _ = make_call(streaming=False)
        cancelled: list[bool] = []
        call.on_cancel = lambda seen=cancelled: seen.append(True)  # type: ignore[misc]
        end(call)
        call.on_reset(8)
        call.expire()
        assert cancelled == [True]
        assert call.done


def test_slow_unary_requests_are_found() -> None:
    call, _ = make_call(streaming=False)
    call.since = 100.0
    assert not call.is_slow(159.0, 60.0, 1000)
    assert call.is_slow(161.0, 60.0, 1000)
    feed(call, framed(bytes(9000))[:5005], [])
    assert not call.is_slow(164.0, 60.0, 1000)
    assert call.is_slow(166.0, 60.0, 1000)


@pytest.mark.parametrize(
    ("header", "nanoseconds"),
    [
        (b"1H", 3_600_000_000_000),
        (b"99999999n", 99_999_999),
        (b"20m", 20_000_000),
        (b"0S", 0),
        (b"123456789n", None),
        (b"5", None),
        (b"S", None),
        (b"-1S", None),
        (b"1S\n", None),
    ],
)
def test_timeouts(header: bytes, nanoseconds: int | None) -> None:
    assert parse_timeout(header) == nanoseconds


def test_status_text_is_percent_encoded_and_cut_between_characters() -> None:
    assert encode_status_text("100% ü\n") == b"100%25 %C3%BC%0A"
    long = encode_status_text("ü" * 5000)
    assert len(long) == 6000
    assert long.endswith(b"%C3%BC")


def test_decompress() -> None:
    content = bytes(range(256)) * 10
    assert decompress(b"gzip", gzip.compress(content), 10_000) == content
    assert decompress(b"deflate", zlib.compress(content), 2560) == content


@pytest.mark.parametrize(
    ("encoding", "data", "limit", "status"),
    [
        (b"snappy", b"", 10, GrpcStatus.UNIMPLEMENTED),
        (b"gzip", b"no gzip", 10, GrpcStatus.INTERNAL),
        (b"gzip", gzip.compress(bytes(1000), mtime=0)[:-1], 1000, GrpcStatus.INTERNAL),
        (b"deflate", zlib.compress(bytes(10_000_000)), 1000, GrpcStatus.RESOURCE_EXHAUSTED),
    ],
)
def test_bad_compressed_messages(encoding: bytes, data: bytes, limit: int, status: GrpcStatus) -> None:
    with pytest.raises(GrpcError) as caught:
        decompress(encoding, data, limit)
    assert caught.value.status is status
