"""The response cache of real nodes: in memory, and on a Redis server that two of them share."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http

from tests.serving_node.valkey_process import PASSWORD, ValkeyProcess

from .processes import NodeProcess, doubling_model, eventually

pytestmark = pytest.mark.integration
Launch = Callable[..., NodeProcess]

# Counts its executions, so that an answer from the cache is known by its number.
_COUNTING = """
import numpy as np
import triton_python_backend_utils as utils

class TritonPythonModel:
    count = 0

    def execute(self, requests):
        responses = []
        for request in requests:
            self.count += 1
            x = utils.get_input_tensor_by_name(request, "x").as_numpy()
            if x[0, 0] < 0:
                responses.append(utils.InferenceResponse([], utils.TritonError("negative")))
                continue
            tensors = [utils.Tensor("y", x * 2), utils.Tensor("n", np.full((len(x), 1), self.count, np.int32))]
            responses.append(utils.InferenceResponse(tensors))
        return responses
"""
_COUNTING_CONFIG = """
backend: "python"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "n" data_type: TYPE_INT32 dims: [ 1 ] }
response_cache { enable: true }
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    for name, file, content, config in (
        ("doubling", "model.onnx", doubling_model(), "max_batch_size: 4 response_cache { enable: true }"),
        ("counting", "model.py", _COUNTING.encode(), _COUNTING_CONFIG),
    ):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "1" / file).write_bytes(content)
        (folder / name / "config.pbtxt").write_text(config)
    return folder


@pytest.fixture
def launch(tmp_path: Path, repository: Path) -> Iterator[Launch]:
    made: list[NodeProcess] = []

    def start(*more: str) -> NodeProcess:
        arguments = [f"--model-repository={repository}", "--exit-timeout-secs=10", *more]
        made.append(NodeProcess(tmp_path / f"node{len(made)}.log", *arguments).start())
        return made[-1]

    yield start
    for node in made:
        node.end(signal.SIGKILL)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ValkeyProcess]:
    made = ValkeyProcess(tmp_path)
    made.start()
    yield made
    made.kill()


def infer(node: NodeProcess, *values: float, model: str = "counting", **more: Any) -> dict[str, Any]:
    tensor = {"name": "x", "shape": [1, len(values)], "datatype": "FP32", "data": values}
    answer = call(node, "POST", f"/v2/models/{model}/infer", {"inputs": [tensor], **more})
    return {output["name"]: output["data"] for output in answer["outputs"]}


def call(node: NodeProcess, method: str, path: str, document: Any = None) -> Any:
    content = None if document is None else json.dumps(document)
    url = f"http://127.0.0.1:{node.http}{path}"
    answer = httpx2.request(method, url, content=content, timeout=30, verify=False, trust_env=False)
    assert answer.status_code == 200, answer.text
    return answer.json() if answer.content else None


def statistics(node: NodeProcess, model: str = "counting") -> dict[str, int]:
    [row] = call(node, "GET", f"/v2/models/{model}/stats")["model_stats"]
    counts = {name: value["count"] for name, value in row["inference_stats"].items()}
    return {"inferences": row["inference_count"], "executions": row["execution_count"], **counts}


def metric(node: NodeProcess, name: str) -> float:
    text = httpx2.get(f"http://127.0.0.1:{node.metrics}/metrics", verify=False, trust_env=False, timeout=30).text
    return float(next(line.rsplit(" ", 1)[1] for line in text.splitlines() if line.startswith(name)))


def redis_flags(store: ValkeyProcess) -> list[str]:
    settings = {"host": "127.0.0.1", "port": store.port, "password": PASSWORD, "socket_timeout": 5000}
    return [f"--cache-config=redis,{key}={value}" for key, value in settings.items()]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_hit_is_the_same_answer_to_the_bit_and_runs_nothing(launch: Launch, protocol: str) -> None:
    node = launch("--cache-config", "local,size=1000000").until_ready()
    module: Any = triton_http if protocol == "http" else triton_grpc
    client = module.InferenceServerClient(f"127.0.0.1:{node.http if protocol == 'http' else node.grpc}")
    data = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    for model in ("doubling", "counting"):
        tensor = module.InferInput("x", list(data.shape), "FP32")
        tensor.set_data_from_numpy(data)
        answers = [client.infer(model, [tensor], request_id=identity) for identity in ("a", "b", "c")]
        assert len({answer.as_numpy("y").tobytes() for answer in answers}) == 1
        assert answers[0].as_numpy("y").tobytes() == (data * 2).tobytes()
        assert statistics(node, model) == {
            "inferences": 3, "executions": 1, "success": 3, "fail": 0, "queue": 3, "compute_input": 1,
            "compute_infer": 1, "compute_output": 1, "cache_hit": 2, "cache_miss": 1,
        }  # fmt: skip
    assert {answer.as_numpy("n").tolist()[0][0] for answer in answers} == {1}
    client.close()
    labels = '{model="counting",version="1"}'
    assert metric(node, f"nv_cache_num_hits_per_model{labels}") == 2
    assert metric(node, f"nv_cache_num_misses_per_model{labels}") == 1
    assert metric(node, f"nv_cache_hit_duration_per_model{labels}") > 0
    assert metric(node, f"nv_inference_request_success{labels}") == 3
    assert metric(node, f"nv_inference_exec_count{labels}") == 1
    assert (metric(node, "nv_cache_num_entries"), metric(node, "nv_cache_num_hits ")) == (2, 4)


def test_what_differs_runs_and_what_fails_is_not_kept(launch: Launch) -> None:
    node = launch("--response-cache-byte-size=1000000").until_ready()
    assert "--cache-config=local,size=1000000" in node.said()
    assert [infer(node, 1, 2)["n"], infer(node, 1, 2)["n"], infer(node, 1, 2, id="x")["n"]] == [[1], [1], [1]]
    assert infer(node, 1, 2, parameters={"p": 1})["n"] == [2]
    assert infer(node, 1, 2, outputs=[{"name": "n"}]) == {"n": [3]}
    assert infer(node, 1, 2, parameters={"sequence_id": 7})["n"] == [4]
    assert infer(node, 1, 2, parameters={"sequence_id": 7})["n"] == [5]
    for _ in range(2):
        with pytest.raises(AssertionError, match="negative"):
            infer(node, -1, 2)
    assert statistics(node)["fail"] == 2


def test_without_a_cache_everything_runs_and_the_series_are_there(launch: Launch) -> None:
    node = launch().until_ready()
    assert [infer(node, 1)["n"], infer(node, 1)["n"]] == [[1], [2]]
    assert metric(node, "nv_cache_num_hits_per_model") == 0


def test_another_config_gives_no_old_answers(launch: Launch, repository: Path) -> None:
    node = launch("--cache-config=local,size=1000000", "--model-control-mode=explicit", "--load-model=counting")
    node.until_ready()
    assert [infer(node, 1)["n"], infer(node, 1)["n"], infer(node, 2)["n"]] == [[1], [1], [2]]
    config = repository / "counting" / "config.pbtxt"
    config.write_text(_COUNTING_CONFIG.replace("max_batch_size: 8", "max_batch_size: 4"))
    call(node, "POST", "/v2/repository/models/counting/load")
    assert infer(node, 2)["n"] == [1], "computed again"
    eventually(lambda: metric(node, "nv_cache_num_entries") == 1, "the old answers are gone")


_ENSEMBLE_CONFIG = """
platform: "ensemble"
max_batch_size: 8
input { name: "a" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "b" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "number" data_type: TYPE_INT32 dims: [ 1 ] }
ensemble_scheduling {
  step {
    model_name: "counting" model_version: -1
    input_map { key: "x" value: "a" } output_map { key: "y" value: "b" } output_map { key: "n" value: "number" }
  }
}
response_cache { enable: true }
"""


@pytest.mark.parametrize("kind", ["local", "redis"])
def test_an_ensemble_forgets_what_its_models_said_before_they_changed(
    launch: Launch, repository: Path, store: ValkeyProcess, kind: str
) -> None:
    (repository / "chain" / "1").mkdir(parents=True)
    (repository / "chain" / "config.pbtxt").write_text(_ENSEMBLE_CONFIG)
    config = repository / "counting" / "config.pbtxt"
    uncached = _COUNTING_CONFIG.replace("enable: true", "enable: false")
    config.write_text(uncached)
    flags = ["--cache-config=local,size=1000000"] if kind == "local" else redis_flags(store)
    node = launch(*flags, "--model-control-mode=explicit", "--load-model=chain").until_ready()

    def ask(value: float) -> list[int]:
        tensor = {"name": "a", "shape": [1, 1], "datatype": "FP32", "data": [value]}
        answer = call(node, "POST", "/v2/models/chain/infer", {"inputs": [tensor]})
        return next(output["data"] for output in answer["outputs"] if output["name"] == "number")

    assert ask(1) == [1]
    eventually(lambda: statistics(node, "chain")["cache_miss"] == 1, "the answer is kept")
    assert [ask(1), ask(2)] == [[1], [2]]
    assert statistics(node, "chain")["cache_hit"] == 1
    assert statistics(node)["success"] == 2, "a hit runs no step"
    config.write_text(uncached.replace("max_batch_size: 8", "max_batch_size: 16"))
    call(node, "POST", "/v2/repository/models/counting/load")
    assert ask(2) == [1], "computed again, by the new model"


def test_two_nodes_share_a_redis_server(launch: Launch, store: ValkeyProcess) -> None:
    one, two = launch(*redis_flags(store)), launch(*redis_flags(store))
    one.until_ready()
    two.until_ready()
    infer(two, 9)
    assert infer(one, 1)["n"] == [1]
    eventually(lambda: statistics(one)["cache_miss"] == 1, "the answer is kept")
    assert infer(two, 1)["n"] == [1], "that of the other node"
    assert statistics(two)["cache_hit"] == 1
    # away in the middle: everything runs, and is told once
    store.kill()
    assert [infer(one, 1)["n"], infer(one, 1)["n"]] == [[2], [3]]
    assert metric(one, "flotilla_cache_failures_total") >= 1
    store.start()

    def is_back() -> bool:
        infer(one, 5)
        return statistics(one)["cache_hit"] > 0

    eventually(is_back, "the server is used again")
    for node in (one, two):
        assert node.said().count("cache.redis_away") <= 1
        assert PASSWORD not in node.said()
        assert node.end() == 0


def test_a_redis_server_that_is_not_there_is_no_reason_not_to_start(launch: Launch) -> None:
    node = launch("--cache-config=redis,host=127.0.0.1", "--cache-config=redis,port=1").until_ready()
    assert [infer(node, 1)["n"], infer(node, 1)["n"]] == [[1], [2]]
    assert "cache.redis_away" in node.said()
