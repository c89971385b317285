"""A node with a backend that a package brings: the flag that lets it into the node's own process."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import numpy as np
import psutil
import pytest
import tritonclient.http as triton_http

from .processes import NodeProcess, eventually

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]
CONFIG = """
backend: "linear"
max_batch_size: 8
instance_group [ { count: 1 kind: KIND_CPU } ]
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository for the documented backend, whose package is installed beside the node."""
    place = tmp_path / "site-packages"
    folder = place / "linear_backend-1.0.dist-info"
    folder.mkdir(parents=True)
    page = (ROOT / "docs/howto/add-a-backend.md").read_text()
    (source,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (place / "linear_backend.py").write_text(source)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: linear-backend\nVersion: 1.0\n")
    groups = re.findall(r'\[project\.entry-points\."([^"]+)"\]\nlinear = "([^"]+)"', page)
    assert len(groups) == 2
    (folder / "entry_points.txt").write_text("".join(f"[{group}]\nlinear = {target}\n" for group, target in groups))
    monkeypatch.setenv("PYTHONPATH", f"{place}:{ROOT}")
    version = tmp_path / "models" / "m" / "1"
    version.mkdir(parents=True)
    np.savez(version / "model.npz", weights=np.eye(2, 3, dtype=np.float32), bias=np.ones(3, np.float32))
    (version.parent / "config.pbtxt").write_text(CONFIG)
    return tmp_path / "models"


@pytest.mark.parametrize("flags", [(), ("--in-process-backend=linear",)], ids=["worker", "node"])
def test_node_serves_a_backend_of_a_package(repository: Path, tmp_path: Path, flags: tuple[str, ...]) -> None:
    node = NodeProcess(tmp_path / "node.log", f"--model-repository={repository}", *flags).start()
    try:
        eventually(node.answers, "the node is ready")
        assert node.process is not None
        commands = [" ".join(child.cmdline()) for child in psutil.Process(node.process.pid).children()]
        assert any("hosted/stub.py" in command for command in commands) is not bool(flags)
        client = triton_http.InferenceServerClient(f"127.0.0.1:{node.http}")
        tensor = triton_http.InferInput("X", [2, 2], "FP32")
        tensor.set_data_from_numpy(np.array([[1, 2], [3, 4]], np.float32))
        assert client.infer("m", [tensor]).as_numpy("Y").tolist() == [[2, 3, 1], [4, 5, 1]]
        client.close()
    finally:
        node.end(signal.SIGKILL)
