"""The wheel: installed into a clean environment, it starts everything; the base install alone runs the command."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.e2e.running import RunningFlotilla, clean_environment
from tests.ports import held_ports

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[2]


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=clean_environment())
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    _run(sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT))
    return next(folder.glob("*.whl"))


def _environment(folder: Path) -> str:
    venv.create(folder, with_pip=True)
    return str(folder / "bin" / "python")


def test_base_install_is_the_command_alone(wheel: Path, tmp_path: Path) -> None:
    python = _environment(tmp_path / "venv")
    _run(python, "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), str(wheel))
    assert "push" in _run(str(tmp_path / "venv" / "bin" / "flotilla"), "--help")
    done = subprocess.run([python, "-c", "import django"], capture_output=True, check=False)
    assert done.returncode != 0


@pytest.mark.slow
def test_installed_wheel_starts_everything(wheel: Path, tmp_path: Path) -> None:
    python = _environment(tmp_path / "venv")
    requirement = f"flotilla[console,node,onnx,embedded] @ {wheel.as_uri()}"
    _run(python, "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), requirement)
    first = held_ports(5)
    running = RunningFlotilla(
        tmp_path / "data", first, first + 1, command=[str(tmp_path / "venv" / "bin" / "flotilla")]
    )
    running.start()
    try:
        assert running.get(f"{running.url}/login/") == 200
        assert running.get(f"{running.url}/static/css/app.css") == 200
        assert running.get(f"http://127.0.0.1:{running.node_port}/v2/health/ready") == 200
    finally:
        assert running.stop() == 0
        running.discard()
