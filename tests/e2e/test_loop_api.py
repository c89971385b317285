"""The loop from CI: push, configure, deploy, predict, canary, roll back, approve; SDK, command and tritonclient."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tritonclient.grpc
import tritonclient.http

from flotilla.sdk import ApiError, Flotilla, OperationFailed
from tests.e2e.onnx_models import write_mlp
from tests.e2e.running import RunningFlotilla, clean_environment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

CONFIG = """
name: "mlp"
backend: "onnxruntime"
max_batch_size: 16
dynamic_batching { preferred_batch_size: [ 8, 16 ] max_queue_delay_microseconds: 20000 }
instance_group [ { count: 1 kind: KIND_CPU } ]
"""


@pytest.fixture(scope="module")
def people(flotilla: RunningFlotilla) -> dict[str, Any]:
    done = subprocess.run(
        [*flotilla.command, "manage", "--data-dir", str(flotilla.data_dir), "demo_accounts"],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment(),
        check=True,
    )
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def author(flotilla: RunningFlotilla, people: dict[str, Any]) -> Iterator[Flotilla]:
    with Flotilla(flotilla.url, people["author"]["token"]) as client:
        yield client


@pytest.fixture(scope="module")
def approver(flotilla: RunningFlotilla, people: dict[str, Any]) -> Iterator[Flotilla]:
    with Flotilla(flotilla.url, people["approver"]["token"]) as client:
        yield client


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {seed: write_mlp(folder / str(seed) / "model.onnx", seed=seed) for seed in (1, 2)}


@pytest.fixture(scope="module")
def served(author: Flotilla, files: dict[int, Path]) -> dict[str, Any]:
    """Version 1 under a batching config, on all of development."""
    version = author.push("mlp", {"model.onnx": files[1]}, source={"git_sha": "0" * 40})
    assert version["number"] == 1
    assert version["state"] == "ready"
    config = author.push_config("mlp", CONFIG, comment="batches of 16")
    answer = author.deploy(
        "mlp",
        "development",
        [{"version": 1, "config": config["number"], "role": "live", "weight": 100}],
    )
    assert answer["approval"] is None
    author.wait(answer["operation"] and {"id": answer["operation"]})
    return author.wait_settled("mlp", "development")


def _http(flotilla: RunningFlotilla) -> tritonclient.http.InferenceServerClient:
    return tritonclient.http.InferenceServerClient(f"127.0.0.1:{flotilla.node_port}", concurrency=16)


def _grpc(flotilla: RunningFlotilla) -> tritonclient.grpc.InferenceServerClient:
    return tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{flotilla.node_port + 1}")


def _ask(module: Any, client: Any, name: str, x: np.ndarray, version: str = "") -> Any:
    tensor = module.InferInput("x", list(x.shape), "FP32")
    tensor.set_data_from_numpy(x)
    return client.infer(name, [tensor], model_version=version)


def _versions_seen(flotilla: RunningFlotilla, name: str, count: int) -> dict[str, int]:
    client, x = _http(flotilla), np.zeros((1, 16), np.float32)
    seen: dict[str, int] = {}
    for _ in range(count):
        version = _ask(tritonclient.http, client, name, x).get_response()["model_version"]
        seen[version] = seen.get(version, 0) + 1
    return seen


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("rows", [1, 3, 16])
def test_predictions_equal_onnx_runtime_to_the_bit(
    flotilla: RunningFlotilla, served: dict[str, Any], files: dict[int, Path], protocol: str, rows: int
) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, 16)).astype(np.float32)
    expected = onnxruntime.InferenceSession(str(files[1])).run(None, {"x": x})[0]
    module, client = (
        (tritonclient.http, _http(flotilla)) if protocol == "http" else (tritonclient.grpc, _grpc(flotilla))
    )
    answer = _ask(module, client, served["deployment"]["served_name"], x, "1")
    assert answer.as_numpy("y").tobytes() == expected.tobytes()


def test_concurrent_requests_are_batched(flotilla: RunningFlotilla, served: dict[str, Any]) -> None:
    name = served["deployment"]["served_name"]
    client = _grpc(flotilla)
    before = client.get_inference_statistics(name, "1").model_stats[0]
    barrier = threading.Barrier(16)

    def ask(_index: int) -> None:
        barrier.wait(30)
        _ask(tritonclient.grpc, client, name, np.ones((1, 16), np.float32), "1")

    with ThreadPoolExecutor(16) as pool:
        for _ in range(4):
            list(pool.map(ask, range(16)))
    after = client.get_inference_statistics(name, "1").model_stats[0]
    inferences = after.inference_count - before.inference_count
    executions = after.execution_count - before.execution_count
    assert inferences == 64
    assert executions <= 32
    assert max(row.batch_size for row in after.batch_stats) > 1


def test_canary_moves_and_rolls_back(
    flotilla: RunningFlotilla, author: Flotilla, served: dict[str, Any], files: dict[int, Path]
) -> None:
    name = served["deployment"]["served_name"]
    config = served["routes"][0]["config"]
    assert author.push("mlp", {"model.onnx": files[2]})["number"] == 2

    def routes(canary: int) -> list[dict[str, Any]]:
        return [
            {"version": 1, "config": config, "role": "live", "weight": 100 - canary},
            {"version": 2, "config": config, "role": "canary", "weight": canary},
        ]

    plan = author.plan("mlp", "development", routes(10))
    assert plan["plan_digest"]
    author.deploy("mlp", "development", routes(10))
    author.wait_settled("mlp", "development")
    seen = _versions_seen(flotilla, name, 400)
    assert 0.02 < seen.get("2", 0) / 400 < 0.25, seen

    author.traffic("mlp", "development", {1: 50, 2: 50})
    author.wait_settled("mlp", "development")
    seen = _versions_seen(flotilla, name, 400)
    assert 0.35 < seen.get("2", 0) / 400 < 0.65, seen

    author.rollback("mlp", "development")
    status = author.wait_settled("mlp", "development")
    assert {route["version"]: route["weight"] for route in status["routes"]} != {1: 50, 2: 50}
    author.deploy("mlp", "development", [{"version": 1, "config": config, "role": "live", "weight": 100}])
    author.wait_settled("mlp", "development")
    assert _versions_seen(flotilla, name, 50) == {"1": 50}


def test_try_it_runs_in_a_worker(author: Flotilla, served: dict[str, Any]) -> None:
    request = {"inputs": [{"name": "x", "shape": [1, 16], "datatype": "FP32", "data": [0.5] * 16}]}
    answer = author.infer("mlp", "development", request)
    assert answer["response"]["outputs"][0]["shape"] == [1, 4]


def test_production_needs_somebody_else(
    author: Flotilla, approver: Flotilla, people: dict[str, Any], served: dict[str, Any]
) -> None:
    route = {"version": 1, "config": served["routes"][0]["config"], "role": "live", "weight": 100}
    answer = author.deploy("mlp", "production", [route], comment="release")
    assert answer["operation"] is None
    with pytest.raises(ApiError) as refusal:
        author.review(answer["approval"], "approve", plan_digest=answer["plan_digest"])
    assert refusal.value.status == 403
    with pytest.raises(ApiError) as stale:
        approver.review(answer["approval"], "approve", plan_digest="0" * 64)
    assert stale.value.status in (409, 412)
    approver.review(answer["approval"], "approve", plan_digest=answer["plan_digest"], comment="read it")
    status = author.wait_settled("mlp", "production")
    assert status["health"] == "healthy"
    assert approver.approval(answer["approval"])["state"] == "applied"


def _refused(author: Flotilla, file: Path, name: str = "model.onnx", model: str = "bad-uploads") -> str:
    before = len([v for v in author.versions("bad-uploads") if v["number"]]) if _known(author) else 0
    with pytest.raises((OperationFailed, ApiError)) as refusal:
        author.push(model, {name: file})
    after = len([v for v in author.versions("bad-uploads") if v["number"]]) if _known(author) else 0
    assert after == before
    return str(refusal.value)


def _known(author: Flotilla) -> bool:
    return any(model["slug"] == "bad-uploads" for model in author.models())


def test_truncated_file_is_refused(author: Flotilla, files: dict[int, Path], tmp_path: Path) -> None:
    cut = tmp_path / "model.onnx"
    cut.write_bytes(files[1].read_bytes()[:-200])
    assert "truncated" in _refused(author, cut).lower()


def test_other_file_is_refused(author: Flotilla, tmp_path: Path) -> None:
    text = tmp_path / "model.onnx"
    text.write_text("this is not a model\n" * 50)
    assert "not an onnx" in _refused(author, text).lower()


def test_unknown_opset_is_refused(author: Flotilla, files: dict[int, Path], tmp_path: Path) -> None:
    model = onnx.load(str(files[1]))
    model.opset_import[0].version = 99
    newer = tmp_path / "model.onnx"
    newer.write_bytes(model.SerializeToString())
    assert "opset" in _refused(author, newer).lower()


@pytest.mark.parametrize("path", ["../model.onnx", "/etc/model.onnx", "a\\b.onnx", "a/../../b.onnx"])
def test_path_tricks_are_refused(author: Flotilla, files: dict[int, Path], path: str) -> None:
    assert path.split("/")[-1] not in {""}
    _refused(author, files[1], name=path)


@pytest.mark.parametrize("name", ["../x", "a/b", "-x-/", "x y", ""])
def test_model_names_with_paths_are_refused(author: Flotilla, name: str) -> None:
    with pytest.raises(ApiError) as refusal:
        author.ensure_model(name)
    assert 400 <= refusal.value.status < 500


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ('input [ { name: "x" data_type: TYPE_INT64 dims: [ 16 ] } ]', "input"),
        ('input [ { name: "x" data_type: TYPE_FP32 dims: [ 99 ] } ]', "input"),
        ('output [ { name: "nope" data_type: TYPE_FP32 dims: [ 4 ] } ]', "output"),
        ("max_batch_size: -3", "max_batch_size"),
        ("dynamic_batching { preferred_batch_size: [ 64 ] }", "preferred_batch_size"),
        ("no_such_field: 1", "no_such_field"),
    ],
)
def test_config_against_the_model_is_refused(author: Flotilla, served: dict[str, Any], change: str, field: str) -> None:
    text = 'name: "mlp"\nbackend: "onnxruntime"\n'
    if "max_batch_size" not in change:
        text += "max_batch_size: 8\n"
    with pytest.raises(ApiError) as refusal:
        author.push_config("mlp", text + change)
    assert refusal.value.status == 400 or refusal.value.status == 422
    assert field in str(refusal.value)


def test_command_pushes_and_deploys(flotilla: RunningFlotilla, people: dict[str, Any], files: dict[int, Path]) -> None:
    environment = clean_environment(FLOTILLA_URL=flotilla.url, FLOTILLA_TOKEN=people["author"]["token"])

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "flotilla.cli", *arguments],
            capture_output=True,
            text=True,
            timeout=180,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "version 1 is ready" in run("push", "from-shell", str(files[1]))
    assert "serves" in run("deploy", "from-shell", "--version", "1")
    assert "from-shell" in run("status")
    assert "ready" in run("versions", "from-shell")
