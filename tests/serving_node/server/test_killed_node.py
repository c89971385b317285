"""A node that is killed leaves nothing behind: no process, no shared memory, no temporary folder."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import tritonclient.http as triton_http

from .processes import NodeProcess, eventually

pytestmark = pytest.mark.integration
Start = Callable[[], NodeProcess]

PYTHON = b"""
import subprocess
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.helper = subprocess.Popen(["sleep", "1000"], start_new_session=False)

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", one.inputs()[0].as_numpy())]) for one in requests
        ]
"""
CONFIG = """
backend: "{backend}" max_batch_size: 8
input [ {{ name: "IN" data_type: TYPE_FP32 dims: [ -1 ] }} ]
output [ {{ name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }} ]
parameters {{ key: "flotilla.host" value {{ string_value: "process" }} }}
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a node with both models."""
    models = repository(tmp_path)
    made: list[NodeProcess] = []

    def launch() -> NodeProcess:
        made.append(NodeProcess(tmp_path / "node.log", f"--model-repository={models}").start())
        return made[-1].until_ready()

    yield launch
    for node in made:
        node.end(signal.SIGKILL)


def repository(folder: Path) -> Path:
    for backend in ("python", "identity"):
        version = folder / "repository" / backend / "1"
        version.mkdir(parents=True)
        (version.parent / "config.pbtxt").write_text(CONFIG.format(backend=backend))
    (folder / "repository" / "python" / "1" / "model.py").write_bytes(PYTHON)
    return folder / "repository"


def echo(node: NodeProcess, model: str) -> None:
    """Send a tensor that travels in shared memory, there and back."""
    client = triton_http.InferenceServerClient(f"127.0.0.1:{node.http}")
    given = np.random.default_rng(3).random((2, 300_000), np.float32)
    tensor = triton_http.InferInput("IN", list(given.shape), "FP32")
    tensor.set_data_from_numpy(given)
    assert np.array_equal(client.infer(model, [tensor]).as_numpy("OUT"), given)
    client.close()


def maps(pids: set[int], what: str) -> list[str]:
    """Return what the processes that still run map of a kind of memory."""
    found = []
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/maps").read_text()
        except OSError:
            continue
        found += [line for line in text.splitlines() if what in line]
    return found


def test_a_killed_node_leaves_nothing(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    node = start()
    assert node.process is not None
    for model in ("python", "identity"):
        echo(node, model)
    below = psutil.Process(node.process.pid).children(recursive=True)
    pids = {node.process.pid, *(process.pid for process in below)}
    assert "sleep" in [process.name() for process in below], "what a worker has started counts too"
    assert len(maps(pids, "memfd:flotilla")) >= 3
    assert not maps(pids, "/dev/shm"), "memory with a name outlives whoever made it"
    folders = list(temporary.glob("flotilla-worker-*"))
    assert len(folders) == 2
    node.end(signal.SIGKILL)
    eventually(lambda: not any(map(psutil.pid_exists, pids)), "everything ends with the node")
    eventually(lambda: not any(folder.exists() for folder in folders), "the folders go")
    assert not maps(pids, "memfd:flotilla")


def test_a_node_that_is_asked_to_end_leaves_nothing(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    node = start()
    assert node.process is not None
    pids = {process.pid for process in psutil.Process(node.process.pid).children(recursive=True)}
    assert node.end() == 0
    eventually(lambda: not any(map(psutil.pid_exists, pids)), "everything ends with the node")
    assert not list(tmp_path.glob("flotilla-worker-*"))
