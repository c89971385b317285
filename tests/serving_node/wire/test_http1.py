from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_node.wire.exchange import HttpExchange
from serving_node.wire.http1 import Http1Connection, Http1Limits, Http1Server


class FakeTransport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.closing = False
        self.eof = False
        self.reading = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def writelines(self, parts: object) -> None:
        for part in parts:  # type: ignore[attr-defined]
            self.sent += part

    def close(self) -> None:
        self.closing = True

    abort = close

    def is_closing(self) -> bool:
        return self.closing

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.eof = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return 0


class Peer:
    """A connection without a socket."""

    def __init__(self, limits: Http1Limits | None = None, answer: bool = True, memo: dict | None = None) -> None:
        self.exchanges: list[HttpExchange] = []
        self.answer = answer
        self.transport = FakeTransport()
        self.connection = Http1Connection(self.handle, limits or Http1Limits(), memo=memo)
        self.connection.connection_made(self.transport)

    def handle(self, exchange: HttpExchange) -> None:
        self.exchanges.append(exchange)
        if self.answer:
            exchange.respond(200, [], [exchange.method.encode(), b" ", exchange.path, b" ", exchange.body])

    def send(self, data: bytes, piece: int = 1 << 30) -> None:
        while data:
            buffer = self.connection.get_buffer(-1)
            size = min(piece, len(data), len(buffer))
            buffer[:size] = data[:size]
            self.connection.buffer_updated(size)
            data = data[size:]

    @property
    def sent(self) -> bytes:
        return bytes(self.transport.sent)


def reply(body: bytes, extra: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n%s\r\n%s" % (len(body), extra, body)


async def test_request_with_body_is_answered() -> None:
    peer = Peer()
    peer.send(b"POST /a/b?c=d HTTP/1.1\r\nHost: x\r\nX-Y: 1\r\nx-y: 2 \r\nContent-Length: 3\r\n\r\nabc")
    exchange = peer.exchanges[0]
    assert (exchange.method, exchange.path, exchange.query, bytes(exchange.body)) == ("POST", b"/a/b", b"c=d", b"abc")
    assert exchange.headers == {b"host": b"x", b"x-y": b"1, 2", b"content-length": b"3"}
    assert peer.sent == reply(b"POST /a/b abc")


async def test_pipelined_requests_are_answered_in_order() -> None:
    peer = Peer(answer=False)
    peer.send(b"GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\nGET /3 HTTP/1.1\r\n\r\n")
    one, two, three = peer.exchanges
    three.respond(200, [], [b"3"])
    two.start_stream(200, [])
    two.send_chunk(b"22")
    assert peer.sent == b""
    one.respond(200, [], [b"1"])
    two.end_stream()
    streamed = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n22\r\n0\r\n\r\n"
    assert peer.sent == reply(b"1") + streamed + reply(b"3")


async def test_connection_close_is_obeyed_and_said() -> None:
    peer = Peer()
    peer.send(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\nGET / HTTP/1.1\r\n\r\n")
    assert len(peer.exchanges) == 1
    assert peer.sent == reply(b"GET / ", b"connection: close\r\n")
    assert peer.transport.closing


async def test_http_1_0_keep_alive_is_said() -> None:
    peer = Peer()
    peer.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert peer.sent == reply(b"GET / ", b"connection: keep-alive\r\n")
    assert not peer.transport.closing


async def test_head_is_answered_without_body() -> None:
    peer = Peer()
    peer.send(b"HEAD /x HTTP/1.1\r\n\r\n")
    assert peer.sent == b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n"


async def test_expect_continue_is_answered_before_the_body() -> None:
    peer = Peer()
    peer.send(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert peer.sent == b"HTTP/1.1 100 Continue\r\n\r\n"
    peer.send(b"ab")
    assert peer.sent.endswith(reply(b"POST / ab"))


async def test_expect_continue_waits_for_earlier_answers() -> None:
    peer = Peer(answer=False)
    peer.send(b"GET / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert peer.sent == b""
    peer.exchanges[0].respond(200, [], [b"x"])
    assert peer.sent == reply(b"x") + b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize(
    "bad",
    [
        b"BREW / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
    ],
)
async def test_bad_request_is_refused_after_earlier_answers(bad: bytes) -> None:
    peer = Peer(answer=False)
    peer.send(b"GET / HTTP/1.1\r\n\r\n" + bad)
    peer.exchanges[0].respond(200, [], [b"ok"])
    assert peer.sent.startswith(reply(b"ok") + b"HTTP/1.1 400 Bad Request\r\n")
    assert peer.transport.eof


async def test_body_over_the_limit_is_refused_before_it_is_sent() -> None:
    peer = Peer(Http1Limits(max_body_bytes=10))
    for _ in range(2):
        peer.send(b"POST / HTTP/1.1\r\nContent-Length: 11\r\n\r\n")
    assert peer.sent.startswith(b"HTTP/1.1 413 ")
    assert peer.sent.count(b"HTTP/1.1") == 1
    assert peer.exchanges == []


async def test_chunked_body_over_the_limit_is_refused() -> None:
    peer = Peer(Http1Limits(max_body_bytes=10))
    peer.send(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n123456\r\n6\r\n123456\r\n0\r\n\r\n")
    assert peer.sent.startswith(b"HTTP/1.1 413 ")
    assert peer.exchanges == []


async def test_too_many_chunks_are_refused() -> None:
    peer = Peer(Http1Limits(max_chunks=3))
    peer.send(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 5 + b"0\r\n\r\n")
    assert peer.sent.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("piece", [7, 1 << 20])
async def test_endless_head_is_refused(piece: int) -> None:
    peer = Peer(Http1Limits(max_head_bytes=1000))
    peer.send(b"GET / HTTP/1.1\r\nA: " + b"x" * 2000, piece)
    assert peer.sent.startswith(b"HTTP/1.1 431 ")


async def test_many_pipelined_requests_pause_reading() -> None:
    peer = Peer(Http1Limits(max_pipelined=2), answer=False)
    peer.send(b"GET / HTTP/1.1\r\n\r\n" * 2)
    assert not peer.transport.reading
    peer.exchanges[0].respond(200, [])
    assert peer.transport.reading


async def test_disconnect_is_reported_once_to_unanswered_exchanges() -> None:
    peer = Peer(answer=False)
    peer.send(b"GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\n")
    gone: list[bytes] = []
    for exchange in peer.exchanges:
        exchange.on_disconnect = lambda path=exchange.path: gone.append(path)  # type: ignore[misc]
    peer.exchanges[0].respond(200, [])
    peer.connection.connection_lost(None)
    assert gone == [b"/2"]
    assert peer.exchanges[1].disconnected


async def test_failing_handler_is_answered_with_500() -> None:
    transport = FakeTransport()

    def fail(exchange: HttpExchange) -> None:
        raise ValueError

    connection = Http1Connection(fail, Http1Limits())
    connection.connection_made(transport)
    data = b"GET / HTTP/1.1\r\n\r\n"
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))
    assert transport.sent.startswith(b"HTTP/1.1 500 ")


@pytest.mark.parametrize(
    ("data", "elapsed", "outcome"),
    [
        (b"", 400.0, "close"),
        (b"", 200.0, ""),
        (b"GET / HT", 30.0, "408"),
        (b"GET / HT", 10.0, ""),
        (b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nab", 40.0, "408"),
        (b"POST / HTTP/1.1\r\nContent-Length: 900000\r\n\r\nab", 20.0, ""),
    ],
)
async def test_slow_and_idle_clients_are_closed(data: bytes, elapsed: float, outcome: str) -> None:
    peer = Peer()
    peer.send(data)
    peer.connection.check_deadlines(asyncio.get_running_loop().time() + elapsed)
    assert peer.transport.closing == (outcome == "close")
    assert peer.sent[9:12].decode() == (outcome if outcome == "408" else "")


async def test_client_that_does_not_read_is_cut() -> None:
    peer = Peer()
    peer.connection.pause_writing()
    assert not peer.transport.reading
    peer.connection.check_deadlines(asyncio.get_running_loop().time() + 61)
    assert peer.transport.closing


REQUESTS = [
    b"GET /1 HTTP/1.1\r\n\r\n",
    b"POST /2 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /3 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nT: x\r\n\r\n",
    b"POST /4 HTTP/1.1\r\nContent-Length: 40000\r\n\r\n" + b"z" * 40000,
    b"POST /2 HTTP/1.1\r\nContent-Length: 5\r\n\r\nGET /",
]


@given(order=st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=6), cuts=st.lists(st.integers(1, 30000)))
@settings(max_examples=150, deadline=None)
def test_any_split_of_the_bytes_gives_the_same_exchanges(order: list[bytes], cuts: list[int]) -> None:
    async def run() -> None:
        whole, split = Peer(), Peer()
        for request in order:
            whole.send(request)
        data = b"".join(order)
        for cut in cuts:
            split.send(data[:cut])
            data = data[cut:]
        split.send(data)
        assert split.sent == whole.sent
        assert len(whole.exchanges) == len(order)

    asyncio.run(run())


@given(data=st.binary(max_size=300), cut=st.integers(1, 50))
@settings(max_examples=200, deadline=None)
def test_garbage_never_raises(data: bytes, cut: int) -> None:
    async def run() -> None:
        peer = Peer()
        peer.send(data, cut)
        peer.send(b"POST / HTTP/1.1\r\n" + data, cut)

    asyncio.run(run())


@asynccontextmanager
async def serving(
    handler: Callable[[HttpExchange], None], limits: Http1Limits | None = None
) -> AsyncIterator[tuple[Http1Server, int]]:
    server = Http1Server(handler, limits)
    listening = await server.listener.start("127.0.0.1", 0)
    try:
        yield server, listening.sockets[0].getsockname()[1]
    finally:
        await server.listener.stop(1.0)


def echo(exchange: HttpExchange) -> None:
    exchange.respond(200, [], [exchange.body])


async def exchange_bytes(port: int, data: bytes, until: Callable[[asyncio.StreamReader], Awaitable[bytes]]) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
    writer.write(data)
    try:
        return await asyncio.wait_for(until(reader), 20)
    finally:
        writer.close()


async def test_large_body_over_a_socket() -> None:
    body = bytes(range(256)) * 32768
    async with serving(echo) as (_, port):
        request = b"POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        answer = await exchange_bytes(port, request, lambda reader: reader.read(-1))
        assert answer.endswith(body)


async def test_refused_client_can_read_the_answer_while_it_still_sends() -> None:
    async with serving(echo, Http1Limits(max_body_bytes=100)) as (_, port):
        request = b"POST / HTTP/1.1\r\nContent-Length: 5000000\r\n\r\n" + bytes(5000000)
        answer = await exchange_bytes(port, request, lambda reader: reader.read(-1))
        assert answer.startswith(b"HTTP/1.1 413 ")


async def test_stop_lets_running_exchanges_finish() -> None:
    waiting: asyncio.Future[HttpExchange] = asyncio.get_running_loop().create_future()
    async with serving(waiting.set_result) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        exchange = await asyncio.wait_for(waiting, 30)
        stopping = asyncio.ensure_future(server.listener.stop(10))
        assert await asyncio.wait_for(idle_reader.read(-1), 30) == b""
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        exchange.respond(200, [], [b"done"])
        assert (await asyncio.wait_for(reader.read(-1), 30)).endswith(b"connection: close\r\n\r\ndone")
        await asyncio.wait_for(stopping, 30)
        writer.close()
        idle_writer.close()


@pytest.mark.parametrize("size", [100_000, 1_048_576, 1_048_577, 3_000_000])
async def test_large_chunked_bodies_arrive_whole(size: int) -> None:
    peer = Peer(answer=False)
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    peer.send(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
    for start in range(0, size, 70_000):
        piece = body[start : start + 70_000]
        peer.send(b"%x\r\n%b\r\n" % (len(piece), piece))
    peer.send(b"0\r\n\r\nGET /next HTTP/1.1\r\n\r\n")
    first, second = peer.exchanges
    assert first.body == body
    assert (second.path, bytes(second.body)) == (b"/next", b"")


async def test_headers_are_kept_as_they_were_sent() -> None:
    peer = Peer()
    for _ in range(2):  # the second head is known already
        peer.send(b"GET / HTTP/1.1\r\nX-One: 1\r\nx-ONE: 2\r\n\r\n")
    assert [exchange.fields for exchange in peer.exchanges] == [((b"X-One", b"1"), (b"x-ONE", b"2"))] * 2


async def test_a_stream_held_behind_another_answer_is_bounded() -> None:
    peer = Peer(Http1Limits(max_buffered_bytes=1000), answer=False)
    peer.send(b"GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\n")
    second = peer.exchanges[1]
    second.start_stream(200, [])
    second.send_chunk(b"a" * 500)
    assert not second.disconnected
    second.send_chunk(b"a" * 500)
    assert second.disconnected
    assert peer.transport.closing


async def test_chunks_count_when_a_length_is_said_too_and_the_connection_ends() -> None:
    peer = Peer()
    peer.send(b"POST / HTTP/1.1\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
    assert [bytes(exchange.body) for exchange in peer.exchanges] == [b"abc"]
    assert peer.sent == reply(b"POST / abc", b"connection: close\r\n")
    peer.send(b"GET /smuggled HTTP/1.1\r\n\r\n")
    assert len(peer.exchanges) == 1
    assert peer.transport.closing


@pytest.mark.parametrize("coding", [b"gzip", b"identity", b"chunked, gzip", b"", b"chunkedx"])
@pytest.mark.parametrize("length", [b"", b"Content-Length: 3\r\n"])
async def test_codings_that_do_not_end_in_chunks_are_refused(coding: bytes, length: bytes) -> None:
    peer = Peer()
    peer.send(b"POST / HTTP/1.1\r\n%bTransfer-Encoding: %b\r\n\r\nabc" % (length, coding))
    assert not peer.exchanges
    assert peer.sent.startswith(b"HTTP/1.1 400 ")
