"""What models import: tensors, requests, responses, and helpers. Needs numpy and the standard library only.

A first form, with what a model needs to answer requests; the process that runs the model installs ``_runtime``.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2

_runtime: Any = None

_WIRE_TYPES = {
    np.dtype(np.bool_): "BOOL",
    np.dtype(np.uint8): "UINT8",
    np.dtype(np.uint16): "UINT16",
    np.dtype(np.uint32): "UINT32",
    np.dtype(np.uint64): "UINT64",
    np.dtype(np.int8): "INT8",
    np.dtype(np.int16): "INT16",
    np.dtype(np.int32): "INT32",
    np.dtype(np.int64): "INT64",
    np.dtype(np.float16): "FP16",
    np.dtype(np.float32): "FP32",
    np.dtype(np.float64): "FP64",
    np.dtype(np.object_): "BYTES",
}


class TritonModelException(Exception):
    pass


class TritonError:
    def __init__(self, message: str, code: int = 1) -> None:
        self._message, self._code = message, code

    def message(self) -> str:
        return self._message

    def code(self) -> int:
        return self._code


def wire_bytes(array: np.ndarray) -> bytes:
    parts = []
    for element in array.flat:
        raw = element.encode() if isinstance(element, str) else bytes(element)
        parts.append(struct.pack("<I", len(raw)))
        parts.append(raw)
    return b"".join(parts)


def _strings(data: Any) -> np.ndarray:
    elements, offset, end = [], 0, len(data)
    while offset < end:
        (length,) = struct.unpack_from("<I", data, offset)
        offset += 4
        elements.append(bytes(data[offset : offset + length]))
        offset += length
    array = np.empty(len(elements), dtype=np.object_)
    array[:] = elements
    return array


_DTYPES = {name: dtype for dtype, name in _WIRE_TYPES.items()}


class Tensor:
    __slots__ = ("_array", "_datatype", "_name")

    def __init__(self, name: str, array: np.ndarray) -> None:
        self._name = name
        self._array = array
        self._datatype = _WIRE_TYPES[array.dtype] if array.dtype in _WIRE_TYPES else "BYTES"

    @classmethod
    def _from_wire(cls, name: str, datatype: str, shape: Any, data: Any) -> Tensor:
        tensor = cls.__new__(cls)
        tensor._name = name
        tensor._datatype = datatype
        array = _strings(data) if datatype == "BYTES" else np.frombuffer(data, _DTYPES[datatype])
        tensor._array = array if len(shape) == 1 else array.reshape(shape)
        return tensor

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> np.ndarray:
        return self._array


class ResponseSender:
    __slots__ = ("_closed", "_decoupled", "_handle", "_outputs", "_sent")

    def __init__(self, handle: int, outputs: list[str], decoupled: bool) -> None:
        self._handle, self._outputs, self._decoupled = handle, outputs, decoupled
        self._closed = False
        self._sent = 0

    def __del__(self) -> None:
        if not self._closed and _runtime is not None:
            _runtime.forgotten(self._handle)

    def _note(self, response: Any, flags: int) -> None:
        if not self._decoupled:
            if response is not None and self._sent:
                raise TritonModelException(
                    "Unable to send response. Non-decoupled model cannot send more than one response."
                )
            if response is None and flags == 1 and not self._sent:
                raise TritonModelException(
                    "Unable to send response. Non-decoupled model cannot send complete final before sending a response."
                )
        if self._closed:
            raise TritonModelException("Unable to send response. Response sender has been closed.")
        if flags == 1:
            self._closed = True
        self._sent += 1

    def send(self, response: Any = None, flags: int = 0) -> None:
        self._note(response, flags)
        _runtime.send(self, response, flags)

    def is_cancelled(self) -> bool:
        return bool(_runtime.is_cancelled(self._handle))


class InferenceRequest:
    __slots__ = (
        "__weakref__",
        "_correlation",
        "_flags",
        "_id",
        "_inputs",
        "_model",
        "_parameters",
        "_sender",
        "_timeout",
        "_version",
    )

    @classmethod
    def _from_wire(cls, inputs, sender, request_id, correlation, model, version, flags, timeout, parameters):
        request = cls.__new__(cls)
        request._inputs = inputs
        request._sender = sender
        request._id = request_id
        request._correlation = correlation
        request._model = model
        request._version = version
        request._flags = flags
        request._timeout = timeout
        request._parameters = parameters
        return request

    def inputs(self) -> list[Tensor]:
        return self._inputs

    def get_response_sender(self) -> ResponseSender:
        return self._sender


class InferenceResponse:
    __slots__ = ("_error", "_output_tensors", "_parameters")

    def __init__(self, output_tensors: Any = (), error: Any = None, parameters: Any = None) -> None:
        self._output_tensors, self._error, self._parameters = output_tensors, error, parameters or ""


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | None:
    for tensor in inference_request._inputs:
        if tensor._name == name:
            return tensor
    return None
