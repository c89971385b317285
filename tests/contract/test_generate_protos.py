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


def test_regenerating_gives_the_checked_in_bytes(generator: ModuleType, tmp_path: Path) -> None:
    written = generator.generate(tmp_path)
    names = {path.name for path in written}
    assert {"model_config_pb2.py", "grpc_service_pb2.pyi", "health_pb2.py", "metrics_pb2.pyi"} <= names
    for path in written:
        checked_in = ROOT / path.relative_to(tmp_path)
        assert path.read_bytes() == checked_in.read_bytes(), f"run make proto: {checked_in}"
    protos = ROOT / "serving_node" / "contract" / "proto"
    assert {path.name for path in protos.glob("*_pb2.py*")} == names


def test_the_main_program_writes_below_out(
    generator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "made"
    monkeypatch.setattr(sys, "argv", ["generate_protos.py", "--out", str(target)])
    generator.main()
    assert str(target / "serving_node/contract/proto/health_pb2.py") in capsys.readouterr().out.splitlines()


def test_unknown_output_of_protoc_is_refused(generator: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="protoc's output has changed"):
        generator.use_own_pool("DESCRIPTOR = something_new()\n")
