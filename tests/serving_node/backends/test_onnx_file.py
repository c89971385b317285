"""ONNX files that are cut, lie about their sizes or point elsewhere, refused before an engine sees them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from serving_node.backends.onnx_file import check_onnx_file
from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.tensor import Tensor
from tests.serving_node import onnx_models
from tests.serving_node.backends.model_calls import arrays, infer, load

WEIGHTS = np.arange(4, dtype=np.float32)


def external(location: str, **entries: int) -> TensorProto:
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        weights.external_data.add(key=key, value=str(value))
    return weights


def save(folder: Path, *weights: TensorProto, inside: bool = False) -> Path:
    """``y`` = ``x`` + ``w``; with ``inside`` the weights are a constant in a branch of an If."""
    float_ = TensorProto.FLOAT
    nodes, y = [helper.make_node("Add", ["x", "w"], ["y"])], [onnx_models.tensor("y", float_, ["N", 4])]
    if inside:
        branch = helper.make_graph([helper.make_node("Constant", [], ["w"], value=weights[0]), *nodes], "branch", [], y)
        nodes = [helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)]
    inputs = [onnx_models.tensor("x", float_, ["N", 4])] + [onnx_models.tensor("c", TensorProto.BOOL, [])] * inside
    graph = helper.make_graph(nodes, "test", inputs, y, [] if inside else list(weights))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


@pytest.mark.parametrize("location", ["w.bin", "weights/deep/w.bin"])
async def test_external_data_is_found_in_the_folder_and_below(tmp_path: Path, location: str) -> None:
    path = save(tmp_path / "1", external(location, offset=16, length=16))
    data = path.parent / location
    data.parent.mkdir(parents=True, exist_ok=True)
    data.write_bytes(bytes(16) + WEIGHTS.tobytes())
    assert check_onnx_file(path, path.parent) == (data,)

    model = await load(path.parent)
    (response,) = await infer(model, [Tensor.from_numpy("x", np.ones((2, 4), np.float32), "FP32")])
    assert arrays(response)["y"].tolist() == [[1, 2, 3, 4]] * 2
    assert model.memory_bytes >= path.stat().st_size + 32
    await model.close()


async def test_a_folder_with_the_graph_and_its_data_is_a_model(tmp_path: Path) -> None:
    path = save(tmp_path / "1" / "model.onnx", external("w.bin"))
    (path.parent / "w.bin").write_bytes(WEIGHTS.tobytes())
    model = await load(tmp_path / "1")
    (response,) = await infer(model, [Tensor.from_numpy("x", np.zeros((1, 4), np.float32), "FP32")])
    assert arrays(response)["y"].tolist() == [[0, 1, 2, 3]]
    await model.close()


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    ("location", "entries", "sentence"),
    [
        ("../secret.bin", {}, "lies outside the version's folder: '../secret.bin'"),
        ("/etc/hostname", {}, "lies outside the version's folder: '/etc/hostname'"),
        ("link.bin", {}, "lies outside the version's folder: 'link.bin'"),
        ("missing.bin", {}, "is missing: 'missing.bin'"),
        ("pipe", {}, "is no file: 'pipe'"),
        ("w.bin", {"offset": 8}, r"'w.bin' is truncated: tensor 'w' ends at byte 24, the file has 16$"),
        ("w.bin", {"offset": 2**62, "length": 16}, "'w.bin' is truncated"),
        ("w.bin", {"offset": -16}, "the place of tensor 'w' in 'w.bin' does not fit its shape"),
        ("w.bin", {"length": 8}, "the place of tensor 'w' in 'w.bin' does not fit its shape"),
    ],
)
async def test_external_data_elsewhere_or_cut_is_refused(
    tmp_path: Path, location: str, entries: dict[str, int], sentence: str, inside: bool
) -> None:
    path = save(tmp_path / "1", external(location, **entries), inside=inside)
    (tmp_path / "secret.bin").write_bytes(WEIGHTS.tobytes())
    (tmp_path / "1" / "w.bin").write_bytes(WEIGHTS.tobytes())
    (tmp_path / "1" / "link.bin").symlink_to(tmp_path / "secret.bin")
    os.mkfifo(tmp_path / "1" / "pipe")
    with pytest.raises(InferenceError, match=sentence) as caught:
        await load(path.parent)
    assert caught.value.code is ErrorCode.INVALID_ARG


@pytest.mark.parametrize(
    ("dims", "sentence"),
    [
        ([2**40], "needs 4398046511104 bytes, the file has 16"),
        ([2**40, 2**40], "has the impossible shape"),
        ([-4], "has the impossible shape"),
        ([1] * 100, "has the impossible shape"),
        ([3], "needs 12 bytes, the file has 16"),
    ],
)
def test_a_tensor_larger_than_its_bytes_is_refused(tmp_path: Path, dims: list[int], sentence: str) -> None:
    path = save(tmp_path, TensorProto(name="w", data_type=1, dims=dims, raw_data=bytes(16)))
    with pytest.raises(InferenceError, match=f"^'model.onnx' cannot be loaded: tensor 'w' .*{sentence}"):
        check_onnx_file(path, tmp_path)


def test_half_bytes_and_sparse_tensors_are_measured(tmp_path: Path) -> None:
    odd = TensorProto(name="w", data_type=TensorProto.INT4, dims=[3], raw_data=bytes(2))
    assert check_onnx_file(save(tmp_path, odd), tmp_path) == ()
    sparse = helper.make_sparse_tensor(external("gone.bin"), numpy_helper.from_array(np.arange(4), "places"), [9])
    model = onnx.load(save(tmp_path, odd))
    model.graph.sparse_initializer.append(sparse)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(InferenceError, match=r"missing: 'gone\.bin'"):
        check_onnx_file(tmp_path / "model.onnx", tmp_path)


def test_a_graph_that_nests_without_end_is_refused(tmp_path: Path) -> None:
    graph = b""
    for _ in range(200):  # GraphProto.node > NodeProto.attribute > AttributeProto.g
        for tag in (b"\x32", b"\x2a", b"\x0a"):
            graph = tag + _varint(len(graph)) + graph
    (tmp_path / "model.onnx").write_bytes(b"\x3a" + _varint(len(graph)) + graph)
    with pytest.raises(InferenceError, match="nested more than 100 messages deep"):
        check_onnx_file(tmp_path / "model.onnx", tmp_path)


def _varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


@given(st.data())
def test_damaged_bytes_are_read_or_refused_and_nothing_else(tmp_path_factory, data: st.DataObject) -> None:
    folder = tmp_path_factory.getbasetemp() / "damaged"
    content = bytearray(onnx_models.save_mlp(folder / "model.onnx", features=4, hidden=4, classes=2).read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    (folder / "model.onnx").write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with contextlib.suppress(InferenceError):
        check_onnx_file(folder / "model.onnx", folder)
