"""The codec against protobuf itself."""

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from serving_node.contract.proto import grpc_service_pb2 as pb
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceResponse
from serving_node.core.tensor import Tensor
from serving_node.frontends.grpc.codec import InferCodec, MalformedMessage, contents_to_raw

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


@given(st.binary(max_size=200))
@settings(max_examples=500, deadline=None)
def test_garbage_is_malformed_or_refused(message: bytes) -> None:
    with contextlib.suppress(MalformedMessage, InferenceError):
        codec().decode(message, lambda response: None)
    with contextlib.suppress(MalformedMessage, InferenceError):
        contents_to_raw(message)


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
