"""kill -9 in the middle of a push: everything comes back, the push completes, and its effects happen once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

from flotilla.sdk import ApiError, Flotilla
from tests.e2e.onnx_models import write_mlp
from tests.e2e.running import RunningFlotilla, clean_environment, wait_until
from tests.ports import held_ports

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

T = TypeVar("T")
PROCESSES = ["node", "worker", "jobs", "valkey", "postgres"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFlotilla]:
    first = held_ports(5)
    flotilla = RunningFlotilla(tmp_path_factory.mktemp("recovery") / "data", first, first + 1)
    try:
        flotilla.start()
        yield flotilla
    finally:
        flotilla.discard()


@pytest.fixture(scope="module")
def client(running: RunningFlotilla) -> Iterator[Flotilla]:
    with Flotilla(running.url, _manage(running, "demo_accounts")["author"]["token"]) as found:
        yield found


def _manage(running: RunningFlotilla, *arguments: str) -> Any:
    done = subprocess.run(
        [*running.command, "manage", "--data-dir", str(running.data_dir), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment(),
        check=True,
    )
    return json.loads(done.stdout) if done.stdout.startswith("{") else done.stdout.strip()


def _persist(call: Callable[[], T], seconds: float = 120) -> T:
    """Repeat a call while the control plane is recovering."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except ApiError as error:
            if (error.status != 0 and error.status < 500) or time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def _route(version: int) -> list[dict[str, Any]]:
    return [{"version": version, "config": 0, "role": "live", "weight": 100}]


@pytest.mark.parametrize("name", PROCESSES)
def test_push_completes_after_kill(running: RunningFlotilla, client: Flotilla, tmp_path: Path, name: str) -> None:
    model = f"survives-{name}"
    first = write_mlp(tmp_path / "1" / "model.onnx", seed=1, width=512)
    assert client.push(model, {"model.onnx": first})["number"] == 1
    client.deploy(model, "development", _route(1))
    client.wait_settled(model, "development")

    second = write_mlp(tmp_path / "2" / "model.onnx", seed=2, width=512)
    assert client.push(model, {"model.onnx": second})["number"] == 2
    client.deploy(model, "development", _route(2))
    pid = running.pid_of(name)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)

    _persist(lambda: client.wait_settled(model, "development", 180), 180)
    assert [version["number"] for version in _persist(lambda: client.versions(model))] == [2, 1]
    status = _persist(lambda: client.deployment(model, "development"))
    assert [route["version"] for route in status["routes"]] == [2]
    assert status["deployment"]["generation"] == 2, "each deploy raised the generation once"
    served = status["deployment"]["served_name"]
    wait_until(lambda: _answers(running.node_port, served, 512) == "2", f"version 2 answers after kill of {name}")


def test_checks_complete_after_kill_of_their_worker(running: RunningFlotilla, client: Flotilla, tmp_path: Path) -> None:
    pid = running.pid_of("jobs")
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        files = {"model.onnx": write_mlp(tmp_path / "model.onnx", seed=3)}
        _version, checks = client.upload("survives-checks", files)
    finally:
        os.kill(pid, signal.SIGKILL)
    client.wait(checks, 180)
    assert [row["number"] for row in client.versions("survives-checks")] == [1]


def test_a_measurement_is_done_again_after_kill_of_its_worker(
    running: RunningFlotilla, client: Flotilla, tmp_path: Path
) -> None:
    client.push("measured", {"model.onnx": write_mlp(tmp_path / "model.onnx", seed=6)})
    base = "projects/default/models/measured/versions/1/measurements/"
    operation = client._post(base, {"node": "local", "batch": [1, 4], "instances": [1, 2], "seconds": 3})
    assert not _scratches(running.node_port)
    wait_until(lambda: _scratches(running.node_port), "the node has a copy")
    [copy] = _scratches(running.node_port)
    index = httpx2.post(f"http://127.0.0.1:{running.node_port}/v2/repository/index", json={}, timeout=30).json()
    assert "measured" not in {row["name"] for row in index} and copy not in {row["name"] for row in index}
    ready = httpx2.get(f"http://127.0.0.1:{running.node_port}/v2/models/{copy}/versions/1/ready", timeout=30)
    assert ready.status_code == 400, "nobody but the control plane reaches it"
    pid = running.pid_of("jobs")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert client.wait(operation, 240)["attempts"] == 2
    [measurement] = client.measurements("measured", 1)
    assert [cell["error"] for cell in measurement["cells"]] == [""] * 4
    wait_until(lambda: not _scratches(running.node_port), "the node has no copy any more")


def _scratches(port: int) -> set[str]:
    """Return the names of copies that the node has statistics of, which is as long as they are loaded."""
    stats = httpx2.get(f"http://127.0.0.1:{port}/v2/models/stats", timeout=30).json()["model_stats"]
    return {row["name"] for row in stats if row["name"].startswith("~")}


def _answers(port: int, name: str, width: int) -> str:
    """Return the version that answers, or an empty string."""
    tensor = tritonclient.http.InferInput("x", [1, width], "FP32")
    tensor.set_data_from_numpy(np.zeros((1, width), np.float32))
    with contextlib.suppress(InferenceServerException, OSError):
        return str(
            tritonclient.http.InferenceServerClient(f"127.0.0.1:{port}")
            .infer(name, [tensor])
            .get_response()["model_version"]
        )
    return ""


def test_node_serves_without_the_control_plane(own_flotilla: RunningFlotilla, tmp_path: Path) -> None:
    running = own_flotilla
    running.arguments = ("--no-node",)
    running.start()
    token_file = tmp_path / "token"
    token_file.write_text(_manage(running, "join_token", "--labels", "development=yes"))
    first = running.node_port
    command = [
        *(sys.executable, "-m", "serving_node", "--join", running.url, "--join-token-file", str(token_file)),
        *("--state-dir", str(tmp_path / "node"), "--node-name", "far"),
        *("--http-address", "127.0.0.1", "--http-port", str(first)),
        *("--grpc-address", "127.0.0.1", "--grpc-port", str(first + 1)),
        *("--metrics-address", "127.0.0.1", "--metrics-port", str(first + 2)),
        *("--admin-port", str(first + 3)),
    ]
    log = (tmp_path / "node.log").open("wb")
    node = subprocess.Popen(command, stdout=log, stderr=log, env=clean_environment())
    try:
        with Flotilla(running.url, _manage(running, "demo_accounts")["author"]["token"]) as client:
            wait_until(lambda: any(row["is_reachable"] for row in client.nodes()), "the node joins")
            client.push("alone", {"model.onnx": write_mlp(tmp_path / "model.onnx", seed=4)})
            client.deploy("alone", "development", _route(1))
            served = client.wait_settled("alone", "development")["deployment"]["served_name"]
        assert running.stop() == 0
        assert _answers(first, served, 16) == "1", "serves while the control plane is down"
        node.kill()
        node.wait(30)
        node = subprocess.Popen(command, stdout=log, stderr=log, env=clean_environment())
        wait_until(lambda: _answers(first, served, 16) == "1", "serves after its own restart")
    finally:
        node.terminate()
        node.wait(60)
        log.close()
