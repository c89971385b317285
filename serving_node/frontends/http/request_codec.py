"""The JSON of infer requests. Pure and picklable: large bodies are parsed in another process by the same functions.

Error classes are Triton's: what is not JSON, lacks a member or has one of the wrong type is INTERNAL (500), what is
well-formed but not acceptable is INVALID_ARG (400).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import orjson

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.request import Parameter
from serving_node.core.tensor import NUMPY_DTYPES, encode_bytes_elements
from serving_node.frontends.shared_memory import Slice

_MAX_DEPTH = 100
_UINT64_MAX = 2**64 - 1
_ALLOWED: dict[str, frozenset[type]] = {
    "BOOL": frozenset({bool}),
    "FP32": frozenset({int, float}),
    "FP64": frozenset({int, float}),
}
_INTEGERS: frozenset[type] = frozenset({int})


@dataclass(frozen=True, slots=True)
class ParsedInput:
    """One input. Its bytes are in ``data``, in ``part`` of a region, or the next of the body's binary part."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    binary_bytes: int
    data: bytes | None
    part: Slice | None = None


@dataclass(frozen=True, slots=True)
class ParsedOutput:
    """One requested output; ``is_binary`` None means: as the request says for all. ``part`` is where it is written."""

    name: str
    is_binary: bool | None
    parameters: dict[str, Parameter]
    part: Slice | None = None


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """The JSON part of an infer request. ``uses_regions``: a tensor is in shared memory."""

    id: str
    inputs: tuple[ParsedInput, ...]
    outputs: tuple[ParsedOutput, ...]
    parameters: dict[str, Parameter]
    is_binary: bool
    uses_regions: bool = False

    @property
    def is_description(self) -> bool:
        """True when no tensor data are in the JSON, so that other requests with the same JSON may share this."""
        return all(tensor.data is None for tensor in self.inputs)


def parse_infer(text: bytes | memoryview) -> ParsedRequest:
    """Return the request of a JSON text.

    Raises:
        InferenceError: INTERNAL or INVALID_ARG, see above.
    """
    document = parse_object(text)
    if "inputs" not in document:
        raise _missing("inputs")
    parameters = _parameters(document)
    default = parameters.pop("binary_data_output", False)
    if not isinstance(default, bool):
        raise wrong_type("binary_data_output", "boolean")
    request_id = document.get("id", "")
    if not isinstance(request_id, str):
        raise wrong_type("id", "string")
    inputs = tuple(_parse_input(item) for item in _array(document, "inputs"))
    outputs = tuple(_parse_output(item) for item in _array(document, "outputs")) if "outputs" in document else ()
    uses_regions = any(tensor.part for tensor in inputs) or any(output.part for output in outputs)
    return ParsedRequest(request_id, inputs, outputs, parameters, default, uses_regions)


def parse_json(text: bytes | memoryview) -> Any:
    """Return a JSON value. Raises InferenceError INTERNAL."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        sentence = f"failed to parse the request JSON buffer: {error.msg} at {error.pos}"
        raise InferenceError(ErrorCode.INTERNAL, sentence) from None


def parse_object(text: bytes | memoryview) -> dict[str, Any]:
    """Return a JSON object. Raises InferenceError INTERNAL."""
    document = parse_json(text)
    if not isinstance(document, dict):
        raise InferenceError(ErrorCode.INTERNAL, "failed to parse the request JSON buffer: not an object at 0")
    return document


def _array(document: dict[str, Any], key: str) -> list[Any]:
    value = document[key]
    if not isinstance(value, list):
        raise wrong_type(key, "array")
    return value


def _text(document: Any, key: str) -> str:
    if not isinstance(document, dict) or key not in document:
        raise _missing(key)
    value = document[key]
    if not isinstance(value, str):
        raise wrong_type(key, "string")
    return value


def _parameters(document: dict[str, Any]) -> dict[str, Parameter]:
    parameters = document.get("parameters", {})
    if not isinstance(parameters, dict):
        sentence = "failed to get request params.: attempt to get members for non-object"
        raise InferenceError(ErrorCode.INTERNAL, sentence)
    for key, value in parameters.items():
        if not isinstance(value, bool | int | float | str):
            sentence = f"parameter '{key}' has invalid type. It should be either 'int', 'bool', or 'string'."
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
    return dict(parameters)


def _parse_output(document: Any) -> ParsedOutput:
    name = _text(document, "name")
    parameters = _parameters(document)
    if "shared_memory_region" in parameters:
        _check_region_output(parameters)
    part = _part(parameters)
    is_binary = parameters.pop("binary_data", None)
    if is_binary is not None and not isinstance(is_binary, bool):
        raise wrong_type("binary_data", "boolean")
    classes = parameters.get("classification")
    if classes is not None:
        if isinstance(classes, bool) or not isinstance(classes, int) or classes < 0:
            sentence = "Unable to set 'classification': attempt to access JSON non-unsigned-integer as unsigned-integer"
            raise InferenceError(ErrorCode.INTERNAL, sentence)
        if classes == 0:
            del parameters["classification"]
    return ParsedOutput(name, is_binary, parameters, part)


def _check_region_output(parameters: dict[str, Parameter]) -> None:
    """Refuse what an output in shared memory cannot also be."""
    if "classification" in parameters:
        sentence = "Output can't set both 'shared_memory_region' and 'classification'"
        raise InferenceError(ErrorCode.INVALID_ARG, sentence)
    is_binary = parameters.get("binary_data", False)
    if not isinstance(is_binary, bool):
        sentence = "Unable to set 'binary_data': attempt to access JSON non-boolean as boolean"
        raise InferenceError(ErrorCode.INTERNAL, sentence)
    if is_binary:
        sentence = "Output can't set both 'shared_memory_region' and 'binary_data'"
        raise InferenceError(ErrorCode.INVALID_ARG, sentence)


def _part(parameters: dict[str, Parameter]) -> Slice | None:
    """Take the shared memory parameters out and return what they mean, None without a region."""
    region = parameters.pop("shared_memory_region", None)
    if region is not None and not isinstance(region, str):
        raise wrong_type("shared_memory_region", "string")
    offset = _unsigned(parameters, "shared_memory_offset")
    size = _unsigned(parameters, "shared_memory_byte_size")
    return None if region is None else Slice(region, offset, size)


def _unsigned(parameters: dict[str, Parameter], key: str) -> int:
    value = parameters.pop(key, 0)
    if type(value) is not int or not 0 <= value <= _UINT64_MAX:
        raise wrong_type(key, "unsigned-integer")
    return value


def _parse_input(document: Any) -> ParsedInput:
    name = _text(document, "name")
    datatype = _text(document, "datatype")
    if datatype not in NUMPY_DTYPES:
        raise InferenceError(ErrorCode.INVALID_ARG, f"invalid datatype for input {name}")
    shape = _shape(document)
    parameters = _parameters(document)
    sources = ["data"] if "data" in document else []
    sources += [key for key in ("binary_data_size", "shared_memory_region") if key in parameters]
    if len(sources) != 1:
        raise _bad_sources(sources)
    part = None if "binary_data_size" in parameters else _part(parameters)
    if part is not None:
        return ParsedInput(name, datatype, shape, 0, None, part)
    if "data" in document:
        return ParsedInput(name, datatype, shape, 0, _data_bytes(name, datatype, shape, document["data"]))
    size = parameters["binary_data_size"]
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise wrong_type("binary_data_size", "unsigned-integer")
    return ParsedInput(name, datatype, shape, size, None)


def _shape(document: dict[str, Any]) -> tuple[int, ...]:
    if "shape" not in document:
        raise _missing("shape")
    shape = _array(document, "shape")
    for dimension in shape:
        if type(dimension) is not int or dimension < 0:
            raise wrong_type("shape", "unsigned-integer")
    if prod(shape) > 2**63 - 1:
        sentence = f"shape {shape} causes total element count to exceed maximum size of {2**63 - 1}"
        raise InferenceError(ErrorCode.INVALID_ARG, sentence)
    return tuple(shape)


def _data_bytes(name: str, datatype: str, shape: tuple[int, ...], data: Any) -> bytes:
    """Return the tensor bytes of nested or flat JSON arrays."""
    if datatype in ("FP16", "BF16"):
        sentence = (
            f"receiving {datatype} data via JSON is not supported. Please use the binary data format for input {name}"
        )
        raise InferenceError(ErrorCode.INVALID_ARG, sentence)
    if not isinstance(data, list):
        raise wrong_type("data", "array")
    depth = 0
    inner: Any = data
    while isinstance(inner, list) and inner:
        depth, inner = depth + 1, inner[0]
    if depth > _MAX_DEPTH:
        sentence = f"JSON nesting depth exceeds maximum allowed limit ({_MAX_DEPTH})"
        raise InferenceError(ErrorCode.INVALID_ARG, sentence)
    if data and isinstance(data[0], list):
        data = _flatten(data)
    # without a shape the count is left to the model's own check, which names the missing batch dimension
    if shape and len(data) != prod(shape):
        sentence = "Unable to parse 'data': Shape does not match true shape of 'data' field"
        raise InferenceError(ErrorCode.INTERNAL, sentence)
    if datatype == "BYTES":
        return _string_bytes(data)
    return _number_bytes(datatype, data)


def _flatten(data: list[Any]) -> list[Any]:
    """Return the innermost values in order. Ragged arrays are noticed by their count."""
    level = data
    while level and isinstance(level[0], list):
        following: list[Any] = []
        for item in level:
            if not isinstance(item, list):
                raise wrong_type("data", "array")
            following.extend(item)
        level = following
    return level


def _string_bytes(data: list[Any]) -> bytes:
    for item in data:
        if not isinstance(item, str):
            sentence = "Unable to parse JSON bytes array: attempt to access JSON non-string as string"
            raise InferenceError(ErrorCode.INTERNAL, sentence)
    array = np.empty(len(data), np.object_)
    array[:] = data
    return encode_bytes_elements(array)


def _number_bytes(datatype: str, data: list[Any]) -> bytes:
    dtype = NUMPY_DTYPES[datatype]
    if not set(map(type, data)) <= _ALLOWED.get(datatype, _INTEGERS):
        raise _wrong_number(datatype)
    if datatype in _ALLOWED:
        return np.array(data, dtype).tobytes()
    array = np.array(data)
    if array.dtype.kind not in "iu":  # a mixture that numpy widens; integers are cut to the type, as in Triton
        array = np.array([item & _UINT64_MAX for item in data], np.uint64)
    return array.astype(dtype).tobytes()


def _wrong_number(datatype: str) -> InferenceError:
    if datatype.startswith("FP"):
        return InferenceError(ErrorCode.INTERNAL, "Unable to parse 'data': attempt to access JSON non-number as double")
    if datatype == "BOOL":
        return wrong_type("data", "boolean")
    return wrong_type("data", "unsigned-integer" if datatype.startswith("U") else "signed-integer")


def _missing(key: str) -> InferenceError:
    sentence = f"Unable to parse '{key}': attempt to access non-existing object member '{key}'"
    return InferenceError(ErrorCode.INTERNAL, sentence)


def wrong_type(key: str, expected: str) -> InferenceError:
    """Return Triton's error for a member of the wrong JSON type."""
    sentence = f"Unable to parse '{key}': attempt to access JSON non-{expected} as {expected}"
    return InferenceError(ErrorCode.INTERNAL, sentence)


def _bad_sources(sources: list[str]) -> InferenceError:
    found = "But set " + " ".join(f"'{source}'" for source in sources) if sources else "But no field is set"
    sentence = (
        "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters',"
        f" 'shared_memory_region' in 'parameters'. {found}"
    )
    return InferenceError(ErrorCode.INVALID_ARG, sentence)
