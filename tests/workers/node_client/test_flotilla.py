from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path

import httpx2
import pytest

from flotilla import certificates
from serving_node.contract.control import Desired, Observed
from workers.node_client import flotilla
from workers.node_client.client import NodeAddress, Target
from workers.node_client.errors import NodeClientError, NodeErrorCode
from workers.node_client.flotilla import FlotillaNodeClient

ADDRESS = NodeAddress("n1", "http://node:8003", "http://node:8002/metrics", "s3cret")
OBSERVED = Observed(node="n1", epoch=1, generation_seen=3, generation_applied=3, sequence=9)


class Node:
    """Answers as told and keeps the requests."""

    def __init__(self, status: int = 200, body: object = None, error: Exception | None = None) -> None:
        self.status, self.body, self.error = status, body, error
        self.requests: list[httpx2.Request] = []

    def client(self) -> FlotillaNodeClient:
        return FlotillaNodeClient(ADDRESS, transport=httpx2.MockTransport(self._answer))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if self.error:
            raise self.error
        content = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        return httpx2.Response(self.status, content=content, headers={"content-type": "application/json"})


async def test_put_desired_sends_the_whole_state_with_the_secret() -> None:
    node = Node(body=OBSERVED.to_json())
    async with node.client() as client:
        assert await client.put_desired(Desired(epoch=1, generation=3)) == OBSERVED
    [request] = node.requests
    assert (request.method, str(request.url)) == ("PUT", "http://node:8003/v1/desired")
    assert request.headers["authorization"] == "Bearer s3cret"
    assert Desired.from_json(json.loads(request.content)) == Desired(epoch=1, generation=3)


async def test_long_poll_and_first_question() -> None:
    node = Node(body=OBSERVED.to_json())
    async with node.client() as client:
        await client.observed(after=None, timeout_seconds=5)
        await client.observed(after=9, timeout_seconds=2.5)
    assert [str(request.url) for request in node.requests] == [
        "http://node:8003/v1/observed",
        "http://node:8003/v1/observed?after=9&timeout=2.5",
    ]


async def test_infer_names_model_and_target() -> None:
    node = Node(body={"outputs": []})
    async with node.client() as client:
        answer = await client.infer("a/b ü", {"inputs": []}, target=Target(unit="u", version="2"), timeout_seconds=5)
    assert answer == {"outputs": []}
    assert node.requests[0].url.raw_path == b"/v1/infer/a%2Fb%20%C3%BC?timeout=5&unit=u&version=2"


async def test_metrics_ask_for_native_histograms_and_carry_no_secret() -> None:
    node = Node(body=b"x 1\n")
    async with node.client() as client:
        exposition = await client.metrics()
    assert exposition.body == b"x 1\n"
    [request] = node.requests
    assert str(request.url) == "http://node:8002/metrics"
    assert "application/vnd.google.protobuf" in request.headers["accept"]
    assert "authorization" not in request.headers


@pytest.mark.parametrize(
    ("status", "code", "permanent"),
    [
        (400, NodeErrorCode.INVALID, True),
        (401, NodeErrorCode.UNAUTHORIZED, True),
        (404, NodeErrorCode.NOT_FOUND, True),
        (409, NodeErrorCode.CONFLICT, True),
        (413, NodeErrorCode.TOO_LARGE, True),
        (500, NodeErrorCode.NODE_FAILED, False),
        (503, NodeErrorCode.UNAVAILABLE, False),
        (302, NodeErrorCode.PROTOCOL, False),
    ],
)
async def test_refusals(status: int, code: NodeErrorCode, permanent: bool) -> None:
    async with Node(status=status, body={"error": "because"}).client() as client:
        with pytest.raises(NodeClientError) as caught:
            await client.put_desired(Desired(epoch=1, generation=1))
    assert (caught.value.code, caught.value.permanent, caught.value.message) == (code, permanent, "because")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (httpx2.ConnectError("connection refused"), NodeErrorCode.UNREACHABLE),
        (httpx2.ReadTimeout("slow"), NodeErrorCode.TIMEOUT),
        (httpx2.RemoteProtocolError("cut"), NodeErrorCode.UNREACHABLE),
    ],
)
async def test_transport_errors_are_temporary(error: Exception, code: NodeErrorCode) -> None:
    async with Node(error=error).client() as client:
        with pytest.raises(NodeClientError) as caught:
            await client.observed(after=None, timeout_seconds=1)
    assert (caught.value.code, caught.value.permanent) == (code, False)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"node": "n1", "surprise": 1}'])
async def test_answers_of_another_protocol(body: bytes) -> None:
    async with Node(body=body).client() as client:
        with pytest.raises(NodeClientError) as caught:
            await client.observed(after=None, timeout_seconds=1)
    assert caught.value.code is NodeErrorCode.PROTOCOL


async def test_endless_answers_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flotilla, "MAX_ANSWER_BYTES", 1000)
    async with Node(body=b"x" * 1001).client() as client:
        with pytest.raises(NodeClientError) as caught:
            await client.metrics()
    assert caught.value.code is NodeErrorCode.TOO_LARGE


async def test_a_node_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flotilla, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(flotilla, "CONNECT_SECONDS", 0.2)

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x")
            await asyncio.sleep(0.05)

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    address = NodeAddress("n1", f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port}", "s")
    async with flotilla.connect(address) as client:
        with pytest.raises(NodeClientError) as caught:
            await client.metrics()
    assert caught.value.code is NodeErrorCode.TIMEOUT
    server.close()


def test_the_secret_is_not_in_the_repr() -> None:
    assert "s3cret" not in repr(ADDRESS)


async def test_certificate_is_checked_against_the_given_authority(tmp_path: Path) -> None:
    certificates.main([str(tmp_path), "127.0.0.1", "elsewhere"])

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = json.dumps(OBSERVED.to_json()).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "127.0.0.1.pem", tmp_path / "127.0.0.1.key")
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        trusting = NodeAddress("n1", url, "", "s3cret", str(tmp_path / "ca.pem"))
        async with FlotillaNodeClient(trusting) as client:
            assert await client.observed(after=None, timeout_seconds=5) == OBSERVED
        async with FlotillaNodeClient(NodeAddress("n1", url, "", "s3cret")) as client:
            with pytest.raises(NodeClientError):
                await client.observed(after=None, timeout_seconds=5)
