"""The JSON of generate requests and responses. Pure and picklable: large bodies are parsed in another process.

A request is one flat JSON object. A key that is the name of an input is its tensor, every other key a parameter of the
request; the members of the object ``parameters`` are taken in the same way. Source: Triton's generate extension.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from math import prod
from typing import Any

import orjson

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError, request_error
from serving_node.core.metadata import TensorMetadata
from serving_node.core.request import InferenceResponse, Parameter
from serving_node.core.tensor import Tensor
from serving_node.frontends.http.json_data import parse_json, tensor_bytes, write_data, wrong_type
from serving_node.frontends.http.request_codec import free_parameter

_NESTED = "parameters"


@dataclass(slots=True)
class GenerateCall:
    """What a generate request says."""

    id: str = ""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    parameters: dict[str, Parameter] = field(default_factory=dict)


def parse_generate(inputs: tuple[TensorMetadata, ...], limit: int, text: bytes | memoryview) -> GenerateCall:
    """Return the call that a JSON text makes to a model with these inputs. Tensors may have ``limit`` bytes together.

    Raises:
        InferenceError: INTERNAL, not JSON or a wrong JSON type; INVALID_ARG, a value that is not acceptable.
    """
    if not len(text):
        raise InferenceError(ErrorCode.INTERNAL, "failed to parse the request JSON buffer: The document is empty. at 0")
    document = parse_json(text)
    if not isinstance(document, dict):
        raise InferenceError(ErrorCode.INTERNAL, "attempt to get members for non-object")
    call = GenerateCall(document.get("id", ""))
    if not isinstance(call.id, str):
        raise wrong_type("id", "string")
    _refuse_doubles(bytes(text), [tensor.name for tensor in inputs], call.id)
    mapping = _Mapping({tensor.name: tensor for tensor in inputs}, call, limit)
    for key, value in document.items():
        if key == _NESTED:
            mapping.add_nested(value)
        else:
            mapping.add(key, value)
    return call


def _refuse_doubles(text: bytes, names: list[str], request_id: str) -> None:
    """Refuse an input that is given twice in one object, of which parsers keep only the last."""
    suspects = {name for name in names if text.count(b'"%b"' % name.encode()) > 1}
    if not suspects:
        return
    doubles: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen and key in suspects:
                doubles.append(key)
            seen.add(key)

    with contextlib.suppress(ValueError, RecursionError):  # what only the other parser takes
        json.loads(text.decode("utf-8", "replace"), object_pairs_hook=look)
    if doubles:
        raise _exists(doubles[0], request_id)


def _exists(name: str, request_id: str) -> InferenceError:
    return request_error(ErrorCode.INVALID_ARG, request_id, f"input '{name}' already exists in request")


class _Mapping:
    """Puts members of a request where they belong."""

    def __init__(self, inputs: dict[str, TensorMetadata], call: GenerateCall, limit: int) -> None:
        self._inputs = inputs
        self._call = call
        self._limit = limit
        self._size = 0

    def add_nested(self, members: Any) -> None:
        if _NESTED in self._inputs:
            sentence = f"Keyword '{_NESTED}' for nested schema also given as input tensor name"
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        if not isinstance(members, dict):
            sentence = f"Expected JSON object for keyword: '{_NESTED}': attempt to access JSON non-object as object"
            raise InferenceError(ErrorCode.INTERNAL, sentence)
        try:
            for key, value in members.items():
                self.add(key, value)
        except InferenceError as error:
            raise InferenceError(error.code, f"Converting keyword: '{_NESTED}': {error.message}") from None

    def add(self, key: str, value: Any) -> None:
        described = self._inputs.get(key)
        if described is None:
            self._call.parameters[key] = free_parameter(key, value)
            return
        if key in self._call.tensors:
            raise _exists(key, self._call.id)
        elements = value if isinstance(value, list) else [value]
        shape = _shape(described, len(elements))
        data = tensor_bytes(key, described.datatype, elements, len(elements))
        if self._size + len(data) > self._limit:
            sentence = (
                f"request size of {self._size} bytes with input '{key}' of size {len(data)} bytes exceeds the maximum"
                f" allowed input size of {self._limit}. Use --http-max-input-size to increase the limit."
            )
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        self._size += len(data)
        self._call.tensors[key] = Tensor(key, described.datatype, shape, data)


def _shape(described: TensorMetadata, count: int) -> tuple[int, ...]:
    """Return the shape of ``count`` elements: the innermost variable dimension takes what the fixed ones leave."""
    remaining = count
    for dimension in described.shape:
        if dimension != -1:
            if not dimension or remaining % dimension:
                raise _no_shape(described.name)
            remaining //= dimension
    shape: list[int] = []
    for dimension in reversed(described.shape):
        if dimension == -1:
            dimension, remaining = remaining, 1
        shape.append(dimension)
    if remaining != 1:
        raise _no_shape(described.name)
    return tuple(reversed(shape))


def _no_shape(name: str) -> InferenceError:
    sentence = f"The schema can not convert input '{name}' to tensor with proper shape"
    return InferenceError(ErrorCode.INVALID_ARG, sentence)


def write_generate(response: InferenceResponse) -> bytes:
    """Return the JSON object of a response: outputs by name, an array of one element as the element, keys in order.

    Raises:
        InferenceError: INVALID_ARG, the type of an output cannot travel as JSON.
    """
    members = {"model_name": _write(response.model_name), "model_version": _write(response.model_version)}
    if response.id:
        members["id"] = _write(response.id)
    for name, value in response.parameters.items():
        members.setdefault(name, _write(value))
    for tensor in response.outputs:
        if tensor.name not in members:
            text = write_data(tensor.name, tensor.datatype, tensor.data)
            members[tensor.name] = text[1:-1] if prod(tensor.shape) == 1 else text
    return b"{" + b",".join(_write(name) + b":" + members[name] for name in sorted(members)) + b"}"


def write_large_generate(
    model: str,
    version: str,
    id: str,
    parameters: dict[str, Parameter],
    described: list[tuple[str, str, tuple[int, ...], int]],
    data: bytes,
) -> bytes:
    """Return ``write_generate`` of a response whose outputs (name, datatype, shape, bytes) lie behind each other.

    All that is given can travel to another process.
    """
    outputs: list[Tensor] = []
    start = 0
    for name, datatype, shape, size in described:
        outputs.append(Tensor(name, datatype, shape, data[start : start + size]))
        start += size
    return write_generate(InferenceResponse(model, version, id, outputs, parameters))


def write_error(message: str) -> bytes:
    """Return the JSON object of an error."""
    return orjson.dumps({"error": message.encode("utf-8", "replace").decode()})


def _write(value: Parameter) -> bytes:
    # orjson writes NaN as null and refuses large integers
    return json.dumps(value).encode() if isinstance(value, float) else orjson.dumps(value)
