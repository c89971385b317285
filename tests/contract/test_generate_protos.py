"""The checked-in stubs are what the generator writes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_protos", ROOT / "scripts" / "generate_protos.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run(generator: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["generate_protos.py", *arguments])
    return int(generator.main())


def test_regenerating_gives_the_checked_in_bytes(generator: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert generator.outdated(ROOT) == []
    assert _run(generator, monkeypatch, "--check") == 0


def test_files_are_written_below_out_and_a_changed_one_is_found(
    generator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    protos = tmp_path / "serving_node" / "contract" / "proto"
    assert _run(generator, monkeypatch, "--out", str(tmp_path)) == 0
    written = capsys.readouterr().out.split()
    assert str(protos / "health_pb2.py") in written
    assert str(protos / "model_config_pb2.pyi") in written
    assert generator.outdated(tmp_path) == []
    (protos / "health_pb2.py").write_text("# changed")
    (protos / "metrics_pb2.pyi").unlink()
    (protos / "old_pb2.py").touch()
    assert _run(generator, monkeypatch, "--check", "--out", str(tmp_path)) == 1
    complaints = capsys.readouterr().err.splitlines()
    assert [Path(line.split()[0]).name for line in complaints] == ["health_pb2.py", "metrics_pb2.pyi", "old_pb2.py"]


def test_unknown_output_of_protoc_is_refused(generator: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="protoc's output has changed"):
        generator.use_own_pool("DESCRIPTOR = something_new()\n")
