"""Calls that measure, over a real socket: kept connections, refusals, and nodes that end or talk nonsense."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from workers.node_client.client import BinaryRequest, NodeAddress, Target
from workers.node_client.errors import NodeClientError, NodeErrorCode
from workers.node_client.flotilla import FlotillaNodeClient

REQUEST = BinaryRequest(b'{"inputs":[]}12345678', 13)


def answer(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
        status.encode(),
        len(body),
        body,
    )


class Peer:
    """Answers each request with what ``say`` returns; closes when that is empty."""

    def __init__(self, say: Callable[[bytes, bytes], bytes]) -> None:
        self.say = say
        self.connections = 0
        self.seen: list[tuple[bytes, bytes]] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
                body = await reader.readexactly(int(fields[b"content-length"]))
                self.seen.append((head, body))
                said = self.say(head, body)
                if not said:
                    break
                writer.write(said)
        except asyncio.IncompleteReadError:
            pass
        writer.close()


@asynccontextmanager
async def talking_to(peer: Peer) -> AsyncIterator[FlotillaNodeClient]:
    server = await asyncio.start_server(peer.handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with FlotillaNodeClient(NodeAddress("n1", f"http://127.0.0.1:{port}", "", "secret")) as client:
        yield client
    server.close()


async def measure(client: FlotillaNodeClient) -> dict[str, object]:
    return await client.measure("~m x", REQUEST, target=Target(unit="u 1"), timeout_seconds=5)


async def test_calls_that_follow_one_another_share_a_connection() -> None:
    peer = Peer(lambda _head, _body: answer(b'{"timing":{"queue_us":1,"compute_us":2}}'))
    async with talking_to(peer) as client:
        assert await measure(client) == {"timing": {"queue_us": 1, "compute_us": 2}}
        await measure(client)
        assert peer.connections == 1
        await asyncio.gather(measure(client), measure(client))
        assert peer.connections == 2
    head, body = peer.seen[0]
    assert head.startswith(b"POST /v1/measure/~m%20x?unit=u+1&timeout=5 HTTP/1.1\r\n")
    assert b"Authorization: Bearer secret\r\n" in head and b"Inference-Header-Content-Length: 13\r\n" in head
    assert body == REQUEST.body


async def test_a_refusal_is_told_and_the_connection_goes_on() -> None:
    peer = Peer(lambda _head, _body: answer(b'{"error":"unit u is not ready"}', "503 Service Unavailable"))
    async with talking_to(peer) as client:
        for _time in range(2):
            with pytest.raises(NodeClientError, match="unit u is not ready") as refused:
                await measure(client)
            assert refused.value.code is NodeErrorCode.UNAVAILABLE
    assert peer.connections == 1


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n",
        b"x" * 70_000,
    ],
)
async def test_a_node_that_ends_or_talks_nonsense_is_gone(said: bytes) -> None:
    async with talking_to(Peer(lambda _head, _body: said)) as client:
        with pytest.raises(NodeClientError, match="n1 cannot be reached") as failed:
            await measure(client)
        assert failed.value.code is NodeErrorCode.UNREACHABLE


async def test_nobody_listens() -> None:
    async with FlotillaNodeClient(NodeAddress("n1", "http://127.0.0.1:1", "", "secret")) as client:
        with pytest.raises(NodeClientError) as failed:
            await measure(client)
        assert failed.value.code is NodeErrorCode.UNREACHABLE
