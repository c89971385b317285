"""The client's side of engines that a node builds."""

from __future__ import annotations

import hashlib
import json

import httpx2
import pytest

from serving_node.contract.control import FileRef
from serving_node.contract.engine_builds import BuildOrder, BuildPlan, BuildState, BuildStatus
from workers.node_client.client import NodeAddress
from workers.node_client.engine_builds import cancel_engine_build, engine_build, fetch_engine, start_engine_build
from workers.node_client.errors import NodeClientError, NodeErrorCode
from workers.node_client.flotilla import FlotillaNodeClient

ADDRESS = NodeAddress("n1", "http://node:8003", "http://node:8002/metrics", "s3cret")
ENGINE = b"ftrt" + bytes(20_000_000)
READY = FileRef("model.plan", hashlib.sha256(ENGINE).hexdigest(), len(ENGINE))
STATUS = BuildStatus("b-1", "k", BuildState.READY, 7, progress=1.0, engine=READY)
ORDER = BuildOrder((FileRef("model.onnx", "a" * 64, 3),), BuildPlan(max_batch_size=8))


class Node:
    """Builds at once; ``engine`` is what it then has, ``refusal`` what it answers instead."""

    def __init__(self, engine: bytes = ENGINE, refusal: tuple[int, object] | None = None) -> None:
        self.engine = engine
        self.refusal = refusal
        self.requests: list[httpx2.Request] = []

    def client(self) -> FlotillaNodeClient:
        return FlotillaNodeClient(ADDRESS, transport=httpx2.MockTransport(self._answer))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if self.refusal is not None:
            return httpx2.Response(self.refusal[0], json=self.refusal[1])
        if request.url.path.startswith("/v1/blobs/"):
            offset, size = (int(request.url.params[name]) for name in ("offset", "size"))
            return httpx2.Response(200, content=self.engine[offset : offset + size])
        return httpx2.Response(202 if request.method == "POST" else 200, json=STATUS.to_json())


async def test_builds_are_ordered_followed_and_cancelled() -> None:
    node = Node()
    async with node.client() as client:
        assert await start_engine_build(client, ORDER) == STATUS
        assert await engine_build(client, "b-1") == STATUS
        assert await engine_build(client, "b-1", after=6, timeout_seconds=2) == STATUS
        assert await cancel_engine_build(client, "b-1") == STATUS
    assert [(one.method, str(one.url).removeprefix("http://node:8003")) for one in node.requests] == [
        ("POST", "/v1/builds"),
        ("GET", "/v1/builds/b-1"),
        ("GET", "/v1/builds/b-1?after=6&timeout=2"),
        ("DELETE", "/v1/builds/b-1"),
    ]
    assert BuildOrder.from_json(json.loads(node.requests[0].content)) == ORDER
    assert node.requests[0].headers["authorization"] == "Bearer s3cret"


async def test_an_engine_comes_in_pieces_and_is_verified() -> None:
    node = Node()
    async with node.client() as client:
        assert b"".join([piece async for piece in fetch_engine(client, READY)]) == ENGINE
    assert len(node.requests) == 3


@pytest.mark.parametrize("engine", [ENGINE[:-1], ENGINE[:-1] + b"x"], ids=["shorter", "changed"])
async def test_an_engine_that_is_another_is_refused(engine: bytes) -> None:
    async with Node(engine).client() as client:
        with pytest.raises(NodeClientError) as caught:
            [piece async for piece in fetch_engine(client, READY)]
    assert caught.value.code is NodeErrorCode.PROTOCOL


async def test_a_node_that_cannot_build_says_why() -> None:
    sentence = "this node builds no engines: TensorRT is not installed on it"
    async with Node(refusal=(501, {"error": sentence, "code": "UNSUPPORTED"})).client() as client:
        with pytest.raises(NodeClientError, match=sentence) as caught:
            await start_engine_build(client, ORDER)
    assert caught.value.permanent


async def test_what_is_no_status_is_told() -> None:
    async with Node(refusal=(200, {"id": 3})).client() as client:
        with pytest.raises(NodeClientError) as caught:
            await engine_build(client, "b-1")
    assert caught.value.code is NodeErrorCode.PROTOCOL
