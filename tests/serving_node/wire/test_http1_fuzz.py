"""HTTP/1.1 connections under any bytes and any order of events: no exception, answers in order, bounded memory."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.wire.exchange import HttpExchange
from serving_node.wire.http1 import Http1Connection, Http1Limits

pytestmark = pytest.mark.fuzz

LIMITS = Http1Limits(
    max_head_bytes=2048,
    max_headers=20,
    max_body_bytes=50_000,
    max_chunks=30,
    max_pipelined=4,
    max_buffered_bytes=30_000,
)
_BODY = st.binary(max_size=40) | st.sampled_from([b"", b"z" * 20_000, b"z" * 50_000, b"z" * 50_001, b"\r\n\r\n"])
_HEADER = st.sampled_from(
    [
        b"Host: x",
        b"Connection: close",
        b"Connection: keep-alive",
        b"Expect: 100-continue",
        b"Expect: nothing",
        b"Upgrade: h2c\r\nConnection: Upgrade",
        b"X-Long: " + b"a" * 1500,
        b"X-Long: " + b"a" * 2500,
        b"Content-Length: 3",
        b"Content-Length: -1",
        b"Content-Length: 99999999999999999999999",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: gzip",
        b"no colon",
        b" folded: 1",
        b": nothing",
        b"\x00: \xff",
    ]
)
_LINE = st.sampled_from(
    [
        b"GET / HTTP/1.1",
        b"HEAD /v2 HTTP/1.1",
        b"POST /a?b=c HTTP/1.1",
        b"POST http://host/path HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"GET / HTTP/1.0",
        b"get / HTTP/1.1",
        b"GET /",
        b"CONNECT x:1 HTTP/1.1",
        b"PRI * HTTP/2.0",
        b"GET /" + b"a" * 3000 + b" HTTP/1.1",
    ]
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request that may be right, almost right or garbage."""
    body = draw(_BODY)
    headers = draw(st.lists(_HEADER, max_size=3))
    framing = draw(st.sampled_from(["length", "chunked", "none"]))
    if framing == "length":
        headers.append(b"Content-Length: %d" % len(body))
    if framing == "chunked":
        headers.append(b"Transfer-Encoding: chunked")
        size = draw(st.sampled_from([1, 7, 4096, 100_000]))
        pieces = [body[start : start + size] for start in range(0, len(body), size)][:60]
        ending = draw(st.sampled_from([b"0\r\n\r\n", b"0\r\nT: x\r\n\r\n", b"zz\r\n", b"", b"0\r\n"]))
        extension = draw(st.sampled_from([b"", b";a=b"]))
        body = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces) + ending
    raw = draw(_LINE) + b"\r\n" + b"".join(header + b"\r\n" for header in headers) + b"\r\n" + body
    if draw(st.integers(0, 5)) == 0 and raw:
        at = draw(st.integers(0, min(len(raw), 300) - 1))
        raw = raw[:at] + draw(st.binary(max_size=3)) + raw[at + 1 :]
    return raw


class Transport(asyncio.Transport):
    """Takes what is written; ``close`` and ``abort`` end it as a socket would."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.closing = False
        self.unsent = 0

    def write(self, data: Any) -> None:
        assert not self.closing, "nothing is written after the end"
        self.sent += data

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def close(self) -> None:
        self.closing = True

    abort = close

    def is_closing(self) -> bool:
        return self.closing

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return self.unsent


class Client:
    """One connection with the exchanges that it has made; ``step`` does what a drawn event says."""

    def __init__(self) -> None:
        self.transport = Transport()
        self.waiting: list[HttpExchange] = []
        self.numbers: dict[int, int] = {}
        self.left = 0
        self.connection = Http1Connection(self.take, LIMITS)
        self.connection.connection_made(self.transport)

    def take(self, exchange: HttpExchange) -> None:
        assert len(exchange.body) <= LIMITS.max_body_bytes
        self.numbers[id(exchange)] = len(self.numbers)
        exchange.on_disconnect = self.leave
        self.waiting.append(exchange)

    def leave(self) -> None:
        self.left += 1

    def step(self, event: tuple[Any, ...]) -> None:
        kind, *arguments = event
        if kind == "bytes":
            self.feed(*arguments)
        elif kind == "answer" and self.waiting:
            self.answer(self.waiting.pop(arguments[0] % len(self.waiting)))
        elif kind == "stream" and self.waiting:
            self.stream(self.waiting[arguments[0] % len(self.waiting)], arguments[1])
        elif kind == "tick":
            self.connection.check_deadlines(asyncio.get_running_loop().time() + arguments[0])
        elif kind == "pause":
            self.connection.pause_writing()
            self.connection.resume_writing()
        elif kind == "stop":
            self.connection.shut_down()

    def feed(self, data: bytes, piece: int) -> None:
        while data and not self.transport.closing:
            buffer = self.connection.get_buffer(-1)
            size = min(piece, len(data), len(buffer))
            assert size, "there is always room"
            buffer[:size] = data[:size]
            self.connection.buffer_updated(size)
            data = data[size:]

    def answer(self, exchange: HttpExchange) -> None:
        if exchange.streaming:
            exchange.end_stream()
        else:
            exchange.respond(200, [(b"n", b"%d" % self.numbers[id(exchange)])], [b"body"])

    def stream(self, exchange: HttpExchange, size: int) -> None:
        if not exchange.streaming:
            exchange.start_stream(200, [(b"n", b"%d" % self.numbers[id(exchange)])])
        exchange.send_chunk(b"c" * size)

    def held(self) -> int:
        return sum(len(part) for exchange in self.connection._exchanges for part in exchange.held or ())


_EVENTS = st.one_of(
    st.tuples(st.just("bytes"), requests(), st.sampled_from([1 << 30, 100, 7, 3])),
    st.tuples(st.just("bytes"), requests(), st.sampled_from([1 << 30, 500])),
    st.tuples(st.just("bytes"), st.binary(max_size=30), st.just(1 << 30)),
    st.tuples(st.just("answer"), st.integers(0, 3)),
    st.tuples(st.just("stream"), st.integers(0, 3), st.sampled_from([0, 10, 20_000])),
    st.tuples(st.just("tick"), st.sampled_from([0.0, 1.0, 25.0, 100.0, 1000.0])),
    st.tuples(st.just("pause")),
    st.tuples(st.just("stop")),
)


@given(st.lists(_EVENTS, max_size=12))
def test_any_order_of_events(events: list[tuple[Any, ...]]) -> None:
    async def run() -> None:
        client = Client()
        for event in events:
            client.step(event)
            assert client.held() <= LIMITS.max_buffered_bytes + 50_000
            assert client.connection._received <= LIMITS.max_body_bytes + 1
        answered = list(map(int, re.findall(rb"\r\nn: (\d+)\r\n", client.transport.sent)))
        assert answered == sorted(answered), "answers come in the order of requests"
        assert answered == list(range(len(answered)))
        open_exchanges = sum(exchange.on_disconnect is not None for exchange in client.connection._exchanges)
        client.connection.connection_lost(None)
        assert client.left == open_exchanges, "who was not answered is told, once"
        assert all(exchange.disconnected for exchange in client.waiting)

    asyncio.run(run())


@given(st.lists(requests(), min_size=1, max_size=4), st.lists(st.integers(1, 3000), max_size=8))
def test_any_split_gives_the_same(order: list[bytes], cuts: list[int]) -> None:
    async def receive(pieces: list[bytes]) -> list[tuple[str, bytes, bytes]]:
        client = Client()
        seen = []
        for piece in pieces:
            client.feed(piece, 1 << 30)
            while client.waiting:
                exchange = client.waiting.pop(0)
                seen.append((exchange.method, exchange.path, bytes(exchange.body)))
                client.answer(exchange)
        return seen

    data = b"".join(order)
    pieces = []
    rest = data
    for cut in cuts:
        pieces.append(rest[:cut])
        rest = rest[cut:]

    async def run() -> None:
        whole = await receive([data])
        split = await receive([*pieces, rest])
        assert split[: len(whole)] == whole or whole[: len(split)] == split

    asyncio.run(run())
