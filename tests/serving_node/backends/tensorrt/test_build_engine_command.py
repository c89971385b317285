"""``flotilla node build-engine``."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from serving_node.cli import main
from serving_node.cli.build_engine import main as build_engine
from serving_node.cli.build_engine import read_profile
from serving_node.contract.engine_builds import InputBounds
from serving_node.contract.errors import ContractError
from tests.serving_node import onnx_models
from tests.serving_node.backends.tensorrt import fake_tensorrt


def test_profiles_are_read() -> None:
    assert read_profile("a:0=1x16:8x16:32x16,s==-1:2:3").inputs == (
        InputBounds("a:0", (1, 16), (8, 16), (32, 16)),
        InputBounds("s", (-1,), (2,), (3,), of_values=True),
    )
    for text in ("x", "x=1:2", "x=1:2:3:4", "x=a:b:c", ""):
        with pytest.raises(ContractError, match="is no bounds of an input: write NAME=LEAST:BEST:LARGEST"):
            read_profile(text)


def test_an_engine_is_written_with_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, plan, cache = onnx_models.save_mlp(tmp_path / "m.onnx"), tmp_path / "m.plan", tmp_path / "timing"
    arguments = [str(model), "--output", str(plan), "--profile", "x=1x16:4x16:8x16", "--timing-cache", str(cache)]
    assert build_engine(arguments, fake_tensorrt) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[-1] == str(plan)
    assert "100.0%" in told.err
    engine = fake_tensorrt.Runtime(fake_tensorrt.ILogger()).deserialize_cuda_engine(plan.read_bytes())
    assert engine is not None
    assert engine.profiles == [{"x": [[1, 16], [4, 16], [8, 16]]}]
    assert cache.read_bytes() == b"timed"


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        ([], 1, "error: input 'x' has the dynamic shape [-1, 16]: the plan must say"),
        (["--profile", "x=2x16:1x16:8x16"], 2, "error: bounds of input 'x' must rise"),
        (["--max-batch-size", "-1"], 2, "error: 'max_batch_size' must be between 0 and"),
    ],
)
def test_what_cannot_be_built_is_told_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, text: str
) -> None:
    model, plan = onnx_models.save_mlp(tmp_path / "m.onnx"), tmp_path / "m.plan"
    assert build_engine([str(model), "--output", str(plan), *arguments], fake_tensorrt) == status
    assert capsys.readouterr().err.startswith(text)
    assert not plan.exists()


def test_a_machine_without_tensorrt_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if importlib.util.find_spec("tensorrt") is not None:
        pytest.skip("TensorRT is installed here")
    with pytest.raises(SystemExit) as ended:
        main(["build-engine", str(onnx_models.save_mlp(tmp_path / "m.onnx"))])
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("error: this node cannot build engines: No module named 'tensorrt'")
