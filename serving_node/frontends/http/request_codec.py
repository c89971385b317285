"""The JSON of infer requests. Pure and picklable: large bodies are parsed in another process by the same functions.

Error classes are Triton's, and so is the order of checks: see ``json_data``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.request import Parameter, RequestedOutput
from serving_node.core.tensor import NUMPY_DTYPES
from serving_node.frontends.http.json_data import parse_json, tensor_bytes, wrong_type
from serving_node.frontends.parameters import RESERVED
from serving_node.frontends.shared_memory import Slice

_UINT64_MAX = 2**64 - 1
_INT64_MAX = 2**63 - 1
# Request parameters with a meaning of their own, and what they must be.
_TYPED = {
    "sequence_id": "string",
    "sequence_start": "boolean",
    "sequence_end": "boolean",
    "priority": "unsigned-integer",
    "timeout": "unsigned-integer",
    "binary_data_output": "boolean",
}


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
    """One requested output. ``part`` is where in shared memory it is written."""

    name: str
    is_binary: bool
    parameters: dict[str, Parameter]
    part: Slice | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ParsedRequest:
    """The JSON part of an infer request. ``uses_regions``: a tensor is in shared memory.

    ``is_description``: no tensor data are in the JSON, so that other requests with the same JSON share this.
    ``wanted`` are the outputs as models see them; nobody changes them.
    """

    id: str
    inputs: tuple[ParsedInput, ...]
    outputs: tuple[ParsedOutput, ...]
    parameters: dict[str, Parameter]
    is_binary: bool
    uses_regions: bool = False
    is_description: bool = False
    wanted: list[RequestedOutput] = field(default_factory=list)


def parse_infer(text: bytes | memoryview) -> ParsedRequest:
    """Return the request of a JSON text.

    Raises:
        InferenceError: INTERNAL or INVALID_ARG, see above.
    """
    document = parse_json(text)
    if not isinstance(document, dict) or "inputs" not in document:
        raise _missing("inputs")
    request_id = document.get("id", "")
    if not isinstance(request_id, str):
        raise wrong_type("id", "string")
    parameters = _request_parameters(document.get("parameters", {}))
    default = bool(parameters.pop("binary_data_output", False))
    inputs = tuple(_parse_input(item) for item in _array(document, "inputs"))
    outputs = tuple(_parse_output(item) for item in _array(document, "outputs")) if "outputs" in document else ()
    uses_regions = any(tensor.part for tensor in inputs) or any(output.part for output in outputs)
    is_description = all(tensor.data is None for tensor in inputs)
    wanted = [RequestedOutput(output.name, output.parameters) for output in outputs]
    return ParsedRequest(request_id, inputs, outputs, parameters, default, uses_regions, is_description, wanted)


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


def _request_parameters(given: Any) -> dict[str, Parameter]:
    if not isinstance(given, dict):
        sentence = "failed to get request params.: attempt to get members for non-object"
        raise InferenceError(ErrorCode.INTERNAL, sentence)
    return {key: _request_parameter(key, value) for key, value in given.items()}


def _request_parameter(key: str, value: Any) -> Parameter:
    expected = _TYPED.get(key)
    if expected is not None:
        if expected == "boolean":
            is_right = isinstance(value, bool)
        else:
            is_right = type(value) is int and 0 <= value <= _UINT64_MAX
        if not is_right and not (key == "sequence_id" and isinstance(value, str)):
            raise wrong_type(key, expected)
    elif key.startswith("triton_"):
        raise InferenceError(ErrorCode.INVALID_ARG, RESERVED)
    else:
        return free_parameter(key, value)
    result: Parameter = value
    return result


def free_parameter(key: str, value: Any) -> Parameter:
    """Return a parameter without a meaning of its own as models get it: integers of more than 64 bits as doubles.

    Raises:
        InferenceError: INVALID_ARG, null, an array or an object.
    """
    if isinstance(value, bool | float | str):
        return value
    if isinstance(value, int):
        return value if -_INT64_MAX - 1 <= value <= _INT64_MAX else float(value)
    sentence = f"parameter '{key}' has invalid type. It should be either 'int', 'bool', or 'string'."
    raise InferenceError(ErrorCode.INVALID_ARG, sentence)


def _tensor_parameters(document: Any) -> dict[str, Any]:
    """Return the parameters of an input or output; what is not an object counts as none."""
    parameters = document.get("parameters") if isinstance(document, dict) else None
    return dict(parameters) if isinstance(parameters, dict) else {}


def _parse_output(document: Any) -> ParsedOutput:
    parameters = _tensor_parameters(document)
    if "shared_memory_region" in parameters:
        _check_region_output(parameters)
    name = _text(document, "name")
    kept: dict[str, Parameter] = {}
    classes = parameters.get("classification", 0)
    if type(classes) is not int or not 0 <= classes <= _UINT64_MAX:
        sentence = "Unable to set 'classification': attempt to access JSON non-unsigned-integer as unsigned-integer"
        raise InferenceError(ErrorCode.INTERNAL, sentence)
    if classes:
        kept["classification"] = classes
    part = _part(parameters)
    is_binary = parameters.get("binary_data", False)
    if not isinstance(is_binary, bool):
        raise wrong_type("binary_data", "boolean")
    return ParsedOutput(name, is_binary, kept, part)


def _check_region_output(parameters: dict[str, Any]) -> None:
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


def _part(parameters: dict[str, Any]) -> Slice | None:
    """Take the shared memory parameters out and return what they mean, None without a region."""
    region = parameters.pop("shared_memory_region", None)
    if region is not None and not isinstance(region, str):
        raise wrong_type("shared_memory_region", "string")
    offset = _unsigned(parameters, "shared_memory_offset")
    size = _unsigned(parameters, "shared_memory_byte_size")
    return None if region is None else Slice(region, offset, size)


def _unsigned(parameters: dict[str, Any], key: str) -> int:
    value = parameters.pop(key, 0)
    if type(value) is not int or not 0 <= value <= _UINT64_MAX:
        raise wrong_type(key, "unsigned-integer")
    return value


def _parse_input(document: Any) -> ParsedInput:
    parameters = _tensor_parameters(document)
    sources = ["data"] if isinstance(document, dict) and "data" in document else []
    sources += [key for key in ("binary_data_size", "shared_memory_region") if key in parameters]
    if len(sources) != 1:
        raise _bad_sources(sources)
    name = _text(document, "name")
    datatype = _text(document, "datatype")
    shape = _shape(document, name)
    if datatype not in NUMPY_DTYPES:
        raise InferenceError(ErrorCode.INVALID_ARG, f"invalid datatype for input {name}")
    if "binary_data_size" in parameters:
        return ParsedInput(name, datatype, shape, _unsigned(parameters, "binary_data_size"), None)
    part = _part(parameters)
    data = _data_bytes(name, datatype, shape, document["data"]) if part is None else None
    return ParsedInput(name, datatype, shape, 0, data, part)


def _shape(document: dict[str, Any], name: str) -> tuple[int, ...]:
    if "shape" not in document:
        raise _missing("shape")
    shape = _array(document, "shape")
    for dimension in shape:
        if type(dimension) is not int or not 0 <= dimension <= _UINT64_MAX:
            raise wrong_type("shape", "unsigned-integer")
    problem = ""
    if any(dimension > _INT64_MAX for dimension in shape):
        problem = "contains one or more invalid dimensions"
    elif _count(shape) > _INT64_MAX:
        problem = f"causes total element count to exceed maximum size of {_INT64_MAX}"
    if problem:
        written = ",".join(map(str, shape))
        raise InferenceError(ErrorCode.INVALID_ARG, f"invalid shape for input '{name}': shape [{written}] {problem}")
    return tuple(shape)


def _count(shape: Sequence[int]) -> int:
    """Return the number of elements, or some number over the largest allowed: the product of many may be endless."""
    count = 1
    for dimension in shape:
        count *= dimension
        if count > _INT64_MAX:
            break
    return count


def _data_bytes(name: str, datatype: str, shape: tuple[int, ...], data: Any) -> bytes:
    count = _count(shape)
    if count == 0:
        return b""
    if not isinstance(data, list):
        raise wrong_type("data", "array")
    size = NUMPY_DTYPES[datatype].itemsize
    if datatype != "BYTES" and count * size > _INT64_MAX:
        sentence = (
            f"byte size overflow for input '{name}': element count ({count}) * data type size ({size}) exceeds"
            f" maximum allowed size ({_INT64_MAX})"
        )
        raise InferenceError(ErrorCode.INVALID_ARG, sentence)
    # without a shape the count is left to the model's own check, which names the missing batch dimension
    return tensor_bytes(name, datatype, data, count if shape else None)


def _missing(key: str) -> InferenceError:
    sentence = f"Unable to parse '{key}': attempt to access non-existing object member '{key}'"
    return InferenceError(ErrorCode.INTERNAL, sentence)


def _bad_sources(sources: list[str]) -> InferenceError:
    found = "But set " + " ".join(f"'{source}'" for source in sources) if sources else "But no field is set"
    sentence = (
        "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters',"
        f" 'shared_memory_region' in 'parameters'. {found}"
    )
    return InferenceError(ErrorCode.INVALID_ARG, sentence)
