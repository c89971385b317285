"""Exported programs to ONNX, compared with PyTorch called directly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from conversion.errors import ConversionFailed
from conversion.samples import Dynamic, InputSpec
from conversion.torch_program import TorchProgram
from tests.conversion.conftest import Converted


class Reader(nn.Module):
    """Shapes: vectors (batch, 8), tokens (batch, 3) int64 -> shares (batch, 4), tokens + 1."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 4)
        self.words = nn.Embedding(10, 8)

    def forward(self, vectors: torch.Tensor, tokens: torch.Tensor) -> Any:
        return torch.softmax(self.head(vectors) + self.head(self.words(tokens).mean(1)), -1), tokens + 1


class Nested(nn.Module):
    def forward(self, both: dict[str, torch.Tensor], some: list[torch.Tensor], *, more: torch.Tensor) -> Any:
        return {"b": both["y"] * 2, "a": [some[0] + more]}


class Decomposes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigvals(x).real


def saved(program: Any, path: Path) -> Path:
    torch.export.save(program, path)
    return path


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", min=1, max=5)
    example = (torch.randn(2, 8), torch.randint(0, 10, (2, 3)))
    shapes = {"vectors": {0: batch}, "tokens": {0: batch}}
    return saved(torch.export.export(Reader().eval(), example, dynamic_shapes=shapes), tmp_path / "reader.pt2")


def test_a_program_answers_as_in_pytorch(reader: Path, converted: Callable[..., Converted]) -> None:
    report, target = converted(reader, allow_code=True)
    assert (report.verdict, report.steps) == ("pass", ("onnx",))
    assert report.samples.rows == (1, 5)  # as far as the program allows
    session = onnxruntime.InferenceSession(str(target), providers=["CPUExecutionProvider"])
    vectors = np.random.default_rng(1).normal(size=(3, 8)).astype(np.float32)
    tokens = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    found = session.run(None, {"vectors": vectors, "tokens": tokens})
    with torch.inference_mode():
        wanted = torch.export.load(reader).module()(torch.from_numpy(vectors), torch.from_numpy(tokens))
    np.testing.assert_allclose(found[0], wanted[0].numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[1], wanted[1].numpy())


def test_packages_are_read_only_when_allowed(reader: Path, converted: Callable[..., Converted]) -> None:
    with pytest.raises(ConversionFailed, match=r"can run code.*--allow-code"):
        converted(reader)


def test_half_precision_follows_in_one_go(reader: Path, converted: Callable[..., Converted]) -> None:
    report, target = converted(reader, "fp16", allow_code=True)
    assert report.steps == ("onnx", "fp16")
    assert report.verdict == "pass"
    assert any(one.data_type == onnx.TensorProto.FLOAT16 for one in onnx.load(target).graph.initializer)


def test_inputs_have_the_bounds_of_the_program(reader: Path) -> None:
    first, second = TorchProgram(reader).inputs()
    assert isinstance(first.shape[0], Dynamic)
    assert (first.shape[0].low, first.shape[0].high) == (1, 5)
    assert second == InputSpec("tokens", "INT64", (first.shape[0], 3))


def test_dictionaries_lists_and_keywords_are_unfolded(tmp_path: Path, converted: Callable[..., Converted]) -> None:
    arguments = ({"y": torch.randn(3, 3)}, [torch.randn(2)])
    program = torch.export.export(Nested(), arguments, kwargs={"more": torch.randn(2)})
    report, target = converted(saved(program, tmp_path / "nested.pt2"), allow_code=True)
    assert report.verdict == "pass"
    assert [value.name for value in onnx.load(target).graph.input] == ["both_y", "some_0", "more"]


def test_operators_that_onnx_lacks_are_named(tmp_path: Path, converted: Callable[..., Converted]) -> None:
    path = saved(torch.export.export(Decomposes(), (torch.randn(3, 3),)), tmp_path / "eig.pt2")
    with pytest.raises(ConversionFailed, match=r"ONNX has nothing for the operator aten\.linalg_eig"):
        converted(path, allow_code=True)


def test_samples_beyond_the_program_are_refused_with_a_way_out(
    reader: Path, converted: Callable[..., Converted]
) -> None:
    with pytest.raises(ConversionFailed, match=r"refuses the samples .*--integers"):
        converted(reader, low=0, high=400, batches=(5,), allow_code=True)


def test_damaged_programs_are_said(reader: Path, tmp_path: Path, converted: Callable[..., Converted]) -> None:
    cut = tmp_path / "cut.pt2"
    cut.write_bytes(reader.read_bytes()[:2000])
    with pytest.raises(ConversionFailed, match="ends too early"):
        converted(cut)
    import zipfile

    empty = tmp_path / "empty.pt2"
    with zipfile.ZipFile(empty, "w") as archive:
        archive.writestr("m/archive_format", "pt2")
    with pytest.raises(ConversionFailed, match="no exported program that this PyTorch can read"):
        converted(empty, allow_code=True)
