"""ONNX to ONNX: simplified and in half precision, compared with ONNX Runtime called directly."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from conversion.errors import ConversionFailed
from conversion.samples import random_inputs
from tests.conversion import models
from tests.conversion.conftest import Converted


@pytest.fixture
def network(tmp_path: Path) -> Path:
    path = tmp_path / "network.onnx"
    onnx.save(models.network(), path)
    return path


def answers(path: Path, x: Any) -> list[Any]:
    return list(onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x}))


def test_simplified_has_less_and_answers_alike(network: Path, converted: Callable[..., Converted]) -> None:
    report, target = converted(network, "simplified")
    assert report.verdict == "pass"
    before, after = onnx.load(network).graph, onnx.load(target).graph
    assert len(after.node) < len(before.node)
    assert list(after.input) == list(before.input)
    assert list(after.output) == list(before.output)
    x = np.random.default_rng(5).normal(size=(16, 8)).astype(np.float32)
    for first, second in zip(answers(network, x), answers(target, x), strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-6)


def test_half_precision_keeps_the_interface_and_comes_near(network: Path, converted: Callable[..., Converted]) -> None:
    report, target = converted(network, "fp16")
    assert [output.verdict for output in report.outputs] == ["pass", "pass"]
    assert 0 < report.outputs[0].max_absolute < 1e-2
    graph = onnx.load(target).graph
    assert {value.type.tensor_type.elem_type for value in graph.input} == {onnx.TensorProto.FLOAT}
    assert any(tensor.data_type == onnx.TensorProto.FLOAT16 for tensor in graph.initializer)


def test_the_figures_are_those_of_the_runtime_called_directly(
    network: Path, converted: Callable[..., Converted], tmp_path: Path
) -> None:
    x = np.random.default_rng(3).normal(size=(4, 8)).astype(np.float32)
    samples = tmp_path / "samples.npz"
    np.savez(samples, x=x)
    report, target = converted(network, "fp16", samples=str(samples))
    first, second = answers(network, x)[0], answers(target, x)[0]
    difference = np.abs(first.astype(np.float64) - second)
    assert report.samples.rows == (4,)
    assert report.samples.seed is None
    assert report.outputs[0].max_absolute == pytest.approx(difference.max())
    assert report.outputs[0].max_relative == pytest.approx((difference / first).max())


def test_inputs_and_outputs_become_fp16_when_asked(network: Path, converted: Callable[..., Converted]) -> None:
    report, target = converted(network, "simplified", "fp16", keep_io_types=False)
    assert report.steps == ("simplified", "fp16")
    assert report.outputs[0].datatype == "FP16"
    assert report.verdict == "pass"
    assert onnx.load(target).graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16


def test_what_half_precision_cannot_hold_fails(tmp_path: Path, converted: Callable[..., Converted]) -> None:
    path = tmp_path / "large.onnx"
    onnx.save(models.large_sum(), path)
    report, _target = converted(path, "fp16", batches=(200,))
    assert report.verdict == "fail"
    inside = report.outputs[1]
    assert (inside.name, inside.verdict) == ("far (inside)", "fail")
    assert inside.non_finite == inside.differing > 0


def test_half_precision_files_are_in_order(network: Path, converted: Callable[..., Converted]) -> None:
    _report, target = converted(network, "fp16")
    onnx.checker.check_model(str(target))


def test_the_report_names_both_files_and_the_libraries(network: Path, converted: Callable[..., Converted]) -> None:
    report, target = converted(network, "simplified")
    for described, path in ((report.source, network), (report.target, target)):
        content = path.read_bytes()
        assert (described.name, described.size) == (path.name, len(content))
        assert described.sha256 == hashlib.sha256(content).hexdigest()
    assert report.tools["onnxruntime"] == onnxruntime.__version__
    assert report.samples.rows == (1, 7)


def test_weights_beside_the_file_are_taken_in(tmp_path: Path, converted: Callable[..., Converted]) -> None:
    path = tmp_path / "split.onnx"
    onnx.save_model(models.network(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    report, target = converted(path, "simplified")
    assert report.verdict == "pass"
    assert not any(tensor.external_data for tensor in onnx.load(target, load_external_data=False).graph.initializer)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ConversionFailed, match=r"split\.onnx"):
        converted(path, "simplified")


def test_models_without_fp32_have_nothing_to_make_smaller(tmp_path: Path, converted: Callable[..., Converted]) -> None:
    path = tmp_path / "integers.onnx"
    onnx.save(models.integers(), path)
    with pytest.raises(ConversionFailed, match="no FP32 weights"):
        converted(path, "fp16")


def test_onnx_needs_a_step(network: Path, converted: Callable[..., Converted]) -> None:
    with pytest.raises(ConversionFailed, match="is ONNX already"):
        converted(network)


def test_what_the_runtime_refuses_is_said(tmp_path: Path, converted: Callable[..., Converted]) -> None:
    model = models.network()
    model.graph.node.add(op_type="NoSuchOperator", input=["logits"], output=["z"])
    path = tmp_path / "odd.onnx"
    onnx.save(model, path)
    with pytest.raises(ConversionFailed, match="NoSuchOperator"):
        converted(path, "fp16")


def test_samples_stay_within_the_bounds_of_the_order(network: Path) -> None:
    from conversion.onnx_file import input_specs

    drawn = random_inputs(input_specs(onnx.load(network)), batch=5, seed=0)
    assert drawn["x"].shape == (5, 8)
