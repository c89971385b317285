from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from tests.workers.checks import onnx_models as models
from workers.checks.formats import describe_content
from workers.checks.onnx_file import ExternalData, NotOnnx, UnreadableModel, read_onnx
from workers.checks.onnx_signature import signature_of

VALID = models.linear().SerializeToString()


def write(folder: Path, content: bytes, name: str = "model.onnx") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def test_summary_and_signature_of_a_valid_file(tmp_path: Path) -> None:
    summary = read_onnx(write(tmp_path, VALID), "model.onnx")
    assert (summary.ir_version, summary.opsets, summary.producer) == (8, {"": 17}, "tests")
    assert summary.operators == {("", "MatMul"), ("", "Add")}
    assert summary.initializers == {"w", "b"}
    assert not summary.external
    signature = signature_of(summary)
    assert [(t.name, t.datatype, t.shape) for t in signature.inputs] == [("x", "FP32", (-1, 4))]
    assert [(t.name, t.datatype, t.shape) for t in signature.outputs] == [("y", "FP32", (-1, 2))]


def test_it_sees_what_the_onnx_package_sees(tmp_path: Path) -> None:
    for model in (models.linear(), models.branching(), models.custom_operator(local=True)):
        summary = read_onnx(write(tmp_path, model.SerializeToString()), "m")
        assert [value.name for value in summary.inputs] == [value.name for value in model.graph.input]
        assert [value.name for value in summary.outputs] == [value.name for value in model.graph.output]
        assert {name for _domain, name in summary.operators} >= {node.op_type for node in model.graph.node}


def test_operators_inside_branches_and_functions_are_seen(tmp_path: Path) -> None:
    assert ("", "Constant") in read_onnx(write(tmp_path, models.branching().SerializeToString()), "m").operators
    summary = read_onnx(write(tmp_path, models.custom_operator(local=True).SerializeToString()), "m")
    assert summary.functions == {("acme.ops", "Double")}
    assert ("", "Add") in summary.operators


@pytest.mark.parametrize(("ir_version", "optional"), [(3, []), (8, ["w"])])
def test_inputs_with_a_default_are_not_asked_for(tmp_path: Path, ir_version: int, optional: list[str]) -> None:
    model = models.linear(ir_version=ir_version)
    model.graph.input.append(onnx.helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 2]))
    path = write(tmp_path, model.SerializeToString())
    signature = signature_of(read_onnx(path, "m"))
    assert [tensor.name for tensor in signature.inputs] == ["x"]
    assert [tensor.name for tensor in signature.optional_inputs] == optional
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [tensor.name for tensor in session.get_overridable_initializers()] == optional


def test_external_weights_are_named_and_not_opened(tmp_path: Path) -> None:
    path = models.with_external_data(tmp_path)
    (tmp_path / "weights.bin").unlink()
    summary = read_onnx(path, "model.onnx")
    assert ExternalData("weights.bin", 512 * 2 * 4) in summary.external


@given(st.integers(1, len(VALID) - 1))
@settings(max_examples=60, deadline=None)
def test_every_truncation_is_refused_with_one_sentence(tmp_path_factory: pytest.TempPathFactory, length: int) -> None:
    path = write(tmp_path_factory.getbasetemp(), VALID[:length])
    with pytest.raises(UnreadableModel) as caught:
        signature_of(read_onnx(path, "model.onnx"))
    assert "\n" not in str(caught.value)


def test_a_cut_file_is_called_truncated(tmp_path: Path) -> None:
    with pytest.raises(UnreadableModel, match=r"model.onnx is truncated: .* Upload it again"):
        read_onnx(write(tmp_path, VALID[:-20]), "model.onnx")


@pytest.mark.parametrize(
    ("content", "description"),
    [
        (b"hello, this is a text file\n" * 20, "a text file"),
        (b"PK\x03\x04" + b"\0" * 60, "a ZIP archive"),
        (b"\x80\x04\x95" + b"\0" * 60, "a Python pickle"),
        (b"\x89HDF\r\n\x1a\n" + b"\0" * 60, "an HDF5 file"),
        (b"<!DOCTYPE html><html></html>", "an HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "a Git LFS pointer"),
        ((90).to_bytes(8, "little") + b'{"a": 1}' + b" " * 82, "a safetensors file"),
    ],
)
def test_other_files_are_told_apart(tmp_path: Path, content: bytes, description: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(NotOnnx):
        read_onnx(path, "model.onnx")
    assert describe_content(path).startswith(description)


def test_an_empty_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(UnreadableModel, match="is empty"):
        read_onnx(write(tmp_path, b""), "model.onnx")


@given(st.binary(min_size=1, max_size=200))
def test_random_bytes_are_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = write(tmp_path_factory.getbasetemp(), content, "random")
    try:
        signature_of(read_onnx(path, "random"))
    except UnreadableModel:
        return
    onnx.load(path)  # if it was taken, it really is a model


def test_graphs_nested_without_end_are_refused(tmp_path: Path) -> None:
    def field(tag: int, content: bytes) -> bytes:
        length, head = len(content), bytearray([tag << 3 | 2])
        while length > 0x7F:
            head.append(length & 0x7F | 0x80)
            length >>= 7
        return bytes(head) + bytes([length]) + content

    graph = b""
    for _ in range(60):
        graph = field(1, field(5, field(6, graph)))  # node { attribute { g } }
    with pytest.raises(UnreadableModel, match="nested more than"):
        read_onnx(write(tmp_path, b"\x08\x08" + field(7, graph)), "model.onnx")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (models.sequence_output(), "The output 'y' is of kind sequence; only tensors can be served."),
        (models.identity(TensorProto.COMPLEX64, [1]), "The input 'x' holds COMPLEX64 elements"),
        (models.identity(TensorProto.FLOAT, None), "The input 'x' has no shape"),
    ],
)
def test_signatures_that_cannot_be_served(tmp_path: Path, model: onnx.ModelProto, message: str) -> None:
    with pytest.raises(UnreadableModel) as caught:
        signature_of(read_onnx(write(tmp_path, model.SerializeToString()), "model.onnx"))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("elem_type", "wire"),
    [
        (TensorProto.STRING, "BYTES"),
        (TensorProto.BFLOAT16, "BF16"),
        (TensorProto.BOOL, "BOOL"),
        (TensorProto.DOUBLE, "FP64"),
    ],
)
def test_element_types(tmp_path: Path, elem_type: int, wire: str) -> None:
    summary = read_onnx(write(tmp_path, models.identity(elem_type, [0, 3, "n"]).SerializeToString()), "m")
    assert signature_of(summary).inputs[0].datatype == wire
    assert signature_of(summary).inputs[0].shape == (-1, 3, -1)
