"""What models import: the module by itself, without a worker around it. The texts are those of a real Triton."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

WORKER = Path(__file__).parents[4] / "serving_node" / "backends" / "python" / "worker"
DTYPES = ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64"]


class Runtime:
    """Keeps what leaves the module."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, Any, int]] = []
        self.lines: list[tuple[int, str, str]] = []
        self.forgot: list[int] = []

    def send(self, sender: Any, response: Any, flags: int) -> None:
        self.sent.append((sender, response, flags))

    def log(self, level: int, text: str, file: str, line: int) -> None:
        self.lines.append((level, text, Path(file).name))

    def forgotten(self, handle: int) -> None:
        self.forgot.append(handle)

    def is_cancelled(self, handle: int) -> bool:
        return handle == 13


@pytest.fixture
def pb(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(WORKER))
    import triton_python_backend_utils as pb_utils

    monkeypatch.setattr(pb_utils, "_runtime", Runtime())
    yield pb_utils
    for name in [name for name in sys.modules if name.startswith("flotilla_") or name == pb_utils.__name__]:
        del sys.modules[name]


def test_tensors_from_the_wire_are_views_that_may_be_written(pb: ModuleType) -> None:
    data = bytearray(np.arange(6, dtype=np.float32).tobytes())
    tensor = pb.Tensor._from_wire("A", "FP32", [2, 3], data)
    tensor.as_numpy()[0, 0] = 7
    assert np.frombuffer(data, np.float32)[0] == 7
    assert (tensor.name(), tensor.shape(), tensor.triton_dtype(), tensor.is_cpu()) == ("A", [2, 3], 11, True)
    assert pb.Tensor._from_wire("A", "INT64", [0, 3], b"").as_numpy().shape == (0, 3)


@pytest.mark.parametrize("number", range(1, 14))
def test_every_datatype_has_its_number_and_numpy_type(pb: ModuleType, number: int) -> None:
    kind = pb.triton_to_numpy_type(number)
    assert pb.numpy_to_triton_type(kind) == number
    assert pb.Tensor("A", np.zeros(1, kind)).triton_dtype() == number


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda pb: pb.Tensor("", np.zeros(1)), "Tensor name cannot be an empty string."),
        (lambda pb: pb.Tensor("A", np.zeros(1, ">f4")), "NumPy dtype is not supported."),
        (lambda pb: pb.Tensor("A", np.zeros(1, "U3")), "NumPy dtype is not supported."),
        (lambda pb: pb.Tensor("A", np.array([b""], object)).to_dlpack(), "does not have support for string"),
        (lambda pb: pb.Tensor.from_dlpack("A", 5), "Provided tensor is not supported"),
        (lambda pb: pb.Tensor.from_dlpack("A", np.zeros((2, 3)).T), "DLPack tensor is not contiguous"),
        (lambda pb: pb.Tensor._from_wire("A", "BF16", [1], bytearray(2)).as_numpy(), "Tensor dtype is BF16"),
        (lambda pb: pb.InferenceResponse([None]), "Output tensor for inference response should not be empty."),
        (lambda pb: pb.InferenceResponse([], parameters={"a": 1.5}), "Expect parameters values to have type"),
        (lambda pb: pb.InferenceResponse([], parameters={1: 1}), "Expect parameters keys to have type str"),
        (lambda pb: pb.load_model("other", files=5), "failed to load model 'other', files should be a dictionary"),
        (lambda pb: pb.MetricFamily("a", "b", pb.MetricFamily.GAUGE), "Metrics are out of reach here."),
        (
            lambda pb: pb.InferenceRequest(inputs=[None], requested_output_names=[], model_name="m"),
            "Input tensor for request with id '' and model name 'm' should not be empty.",
        ),
        (
            lambda pb: pb.InferenceRequest(inputs=[], requested_output_names=[""], model_name="m"),
            "Requested output name for request with id '' and model name 'm' should not be empty.",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_named(pb: ModuleType, make: Any, sentence: str) -> None:
    with pytest.raises(pb.TritonModelException) as caught:
        make(pb)
    assert str(caught.value).startswith(sentence) or sentence in str(caught.value)


@pytest.mark.parametrize("datatype", DTYPES)
def test_dlpack_shares_the_memory(pb: ModuleType, datatype: str) -> None:
    array = np.zeros((2, 3), pb.triton_string_to_numpy(f"TYPE_{datatype}"))
    tensor = pb.Tensor.from_dlpack("A", array)
    array[1, 2] = 1
    assert tensor.as_numpy()[1, 2] == 1
    assert np.array_equal(np.from_dlpack(tensor), array)
    again = pb.Tensor.from_dlpack("B", tensor.to_dlpack())
    del array, tensor
    assert again.as_numpy().sum() == 1
    assert pb.Tensor.from_dlpack("A", np.zeros((0, 3))).shape() == [0, 3]


def test_bfloat16_travels_through_dlpack(pb: ModuleType) -> None:
    bits = bytearray(np.array([0x3F80, 0x4000], np.uint16).tobytes())
    tensor = pb.Tensor.from_dlpack("B", pb.Tensor._from_wire("A", "BF16", [2], bits))
    assert tensor.triton_dtype() == 14
    torch = pytest.importorskip("torch")
    assert torch.from_dlpack(tensor).tolist() == [1.0, 2.0]
    assert pb.Tensor.from_dlpack("C", torch.ones(2, dtype=torch.bfloat16))._array.tolist() == [0x3F80, 0x3F80]


def test_strings_keep_zeros_and_become_bytes(pb: ModuleType) -> None:
    array = np.array([[b"a\0", "\N{SNOWMAN}"], [3, b""]], dtype=object)
    encoded = pb.serialize_byte_tensor(array)
    assert pb.deserialize_bytes_tensor(encoded).tolist() == [b"a\0", "\N{SNOWMAN}".encode(), b"3", b""]
    assert pb.serialize_byte_tensor(np.array([], dtype=object)) == ()
    assert pb.serialize_byte_tensor(np.zeros(2)) is None
    assert pb.wire_bytes(np.array([b"ab", b"c"])) == b"\2\0\0\0ab\1\0\0\0c"


def test_a_sender_of_a_model_with_one_response_sends_one(pb: ModuleType) -> None:
    sender = pb.ResponseSender(5, ["OUT"], False)
    response = pb.InferenceResponse([])
    with pytest.raises(pb.TritonModelException, match="complete final before sending a response"):
        sender.send(flags=1)
    sender.send(response)
    with pytest.raises(pb.TritonModelException, match="cannot send more than one response"):
        sender.send(response)
    sender.send(flags=1)
    assert [flags for _, _, flags in pb._runtime.sent] == [0, 1]


def test_a_decoupled_sender_sends_until_it_is_closed(pb: ModuleType) -> None:
    sender = pb.ResponseSender(5, [], True)
    for _ in range(3):
        sender.send(pb.InferenceResponse([]))
    for arguments, sentence in (((None, 0), "must be provided"), ((None, 7), "Unsupported flag")):
        with pytest.raises(pb.TritonModelException, match=sentence):
            sender.send(*arguments)
    sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    with pytest.raises(pb.TritonModelException, match="Response sender has been closed"):
        sender.send(pb.InferenceResponse([]))
    del sender
    assert pb._runtime.forgot == []


def test_a_sender_that_is_lost_before_its_end_is_told(pb: ModuleType) -> None:
    sender = pb.ResponseSender(5, [], True)
    del sender
    assert pb._runtime.forgot == [5]


def test_requests_show_what_the_client_sent(pb: ModuleType) -> None:
    tensor = pb.Tensor("A", np.zeros(1))
    sender = pb.ResponseSender(13, ["OUT"], False)
    request = pb.InferenceRequest._from_wire([tensor], sender, "id", 7, "m", 2, 1, 1000, '{"a":1}')
    assert (request.request_id(), request.correlation_id(), request.flags(), request.timeout()) == ("id", 7, 1, 1000)
    assert request.parameters() == '{"a":1}'
    assert request.requested_output_names() == {"OUT"}
    assert pb.get_input_tensor_by_name(request, "A") is tensor
    assert pb.get_input_tensor_by_name(request, "B") is None
    assert request.is_cancelled() and request.get_response_sender().is_cancelled()
    assert request.trace().get_context() is None


def test_errors_have_codes_by_tritons_numbers(pb: ModuleType) -> None:
    assert pb.TritonError("x").code() == pb.TritonError.INTERNAL == 1
    assert str(pb.TritonError("x", pb.TritonError.CANCELLED).code()) == "__ErrorCode.CANCELLED"
    response = pb.InferenceResponse(error=pb.TritonError("x"))
    assert response.has_error() and response.error().message() == "x"
    assert pb.InferenceResponse([], parameters={"a": True}).parameters() == '{"a": true}'


def test_lines_of_the_log_name_the_place(pb: ModuleType) -> None:
    pb.Logger.log_warn("careful")
    pb.Logger.log("more", pb.Logger.VERBOSE)
    assert pb._runtime.lines == [(1, "careful", Path(__file__).name), (3, "more", Path(__file__).name)]
    with pytest.raises(TypeError):
        pb.Logger.log_info(5)
