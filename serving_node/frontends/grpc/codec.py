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
from serving_node.core.metadata import OutputClasses
from serving_node.core.request import InferenceRequest, InferenceResponse, RequestedOutput
from serving_node.core.tensor import NUMPY_DTYPES, Tensor, encode_bytes_elements
from serving_node.core.varint import encode_varint
from serving_node.frontends.classification import classify
from serving_node.frontends.grpc.parameters import plain_parameters, request_parameters, response_parameters
from serving_node.frontends.parameters import RequestParameters
from serving_node.frontends.shared_memory import RegionLease, SharedMemory, Slice

Buffer = bytes | bytearray | memoryview

# tags of the length-delimited fields 1 to 7: model name, version, id, parameters, inputs, outputs, raw contents
_KNOWN = frozenset({0x0A, 0x12, 0x1A, 0x22, 0x2A, 0x32, 0x3A})
_ID, _RAW = 0x1A, 0x3A
_RESPONSE_ID, _RESPONSE_RAW = b"\x1a", b"\x32"
_MAX_FIELDS = 65536
_MAX_MESSAGE_BYTES = 2**31 - 1
# A description of this size has typed contents, whose conversion would hold up the event loop.
_LARGE_BYTES = 1024 * 1024
_MEMO_ENTRIES = 512
_MEMO_BYTES = 4096
_UINT64_MAX = 2**64 - 1
# the parameters that say where in shared memory a tensor is, and the kind of their values
_PART_KEYS = {
    "shared_memory_region": "string_param",
    "shared_memory_offset": "int64_param",
    "shared_memory_byte_size": "int64_param",
}
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
    part: Slice | None = None


@dataclass(frozen=True, slots=True)
class _Description:
    """A request without model, id and raw contents."""

    inputs: tuple[_Input, ...]
    outputs: tuple[RequestedOutput, ...]
    parameters: RequestParameters
    # where outputs are written that do not travel in the response
    parts: tuple[tuple[str, Slice], ...] = ()
    uses_regions: bool = False


class InferCodec:
    """Decodes requests and encodes responses. One per event loop.

    ``output_classes(model, version)`` tells how outputs are classified.
    """

    def __init__(self, output_classes: Callable[[str, str], OutputClasses], memory: SharedMemory | None = None) -> None:
        self._output_classes = output_classes
        self._memory = memory or SharedMemory.disabled()
        self._descriptions: dict[bytes, _Description] = {}
        self._heads: dict[tuple[object, ...], bytes] = {}
        self._plain = RequestParameters()

    def decode(
        self, message: bytes | memoryview, on_response: Callable[[InferenceResponse], None]
    ) -> tuple[InferenceRequest, RequestParameters]:
        """Return the request of a serialised ModelInferRequest. Its tensors are views on ``message``.

        One that uses shared memory has a lease, to be released by the caller if no final response will come.

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
        if description.uses_regions:
            request = self._with_regions(description, raws, name, on_response)
            request.model_version, request.id = version, request_id
        else:
            inputs = _tensors(description.inputs, raws, name)
            request = InferenceRequest(name, version, inputs, on_response, request_id, list(description.outputs))
        parameters = description.parameters
        if parameters is not self._plain:
            parameters.apply(request)
        return request, parameters

    def _with_regions(
        self,
        description: _Description,
        raws: list[memoryview],
        model: str,
        on_response: Callable[[InferenceResponse], None],
    ) -> InferenceRequest:
        """Return a request with tensors in shared memory, which it holds until its final response."""
        lease = self._memory.lease()
        try:
            inputs = _tensors(description.inputs, raws, model, lease)
            for output, part in description.parts:
                lease.direct(output, part)
        except InferenceError:
            lease.release()
            raise
        request = InferenceRequest(model, "", inputs, lease.until_final(on_response))
        request.outputs = list(description.outputs)
        request.lease = lease
        return request

    def encode(
        self, request: InferenceRequest, response: InferenceResponse, extra: bytes = b""
    ) -> tuple[list[Buffer], int]:
        """Return the parts and the size of the serialised ModelInferResponse. Tensor data are not copied.

        ``extra`` are further serialised fields of the message.

        Raises:
            InferenceError: a classification cannot be made, or the message is too large for gRPC.
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
        if extra:
            head += extra
        parts: list[Buffer] = [head]
        size = len(head)
        for tensor in outputs:
            length = len(tensor.data)
            tag = _RESPONSE_RAW + encode_varint(length)
            parts.append(tag)
            size += len(tag) + length
            if length:
                parts.append(tensor.data)
        if size > _MAX_MESSAGE_BYTES:
            sentence = f"Response has byte size {size} which exceeds gRPC's byte size limit {_MAX_MESSAGE_BYTES}."
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        return parts, size

    def _requested(self, request: InferenceRequest, response: InferenceResponse) -> list[Tensor]:
        """Return the outputs that were asked for, classified or written to shared memory where that was asked."""
        wanted = {output.name: output for output in request.outputs}
        chosen: list[Tensor] = []
        for tensor in response.outputs:
            output = wanted.get(tensor.name)
            if output is None:
                continue
            if request.lease is not None and request.lease.store(tensor):
                chosen.append(Tensor(tensor.name, tensor.datatype, tensor.shape, b""))
                continue
            classes = output.parameters.get("classification")
            if classes is not None:
                known = self._output_classes(response.model_name, response.model_version)
                tensor = classify(tensor, int(classes), known)
            chosen.append(tensor)
        return chosen

    def _describe(self, rest: bytes) -> _Description:
        parsed = pb.ModelInferRequest.FromString(rest)
        inputs = tuple(_input(tensor) for tensor in parsed.inputs)
        parts = tuple((output.name, part) for output in parsed.outputs if (part := _part(output)) is not None)
        outputs = tuple(_output(output) for output in parsed.outputs)
        parameters = request_parameters(parsed.parameters) if parsed.parameters else self._plain
        uses_regions = bool(parts) or any(tensor.part for tensor in inputs)
        description = _Description(inputs, outputs, parameters, parts, uses_regions)
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
    part = _part(tensor) if tensor.parameters else None
    contents = tensor.contents if tensor.HasField("contents") else None
    # the model's own check refuses it under this name
    datatype = tensor.datatype if tensor.datatype in NUMPY_DTYPES else "<invalid>"
    return _Input(tensor.name, datatype, tuple(tensor.shape), contents, part)


def _part(
    tensor: pb.ModelInferRequest.InferInputTensor | pb.ModelInferRequest.InferRequestedOutputTensor,
) -> Slice | None:
    """Return what the shared memory parameters of a tensor mean, None without them. Raises InferenceError."""
    given = tensor.parameters
    if "shared_memory_region" not in given:
        for key in ("shared_memory_offset", "shared_memory_byte_size"):
            if key in given:
                sentence = f"'{key}' can not be specified without 'shared_memory_region' parameter for tensor"
                raise InferenceError(ErrorCode.INVALID_ARG, f"{sentence} '{tensor.name}'")
        return None
    values: list[int] = []
    for key, kind in _PART_KEYS.items():
        if key == "shared_memory_byte_size" and key not in given:
            sentence = f"'{key}' must be specified along with 'shared_memory_region' parameter for tensor"
            raise InferenceError(ErrorCode.INVALID_ARG, f"{sentence} '{tensor.name}'")
        if key in given and given[key].WhichOneof("parameter_choice") != kind:
            sentence = f"invalid value type for '{key}' parameter for tensor '{tensor.name}', expected {kind}."
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        # negative numbers become the huge ones that they are as unsigned sizes
        values.append((given[key].int64_param if key in given else 0) & _UINT64_MAX)
    return Slice(given["shared_memory_region"].string_param, values[1], values[2])


def _output(output: pb.ModelInferRequest.InferRequestedOutputTensor) -> RequestedOutput:
    parameters = plain_parameters(output.parameters)
    if "classification" in output.parameters:
        classes = parameters.get("classification")
        if output.parameters["classification"].WhichOneof("parameter_choice") != "int64_param":
            sentence = "invalid value type for 'classification' parameter, expected int64_param"
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        assert classes is not None
        if int(classes) <= 0:
            sentence = "invalid value for 'classification' parameter, expected >= 0"
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        if "shared_memory_region" in output.parameters:
            sentence = "output can't set both 'shared_memory_region' and 'classification'"
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
    for key in _PART_KEYS:
        parameters.pop(key, None)
    return RequestedOutput(output.name, parameters)


def _tensors(
    inputs: tuple[_Input, ...], raws: list[memoryview], model: str, lease: RegionLease | None = None
) -> list[Tensor]:
    """Return the tensors of inputs. Raw contents belong to those that are not in shared memory, in order."""
    tensors: list[Tensor] = []
    index = 0
    for described in inputs:
        if described.part is not None:
            assert lease is not None
            _check_no_contents(described, model)
            data = lease.read(described.part)
            tensors.append(Tensor(described.name, described.datatype, described.shape, data))
        elif described.contents is None:
            if index >= len(raws):
                sentence = f"unable to find data for input tensor '{described.name}' for model '{model}' in request."
                raise InferenceError(ErrorCode.INVALID_ARG, sentence)
            tensors.append(Tensor(described.name, described.datatype, described.shape, raws[index]))
            index += 1
        elif raws:
            sentence = (
                "contents field must not be specified when using raw_input_contents for"
                f" '{described.name}' for model '{model}'"
            )
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        else:
            typed = _typed_bytes(described, described.contents, model)
            tensors.append(Tensor(described.name, described.datatype, described.shape, typed))
    return tensors


def _check_no_contents(described: _Input, model: str) -> None:
    if described.contents is not None:
        sentence = (
            f"unexpected 'content' provided when using shared memory for input tensor '{described.name}'"
            f" for model '{model}'"
        )
        raise InferenceError(ErrorCode.INVALID_ARG, sentence)


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


def request_id(message: bytes | memoryview) -> str:
    """Return the id of a request that may be wrong in other ways, empty when there is none."""
    try:
        return _walk(message)[0][_ID >> 3].decode()
    except (IndexError, UnicodeDecodeError, InferenceError):
        pass
    try:
        return pb.ModelInferRequest.FromString(bytes(message)).id
    except DecodeError:
        return ""


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
        described = [_input(tensor) for tensor in request.inputs]
        for tensor in described:
            if tensor.part is not None:
                _check_no_contents(tensor, request.model_name)
        own = tuple(tensor for tensor in described if tensor.part is None)
        tensors = _tensors(own, _views(request), request.model_name)
        request.raw_input_contents.extend(bytes(tensor.data) for tensor in tensors)
        for message_tensor in request.inputs:
            message_tensor.ClearField("contents")
    return request.SerializeToString()


def _views(request: pb.ModelInferRequest) -> list[memoryview]:
    return [memoryview(raw) for raw in request.raw_input_contents]
