"""ModelInfer messages to and from requests and responses, without copying tensors.

The top-level fields of a request are walked here; ``raw_input_contents`` become views. What describes the tensors
(inputs, outputs, parameters) is parsed with protobuf once per distinct sequence of bytes: most clients send the
same description with every request. Descriptions of outputs are kept in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from google.protobuf.message import DecodeError

from serving_node.contract.errors import ErrorCode
from serving_node.contract.proto import grpc_service_pb2 as pb
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest, InferenceResponse, RequestedOutput
from serving_node.core.tensor import NUMPY_DTYPES, Tensor, encode_bytes_elements
from serving_node.core.varint import encode_varint
from serving_node.frontends.classification import classify
from serving_node.frontends.grpc.parameters import plain_parameters, request_parameters, response_parameters
from serving_node.frontends.parameters import RequestParameters

Buffer = bytes | bytearray | memoryview

# tags of the length-delimited fields 1 to 7: model name, version, id, parameters, inputs, outputs, raw contents
_KNOWN = frozenset({0x0A, 0x12, 0x1A, 0x22, 0x2A, 0x32, 0x3A})
_ID, _RAW = 0x1A, 0x3A
_RESPONSE_ID, _RESPONSE_RAW = b"\x1a", b"\x32"
_MAX_FIELDS = 65536
# A description of this size has typed contents, whose conversion would hold up the event loop.
_LARGE_BYTES = 1024 * 1024
_MEMO_ENTRIES = 512
_MEMO_BYTES = 4096
_INTS = {"INT8": "<i1", "INT16": "<i2", "INT32": "<i4"}
_UINTS = {"UINT8": "<u1", "UINT16": "<u2", "UINT32": "<u4"}
# field of InferTensorContents -> datatype -> numpy type of the raw bytes
_TYPED: dict[str, dict[str, str]] = {
    "bool_contents": {"BOOL": "?"},
    "int_contents": _INTS,
    "int64_contents": {"INT64": "<i8"},
    "uint_contents": _UINTS,
    "uint64_contents": {"UINT64": "<u8"},
    "fp32_contents": {"FP32": "<f4"},
    "fp64_contents": {"FP64": "<f8"},
    "bytes_contents": {"BYTES": "O"},
}
# what an error says that the field holds
_FIELD_TYPES = {
    "bool_contents": "BOOL",
    "int_contents": "INT32",
    "int64_contents": "INT64",
    "uint_contents": "UINT32",
    "uint64_contents": "UINT64",
    "fp32_contents": "FP32",
    "fp64_contents": "FP64",
    "bytes_contents": "BYTES",
}


class MalformedMessage(Exception):
    """The bytes are not a ModelInferRequest."""


class LargeDescription(Exception):
    """The request carries its tensors in ``contents``; ``contents_to_raw`` must be run in another process first."""


@dataclass(frozen=True, slots=True)
class _Input:
    name: str
    datatype: str
    shape: tuple[int, ...]
    contents: pb.InferTensorContents | None


@dataclass(frozen=True, slots=True)
class _Description:
    """A request without model, id and raw contents."""

    inputs: tuple[_Input, ...]
    outputs: tuple[RequestedOutput, ...]
    parameters: RequestParameters


class InferCodec:
    """Decodes requests and encodes responses. One per event loop.

    ``is_batched(model, version)`` tells whether outputs begin with a batch dimension (asked for classification only).
    """

    def __init__(self, is_batched: Callable[[str, str], bool]) -> None:
        self._is_batched = is_batched
        self._descriptions: dict[bytes, _Description] = {}
        self._heads: dict[tuple[object, ...], bytes] = {}
        self._plain = RequestParameters()

    def decode(
        self, message: bytes | memoryview, on_response: Callable[[InferenceResponse], None]
    ) -> tuple[InferenceRequest, RequestParameters]:
        """Return the request of a serialised ModelInferRequest. Its tensors are views on ``message``.

        Raises:
            MalformedMessage: not a ModelInferRequest.
            InferenceError: the request contradicts itself.
        """
        try:
            try:
                texts, raws, pieces = _walk(message)
            except IndexError:  # not as Triton's clients write it: fields that we do not know, or damaged
                parsed = pb.ModelInferRequest.FromString(bytes(message))
                parsed.DiscardUnknownFields()
                texts, raws, pieces = _walk(parsed.SerializeToString())
            if len(message) > _LARGE_BYTES and sum(map(len, pieces)) > _LARGE_BYTES:
                raise LargeDescription
            _, name, version, request_id = [text.decode() for text in texts]
            rest = b"".join(pieces)
            description = self._descriptions.get(rest) or self._describe(rest)
        except (DecodeError, UnicodeDecodeError) as error:
            raise MalformedMessage(str(error)) from error
        inputs = _tensors(description.inputs, raws, name)
        request = InferenceRequest(name, version, inputs, on_response, request_id, list(description.outputs))
        parameters = description.parameters
        if parameters is not self._plain:
            parameters.apply(request)
        return request, parameters

    def encode(self, request: InferenceRequest, response: InferenceResponse) -> tuple[list[Buffer], int]:
        """Return the parts and the size of the serialised ModelInferResponse. Tensor data are not copied.

        Raises:
            InferenceError: a classification cannot be made.
        """
        outputs = response.outputs
        if request.outputs:
            outputs = self._requested(request, response)
        key = (response.model_name, response.model_version, *[(t.name, t.datatype, t.shape) for t in outputs])
        head = self._heads.get(key)
        if head is None:
            head = self._describe_outputs(response, outputs, key)
        if response.id:
            text = response.id.encode()
            head = b"".join((head, _RESPONSE_ID, encode_varint(len(text)), text))
        if response.parameters:
            head += pb.ModelInferResponse(parameters=response_parameters(response.parameters)).SerializeToString()
        parts: list[Buffer] = [head]
        size = len(head)
        for tensor in outputs:
            length = len(tensor.data)
            tag = _RESPONSE_RAW + encode_varint(length)
            parts.append(tag)
            size += len(tag) + length
            if length:
                parts.append(tensor.data)
        return parts, size

    def _requested(self, request: InferenceRequest, response: InferenceResponse) -> list[Tensor]:
        """Return the outputs that were asked for, classified where that was asked."""
        wanted = {output.name: output for output in request.outputs}
        chosen: list[Tensor] = []
        for tensor in response.outputs:
            output = wanted.get(tensor.name)
            if output is None:
                continue
            classes = output.parameters.get("classification")
            if classes is not None:
                batched = self._is_batched(response.model_name, response.model_version)
                tensor = classify(tensor, int(classes), batched=batched)
            chosen.append(tensor)
        return chosen

    def _describe(self, rest: bytes) -> _Description:
        parsed = pb.ModelInferRequest.FromString(rest)
        inputs = tuple(_input(tensor) for tensor in parsed.inputs)
        outputs = tuple(_output(output) for output in parsed.outputs)
        parameters = request_parameters(parsed.parameters) if parsed.parameters else self._plain
        description = _Description(inputs, outputs, parameters)
        if len(rest) <= _MEMO_BYTES:
            if len(self._descriptions) >= _MEMO_ENTRIES:
                self._descriptions.clear()
            self._descriptions[rest] = description
        return description

    def _describe_outputs(self, response: InferenceResponse, outputs: list[Tensor], key: tuple[object, ...]) -> bytes:
        message = pb.ModelInferResponse(model_name=response.model_name, model_version=response.model_version)
        for tensor in outputs:
            message.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        head = message.SerializeToString()
        if len(self._heads) >= _MEMO_ENTRIES:
            self._heads.clear()
        self._heads[key] = head
        return head


def _walk(message: bytes | memoryview) -> tuple[list[bytes], list[memoryview], list[memoryview]]:
    """Return [_, model name, version, id], the raw contents, and the pieces of everything else.

    Raises:
        IndexError: truncated, or a field that is not expected.
    """
    view = memoryview(message)
    texts = [b"", b"", b"", b""]
    raws: list[memoryview] = []
    rest: list[memoryview] = []
    rest_start = position = 0
    end = len(view)
    for _ in range(_MAX_FIELDS):
        if position >= end:
            break
        tag = message[position]
        length = message[position + 1]
        start = position + 2
        if length > 0x7F:
            length, start = _readencode_varint(message, position + 1)
        stop = start + length
        if stop > end or tag not in _KNOWN:
            raise IndexError("unexpected or truncated field")
        if tag == _RAW or tag <= _ID:
            if rest_start < position:
                rest.append(view[rest_start:position])
            rest_start = stop
            if tag == _RAW:
                raws.append(view[start:stop])
            else:
                texts[tag >> 3] = bytes(view[start:stop])
        position = stop
    else:
        raise InferenceError(ErrorCode.INVALID_ARG, f"the request has more than {_MAX_FIELDS} fields")
    if rest_start < end:
        rest.append(view[rest_start:])
    return texts, raws, rest


def _readencode_varint(message: bytes | memoryview, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
        if shift > 35:
            raise IndexError("varint too long")


def _input(tensor: pb.ModelInferRequest.InferInputTensor) -> _Input:
    if "shared_memory_region" in tensor.parameters:
        if "shared_memory_byte_size" not in tensor.parameters:
            sentence = (
                "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor"
                f" '{tensor.name}'"
            )
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        region = tensor.parameters["shared_memory_region"].string_param
        raise InferenceError(ErrorCode.NOT_FOUND, f"Unable to find shared memory region: '{region}'")
    contents = tensor.contents if tensor.HasField("contents") else None
    # the model's own check refuses it under this name
    datatype = tensor.datatype if tensor.datatype in NUMPY_DTYPES else "<invalid>"
    return _Input(tensor.name, datatype, tuple(tensor.shape), contents)


def _output(output: pb.ModelInferRequest.InferRequestedOutputTensor) -> RequestedOutput:
    parameters = plain_parameters(output.parameters)
    if "shared_memory_region" in parameters:
        region = parameters["shared_memory_region"]
        raise InferenceError(ErrorCode.NOT_FOUND, f"Unable to find shared memory region: '{region}'")
    if "classification" in output.parameters:
        classes = parameters.get("classification")
        if output.parameters["classification"].WhichOneof("parameter_choice") != "int64_param":
            sentence = "invalid value type for 'classification' parameter, expected int64_param"
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        assert classes is not None
        if int(classes) <= 0:
            sentence = "invalid value for 'classification' parameter, expected >= 0"
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
    return RequestedOutput(output.name, parameters)


def _tensors(inputs: tuple[_Input, ...], raws: list[memoryview], model: str) -> list[Tensor]:
    tensors: list[Tensor] = []
    for index, described in enumerate(inputs):
        if described.contents is None:
            if index >= len(raws):
                sentence = f"unable to find data for input tensor '{described.name}' for model '{model}' in request."
                raise InferenceError(ErrorCode.INVALID_ARG, sentence)
            tensors.append(Tensor(described.name, described.datatype, described.shape, raws[index]))
        elif raws:
            sentence = (
                "contents field must not be specified when using raw_input_contents for"
                f" '{described.name}' for model '{model}'"
            )
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        else:
            data = _typed_bytes(described, described.contents, model)
            tensors.append(Tensor(described.name, described.datatype, described.shape, data))
    return tensors


def _typed_bytes(described: _Input, contents: pb.InferTensorContents, model: str) -> bytes:
    data = b""
    for descriptor, values in contents.ListFields():
        dtype = _TYPED[descriptor.name].get(described.datatype)
        if data:
            sentence = (
                f"unexpected explicit tensor data for input tensor '{described.name}' for model '{model}',"
                " binary data was already supplied."
            )
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        if dtype is None:
            sentence = (
                f"unexpected explicit tensor data for input tensor '{described.name}' for model '{model}' of type"
                f" '{_FIELD_TYPES[descriptor.name]}', expected datatype '{described.datatype}'"
            )
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        if dtype == "O":
            array = np.empty(len(values), np.object_)
            array[:] = values
            data = encode_bytes_elements(array)
        elif dtype in ("<i1", "<i2", "<u1", "<u2"):
            data = np.array(values, np.int64).astype(dtype).tobytes()  # out-of-range values wrap, as in Triton
        else:
            data = np.array(values, dtype).tobytes()
    return data


def contents_to_raw(message: bytes) -> bytes:
    """Return a serialised ModelInferRequest with typed contents turned into raw contents. For a codec process.

    Raises:
        MalformedMessage: not a ModelInferRequest.
        InferenceError: the contents do not fit the datatypes.
    """
    try:
        request = pb.ModelInferRequest.FromString(message)
    except DecodeError as error:
        raise MalformedMessage(str(error)) from error
    if any(tensor.HasField("contents") for tensor in request.inputs):
        tensors = _tensors(tuple(_input(tensor) for tensor in request.inputs), _views(request), request.model_name)
        request.raw_input_contents.extend(bytes(tensor.data) for tensor in tensors)
        for tensor in request.inputs:
            tensor.ClearField("contents")
    return request.SerializeToString()


def _views(request: pb.ModelInferRequest) -> list[memoryview]:
    return [memoryview(raw) for raw in request.raw_input_contents]
