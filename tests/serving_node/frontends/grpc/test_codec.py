"""The codec against protobuf itself."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_node.contract.proto import grpc_service_pb2 as pb
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceResponse
from serving_node.core.tensor import Tensor
from serving_node.frontends.grpc.codec import InferCodec, MalformedMessage, contents_to_raw, request_id

NAMES = st.text(max_size=8)
TENSORS = st.lists(st.tuples(NAMES, st.lists(st.integers(0, 300), max_size=3), st.binary(max_size=300)), max_size=4)


def codec() -> InferCodec:
    return InferCodec(lambda name, version: False)


def request_of(name: str, version: str, request_id: str, tensors: list[tuple[str, list[int], bytes]]) -> list[bytes]:
    """Return the fields of a request, serialised one by one."""
    fields = [
        pb.ModelInferRequest(model_name=name),
        pb.ModelInferRequest(model_version=version),
        pb.ModelInferRequest(id=request_id),
        pb.ModelInferRequest(parameters={"key": pb.InferParameter(int64_param=-5)}),
    ]
    for tensor_name, shape, data in tensors:
        field = pb.ModelInferRequest()
        field.inputs.add(name=tensor_name, datatype="UINT8", shape=shape)
        fields.append(field)
        fields.append(pb.ModelInferRequest(raw_input_contents=[data]))
    return [field.SerializeToString() for field in fields]


@given(NAMES, NAMES, NAMES, TENSORS, st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=200, deadline=None)
def test_fields_may_come_in_any_order(
    name: str, version: str, request_id: str, tensors: list[tuple[str, list[int], bytes]], random: object, odd: bool
) -> None:
    fields = request_of(name, version, request_id, tensors)
    unknown = [b"\xa0\x06\x07"] if odd else []
    order = sorted(range(len(fields)), key=lambda _: random.random())  # type: ignore[attr-defined]
    # inputs keep their order among themselves, as do contents
    indices = {0: iter(sorted(i for i in order if i < 4)), 1: iter(range(4, 999, 2)), 2: iter(range(5, 999, 2))}
    message = b"".join(unknown + [fields[next(indices[0 if i < 4 else 1 + i % 2])] for i in order])
    expected = pb.ModelInferRequest.FromString(message)
    shared = codec()
    for _ in range(2):  # the second time from the memo
        request, _ = shared.decode(memoryview(message), lambda response: None)
        assert (request.model_name, request.model_version, request.id) == (name, version, request_id)
        assert request.parameters == {"key": -5}
        assert [tensor.name for tensor in request.inputs] == [tensor.name for tensor in expected.inputs]
        assert [tensor.shape for tensor in request.inputs] == [tuple(tensor.shape) for tensor in expected.inputs]
        assert [bytes(tensor.data) for tensor in request.inputs] == list(expected.raw_input_contents)


@pytest.mark.fuzz
@given(st.binary(max_size=200))
def test_garbage_is_malformed_or_refused(message: bytes) -> None:
    with contextlib.suppress(MalformedMessage, InferenceError):
        codec().decode(message, lambda response: None)
    with contextlib.suppress(MalformedMessage, InferenceError):
        contents_to_raw(message)


PARTS = ("shared_memory_region", "shared_memory_offset", "shared_memory_byte_size", "classification")
SPECIAL = ("timeout", "priority", "sequence_id", "sequence_end", "triton_x", "triton_enable_empty_final_response")
PARAMETERS = st.dictionaries(
    st.sampled_from(["a", *PARTS, *SPECIAL]),
    st.one_of(
        st.just(pb.InferParameter()),
        st.integers(-(2**63), 2**63 - 1).map(lambda value: pb.InferParameter(int64_param=value)),
        st.integers(0, 2**64 - 1).map(lambda value: pb.InferParameter(uint64_param=value)),
        st.floats().map(lambda value: pb.InferParameter(double_param=value)),
        st.booleans().map(lambda value: pb.InferParameter(bool_param=value)),
        st.text(max_size=200).map(lambda value: pb.InferParameter(string_param=value)),
    ),
    max_size=3,
)
CONTENTS = st.one_of(
    st.none(),
    st.builds(
        pb.InferTensorContents,
        bool_contents=st.lists(st.booleans(), max_size=2),
        int_contents=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=2),
        uint64_contents=st.lists(st.integers(0, 2**64 - 1), max_size=2),
        fp32_contents=st.lists(st.floats(width=32), max_size=2),
        bytes_contents=st.lists(st.binary(max_size=4), max_size=2),
    ),
)
INPUTS = st.builds(
    pb.ModelInferRequest.InferInputTensor,
    name=NAMES,
    datatype=st.sampled_from(["", "BOOL", "INT8", "UINT64", "FP16", "FP32", "BF16", "BYTES", "TYPE_FP32"]),
    shape=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
    parameters=PARAMETERS,
    contents=CONTENTS,
)
OUTPUTS = st.builds(pb.ModelInferRequest.InferRequestedOutputTensor, name=NAMES, parameters=PARAMETERS)
REQUESTS = st.builds(
    pb.ModelInferRequest,
    model_name=NAMES,
    id=NAMES,
    parameters=PARAMETERS,
    inputs=st.lists(INPUTS, max_size=3),
    outputs=st.lists(OUTPUTS, max_size=2),
    raw_input_contents=st.lists(st.binary(max_size=8), max_size=3),
)


@pytest.mark.fuzz
@given(REQUESTS, st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3), st.integers(0, 200))
def test_damaged_requests_are_malformed_or_refused(
    request: pb.ModelInferRequest, changes: list[tuple[int, int]], cut: int
) -> None:
    whole = request.SerializeToString()
    damaged = bytearray(whole)
    for place, value in changes:
        if damaged:
            damaged[place % len(damaged)] = value
    for message in (whole, bytes(damaged), whole[:-cut] if cut else whole):
        with contextlib.suppress(MalformedMessage, InferenceError):
            decoded, _ = codec().decode(message, lambda response: None)
            assert all(isinstance(tensor.data, bytes | memoryview) for tensor in decoded.inputs)
        with contextlib.suppress(MalformedMessage, InferenceError):
            contents_to_raw(message)
    assert request_id(whole) == request.id
    request_id(bytes(damaged))


@given(NAMES, NAMES, TENSORS, st.booleans())
@settings(max_examples=200, deadline=None)
def test_responses_are_what_protobuf_reads(
    name: str, request_id: str, tensors: list[tuple[str, list[int], bytes]], with_parameters: bool
) -> None:
    shared = codec()
    request, _ = shared.decode(b"", lambda response: None)
    parameters = {"a": True, "b": -1, "c": 0.5, "d": "text"} if with_parameters else {}
    outputs = [Tensor(tensor, "UINT8", tuple(shape), data) for tensor, shape, data in tensors]
    for _ in range(2):
        parts, size = shared.encode(request, InferenceResponse(name, "3", request_id, outputs, dict(parameters)))
        message = b"".join(parts)
        assert len(message) == size
        response = pb.ModelInferResponse.FromString(message)
        assert (response.model_name, response.model_version, response.id) == (name, "3", request_id)
        assert [output.name for output in response.outputs] == [tensor for tensor, _, _ in tensors]
        assert [list(output.shape) for output in response.outputs] == [shape for _, shape, _ in tensors]
        assert list(response.raw_output_contents) == [data for _, _, data in tensors]
        choices = {
            key: getattr(value, value.WhichOneof("parameter_choice")) for key, value in response.parameters.items()
        }
        assert choices == parameters


def test_a_response_too_large_for_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving_node.frontends.grpc.codec._MAX_MESSAGE_BYTES", 100)
    shared = codec()
    request, _ = shared.decode(b"", lambda response: None)
    outputs = [Tensor("OUT", "UINT8", (200,), bytes(200))]
    with pytest.raises(InferenceError, match=r"which exceeds gRPC's byte size limit 100\."):
        shared.encode(request, InferenceResponse("m", "1", "", outputs))


def test_a_second_typed_field_is_one_too_many() -> None:
    message = pb.ModelInferRequest(model_name="m")
    tensor = message.inputs.add(name="X", datatype="FP32", shape=[1])
    tensor.contents.fp32_contents.append(1)
    tensor.contents.fp64_contents.append(1)
    with pytest.raises(InferenceError) as caught:
        codec().decode(message.SerializeToString(), lambda response: None)
    assert caught.value.message == (
        "unexpected explicit tensor data for input tensor 'X' for model 'm', binary data was already supplied."
    )
