"""The admin frontend over a real socket: who may call, what each call answers."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from serving_node.contract.control import Desired, DesiredModel, FileRef, Observed, Route, Unit
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest, InferenceResponse, Timing
from serving_node.core.tensor import Tensor
from serving_node.frontends.admin.frontend import AdminFrontend
from serving_node.observability.logging import LogBuffer
from serving_node.repository.blob_store import BlobStore
from serving_node.repository.desired_state import DesiredState
from serving_node.repository.engine_builds import EngineBuilds
from serving_node.repository.unit_steps import UnitSteps

SECRET = "s3cret"
SHA = "a" * 64
UNIT = Unit("u1", 1, "c", {}, "m", (FileRef("model.onnx", SHA, 10),))
DESIRED = Desired(1, 3, (DesiredModel("m", (Route("u1", 100),), (UNIT,)),))
BODY = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1.5, 2]}], "id": "7"}


class StubFetcher:
    def fetch(self, sha256: str, size: int, **_: Any) -> None:
        raise AssertionError("nothing is fetched here")


class StubDataPlane:
    """Answers each request with its input, when the test lets it."""

    def __init__(self) -> None:
        self.requests: list[InferenceRequest] = []
        self.error: InferenceError | None = None
        self.silent = False

    def server_live(self) -> bool:
        return True

    def server_ready(self) -> bool:
        return False

    def infer(self, request: InferenceRequest) -> None:
        if self.error is not None:
            raise self.error
        self.requests.append(request)
        if not self.silent:
            [tensor] = request.inputs
            output = Tensor("y", tensor.datatype, tensor.shape, tensor.data)
            answer = InferenceResponse("m", "1", request.id, [output], timing=Timing(5000, 1000, 2000, 3000))
            asyncio.get_running_loop().call_soon(request.on_response, answer)


@pytest.fixture
def dataplane() -> StubDataPlane:
    return StubDataPlane()


@pytest.fixture
async def client(tmp_path: Path, dataplane: StubDataPlane) -> AsyncIterator[httpx2.AsyncClient]:
    store = BlobStore(tmp_path / "blobs")
    steps = UnitSteps(store, StubFetcher(), tmp_path / "models")
    desired = DesiredState(tmp_path, steps, None, node=lambda: "node-1")  # type: ignore[arg-type]
    logs = LogBuffer()
    for number in range(5):
        logs.append(f"line {number}")
    builds = EngineBuilds(tmp_path / "engines", store, list, version=lambda: "11.4.0.106")
    frontend = AdminFrontend(dataplane, desired, store, logs, builds, secret=SECRET)  # type: ignore[arg-type]
    server = await frontend.listener.start("127.0.0.1", 0)
    base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    headers = {"Authorization": f"Bearer {SECRET}"}
    async with httpx2.AsyncClient(base_url=base, headers=headers, verify=False, trust_env=False) as made:
        yield made
    await desired.close(5)
    await frontend.listener.stop(5)


@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer wrong", f"Basic {SECRET}", f"bearer {SECRET}x"])
async def test_every_call_needs_the_secret(client: httpx2.AsyncClient, authorization: str | None) -> None:
    for method, path in [
        ("GET", "/v1/healthz"),
        ("PUT", "/v1/desired"),
        ("GET", "/nowhere"),
        ("DELETE", "/v1/blobs/x"),
    ]:
        headers = {"Authorization": authorization} if authorization is not None else {}
        client.headers.pop("Authorization", None)
        answer = await client.request(method, path, headers=headers)
        assert answer.status_code == 401
        assert SECRET not in answer.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing", 404),
        ("GET", "/", 404),
        ("GET", "/v2/health/live", 404),
        ("POST", "/v1/desired", 405),
        ("GET", "/v1/infer/m", 405),
        ("POST", "/v1/infer", 404),
        ("GET", "/v1/observed?after=x", 400),
        ("GET", "/v1/logs?tail=-1", 400),
        ("DELETE", "/v1/blobs/..%2F..%2Fetc", 200),
    ],
)
async def test_unknown_paths_and_bad_queries(client: httpx2.AsyncClient, method: str, path: str, status: int) -> None:
    assert (await client.request(method, path)).status_code == status


async def test_put_desired_is_stored_and_answered_with_observed(client: httpx2.AsyncClient, tmp_path: Path) -> None:
    answer = await client.put("/v1/desired", json=DESIRED.to_json())
    assert answer.status_code == 200
    observed = Observed.from_json(answer.json())
    assert (observed.node, observed.generation_seen) == ("node-1", 3)
    assert json.loads((tmp_path / "desired.json").read_text()) == DESIRED.to_json()


async def test_put_desired_refusals(client: httpx2.AsyncClient) -> None:
    await client.put("/v1/desired", json=DESIRED.to_json())
    stale = await client.put("/v1/desired", json={**DESIRED.to_json(), "generation": 2})
    assert (stale.status_code, stale.json()["error"]) == (409, "generation 2 is older than 3")
    rewritten = await client.put("/v1/desired", json={"epoch": 1, "generation": 3})
    assert rewritten.status_code == 409
    unknown = await client.put("/v1/desired", json={**DESIRED.to_json(), "surprise": 1})
    assert (unknown.status_code, unknown.json()["field"]) == (400, "surprise")
    assert (await client.put("/v1/desired", content=b"{")).status_code == 400


async def test_observed_long_poll_answers_when_something_changes(client: httpx2.AsyncClient) -> None:
    first = Observed.from_json((await client.get("/v1/observed")).json())
    poll = asyncio.ensure_future(client.get(f"/v1/observed?after={first.sequence}&timeout=20"))
    await asyncio.sleep(0)
    await client.put("/v1/desired", json=DESIRED.to_json())
    later = Observed.from_json((await poll).json())
    assert later.sequence > first.sequence
    again = Observed.from_json((await client.get(f"/v1/observed?after={10**12}&timeout=20")).json())
    assert again.sequence >= later.sequence, "a sequence of another life is answered at once"


async def test_infer_answers_with_data_and_timing(client: httpx2.AsyncClient, dataplane: StubDataPlane) -> None:
    answer = await client.post("/v1/infer/a%20b?unit=u2&version=4", json=BODY)
    assert answer.status_code == 200
    assert answer.json() == {
        "model_name": "m",
        "model_version": "1",
        "id": "7",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [2], "data": [1.5, 2.0]}],
        "timing": {"queue_us": 5, "compute_us": 6},
    }
    request = dataplane.requests[0]
    assert (request.model_name, request.unit, request.model_version) == ("a b", "u2", "4")


async def test_infer_errors_carry_code_and_sentence(client: httpx2.AsyncClient, dataplane: StubDataPlane) -> None:
    from serving_node.contract.errors import ErrorCode

    dataplane.error = InferenceError(ErrorCode.NOT_FOUND, "Request for unknown model: 'm' is not found")
    answer = await client.post("/v1/infer/m", json=BODY)
    assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
    assert answer.json()["error"].endswith("is not found")


async def test_infer_without_an_answer_ends_and_cancels(client: httpx2.AsyncClient, dataplane: StubDataPlane) -> None:
    dataplane.silent = True
    answer = await client.post("/v1/infer/m?timeout=0.01", json=BODY)
    assert answer.status_code == 503
    assert dataplane.requests[0].cancelled


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"datatype": "FP33"}, "cannot travel as JSON"),
        ({"datatype": "BF16"}, "cannot travel as JSON"),
        ({"shape": [3]}, "2 elements, its shape asks for 3"),
        ({"shape": [-1]}, "must be a list of sizes"),
        ({"datatype": "INT32"}, "does not fit INT32"),
        ({"datatype": "BYTES"}, "does not fit BYTES"),
        ({"datatype": "UINT8", "data": [1, 300]}, "does not fit UINT8"),
        ({"data": "12"}, "must be a list"),
        ({"data": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}, "nested more than"),
        ({"shape": [1 << 40]}, "too large"),
        ({"name": 5}, "must be an object with a 'name'"),
    ],
)
async def test_infer_bad_input_is_one_sentence(client: httpx2.AsyncClient, change: dict[str, Any], text: str) -> None:
    answer = await client.post("/v1/infer/m", json={"inputs": [{**BODY["inputs"][0], **change}]})  # type: ignore[dict-item]
    assert answer.status_code == 400
    assert text in answer.json()["error"]


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "back"),
    [
        ("BYTES", [2], ["a", "é"], ["a", "é"]),
        ("BOOL", [2], [True, False], [True, False]),
        ("INT64", [1, 2], [[1, -2]], [1, -2]),
        ("FP16", [2], [0.5, 1], [0.5, 1.0]),
        ("FP32", [0], [], []),
    ],
)
async def test_infer_datatypes_round_trip(
    client: httpx2.AsyncClient, datatype: str, shape: list[int], data: list[Any], back: list[Any]
) -> None:
    body = {"inputs": [{"name": "x", "datatype": datatype, "shape": shape, "data": data}]}
    answer = await client.post("/v1/infer/m", json=body)
    assert answer.json()["outputs"][0]["data"] == back


async def test_logs_blobs_and_health(client: httpx2.AsyncClient, tmp_path: Path) -> None:
    assert (await client.get("/v1/logs?tail=2")).json() == {"lines": ["line 3", "line 4"]}
    assert (await client.get("/v1/blobs")).json()["blobs"] == []
    assert (await client.delete(f"/v1/blobs/{SHA}")).json() == {"deleted": False}
    assert (await client.get("/v1/healthz")).json() == {"live": True, "ready": False}


def binary(*inputs: dict[str, Any], data: bytes = b"", length: int | None = None) -> dict[str, Any]:
    head = json.dumps({"inputs": list(inputs)}).encode()
    return {
        "content": head + data,
        "headers": {"inference-header-content-length": str(len(head) if length is None else length)},
    }


def input_of(size: object, **more: object) -> dict[str, Any]:
    return {"name": "x", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": size}, **more}


async def test_measure_takes_tensors_as_bytes_and_answers_with_the_times(
    client: httpx2.AsyncClient, dataplane: StubDataPlane
) -> None:
    answer = await client.post("/v1/measure/~m?unit=u2", **binary(input_of(8), data=b"\0\0\xc0\x3f\0\0\0\x40"))
    assert answer.status_code == 200
    assert answer.json() == {
        "model_name": "m",
        "model_version": "1",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [2]}],
        "timing": {"queue_us": 5, "compute_us": 6},
    }
    [request] = dataplane.requests
    assert (request.model_name, request.unit, request.model_version) == ("~m", "u2", "")
    assert request.inputs[0].as_numpy().tolist() == [1.5, 2.0]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (binary(input_of(8), length=9999), "where the tensors begin"),
        ({"content": b"{}"}, "where the tensors begin"),
        (binary(input_of(8), data=b"1234"), "how many of the body's bytes"),
        (binary(input_of("8"), data=b"12345678"), "how many of the body's bytes"),
        (binary(input_of(4), data=b"12345678"), "4 bytes that belong to no input"),
        (binary(input_of(0, datatype="FP33")), "unknown datatype 'FP33'"),
        (binary(input_of(0, shape=[-1])), "must be a list of sizes"),
        ({"content": b"{{", "headers": {"inference-header-content-length": "2"}}, "is not JSON"),
        ({"content": b"[]", "headers": {"inference-header-content-length": "2"}}, "list 'inputs'"),
    ],
)
async def test_measure_bad_input_is_one_sentence(client: httpx2.AsyncClient, call: dict[str, Any], text: str) -> None:
    answer = await client.post("/v1/measure/m", **call)
    assert answer.status_code == 400
    assert text in answer.json()["error"]


async def test_only_measure_takes_large_bodies(client: httpx2.AsyncClient, dataplane: StubDataPlane) -> None:
    size = 9 * 1024 * 1024
    answer = await client.post("/v1/measure/m", **binary(input_of(size, shape=[size // 4]), data=bytes(size)))
    assert answer.status_code == 200
    assert (await client.put("/v1/desired", content=bytes(size))).status_code == 413


async def test_an_engine_cannot_be_built_without_a_gpu(client: httpx2.AsyncClient) -> None:
    order = {"files": [{"path": "model.onnx", "sha256": SHA, "size": 10}]}
    answer = await client.post("/v1/builds", json=order)
    assert answer.status_code == 501
    assert answer.json()["error"] == "this node builds no engines on GPU 0: it has 0 GPUs"
    assert (await client.get("/v1/builds")).json() == {"builds": []}
    for method in ("GET", "DELETE"):
        answer = await client.request(method, "/v1/builds/x")
        assert (answer.status_code, answer.json()["error"]) == (404, "this node knows no build 'x'")
    assert (await client.post("/v1/builds", json={"files": []})).status_code == 400
    assert (await client.put("/v1/builds", json={})).status_code == 405


async def test_a_blob_is_read_in_pieces(client: httpx2.AsyncClient, tmp_path: Path) -> None:
    content = bytes(range(100))
    sha256 = hashlib.sha256(content).hexdigest()
    store = BlobStore(tmp_path / "blobs")
    store.partial_path(sha256).write_bytes(content)
    store.commit(sha256, len(content))
    answer = await client.get(f"/v1/blobs/{sha256}?offset=10&size=5")
    assert (answer.content, answer.headers["content-type"]) == (content[10:15], "application/octet-stream")
    assert (await client.get(f"/v1/blobs/{sha256}?offset=100")).content == b""
    assert (await client.get(f"/v1/blobs/{'b' * 64}")).status_code == 404
    assert (await client.get("/v1/blobs/..%2f..%2fetc")).status_code == 404
