"""A node that loads models when somebody asks something of them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc

from .processes import NodeProcess, doubling_model, eventually

pytestmark = pytest.mark.integration
Launch = Callable[..., NodeProcess]

ENSEMBLE = """
platform: "ensemble"
max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: 4 }
output { name: "y" data_type: TYPE_FP32 dims: 4 }
ensemble_scheduling {
  step { model_name: "a" model_version: -1 input_map { key: "x" value: "x" } output_map { key: "y" value: "z" } }
  step { model_name: "b" model_version: -1 input_map { key: "x" value: "z" } output_map { key: "y" value: "y" } }
}
"""
INDEX = {"name": "a", "state": "UNAVAILABLE", "reason": "unloaded, loads on first request"}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    for name, factor in (("a", 2.0), ("b", 3.0)):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "1" / "model.onnx").write_bytes(doubling_model(factor))
    (folder / "both" / "1").mkdir(parents=True)
    (folder / "both" / "config.pbtxt").write_text(ENSEMBLE)
    (folder / "broken" / "1").mkdir(parents=True)
    (folder / "broken" / "1" / "model.onnx").write_bytes(b"no model")
    return folder


@pytest.fixture
def launch(tmp_path: Path, repository: Path) -> Iterator[Launch]:
    made: list[NodeProcess] = []

    def start(*more: str) -> NodeProcess:
        arguments = [f"--model-repository={repository}", "--model-control-mode=explicit", "--load-on-request=true"]
        made.append(NodeProcess(tmp_path / f"node{len(made)}.log", *arguments, "--exit-timeout-secs=10", *more).start())
        return made[-1]

    yield start
    for node in made:
        node.end(signal.SIGKILL)


def post(node: NodeProcess, path: str, body: object) -> httpx2.Response:
    return httpx2.post(f"http://127.0.0.1:{node.http}/v2/{path}", json=body, verify=False, trust_env=False, timeout=60)


def infer(node: NodeProcess, model: str) -> httpx2.Response:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    return post(node, f"models/{model}/infer", {"inputs": [tensor]})


def index(node: NodeProcess) -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in post(node, "repository/index", {}).json()}


def test_the_first_requests_load_the_model_and_are_answered(launch: Launch) -> None:
    node = launch().until_ready()
    assert index(node)["a"] == INDEX
    assert "a" not in httpx2.get(
        f"http://127.0.0.1:{node.metrics}/metrics", verify=False, trust_env=False, timeout=30
    ).text.split('"')
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: infer(node, "a"), range(16)))
    assert [answer.json()["outputs"][0]["data"] for answer in answers] == [[2, 4, 6, 8]] * 16
    assert node.said().count("model.loading") == 1
    assert index(node)["a"]["state"] == "READY"
    assert index(node)["b"]["state"] == "UNAVAILABLE"
    assert infer(node, "nobody").json() == {"error": "Request for unknown model: 'nobody' is not found"}
    broken = [infer(node, "broken").json()["error"] for _ in range(2)]
    assert broken[0] == broken[1]
    assert "load failed for model 'broken'" in broken[0]
    assert node.end() == 0


def test_an_ensemble_brings_its_models_and_keeps_them_used(launch: Launch, repository: Path) -> None:
    size = (repository / "a" / "1" / "model.onnx").stat().st_size
    node = launch(f"--model-memory-budget={2 * size}").until_ready()
    assert infer(node, "both").json()["outputs"][0]["data"] == [6, 12, 18, 24]
    states = {name: row["state"] for name, row in index(node).items()}
    assert states == {"a": "READY", "b": "READY", "both": "READY", "broken": "UNAVAILABLE"}


def test_models_take_turns_in_a_small_memory(launch: Launch, repository: Path) -> None:
    size = (repository / "a" / "1" / "model.onnx").stat().st_size
    node = launch(f"--model-memory-budget={size + size // 2}").until_ready()
    for _ in range(2):
        for model, factor in (("a", 2), ("b", 3)):
            answer = infer(node, model)
            assert answer.json()["outputs"][0]["data"] == [factor * value for value in (1, 2, 3, 4)]
            eventually(
                lambda model=model: [n for n, row in index(node).items() if row["state"] == "READY"] == [model],
                "only one is loaded",
            )


def test_other_ways_to_ask_wait_too(launch: Launch) -> None:
    node = launch().until_ready()
    raw = httpx2.post(
        f"http://127.0.0.1:{node.http}/v2/models/b/infer",
        content=np.arange(4, dtype=np.float32).tobytes(),
        headers={"Inference-Header-Content-Length": "0"},
        verify=False,
        trust_env=False,
    )
    assert np.frombuffer(raw.content[-16:], np.float32).tolist() == [0, 3, 6, 9]
    client = triton_grpc.InferenceServerClient(f"127.0.0.1:{node.grpc}")
    tensor = triton_grpc.InferInput("x", [1, 4], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 4), np.float32))
    assert client.infer("both", [tensor]).as_numpy("y").tolist() == [[6, 6, 6, 6]]
    client.close()
    node.end()
    node = launch().until_ready()
    assert post(node, "models/nobody/generate", {"x": [1, 2, 3, 4]}).status_code == 404
    answer = post(node, "models/a/generate", {"x": [1, 2, 3, 4]})
    assert answer.json()["y"] == [2, 4, 6, 8]
