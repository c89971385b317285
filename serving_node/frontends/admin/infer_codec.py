"""Inference for the control plane: plain JSON for the console's try-it page, binary tensors for measurements.

Source: the v2 inference protocol and its binary data extension, plus ``timing`` in the answer. FP16 in JSON is numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isfinite, prod
from typing import Any

import numpy as np
import orjson

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest, InferenceResponse, RequestedOutput
from serving_node.core.tensor import NUMPY_DTYPES, Tensor

# What a person can look at; larger tensors belong to the inference ports, which do not parse them on the loop.
_MAX_ELEMENTS = 1 << 18
_MAX_NESTING = 32


def decode_request(
    model: str, version: str, unit: str, document: Any, on_response: Callable[[InferenceResponse], None]
) -> InferenceRequest:
    """Return the request that a JSON document describes.

    Raises:
        InferenceError: INVALID_ARG with one sentence.
    """
    if not isinstance(document, dict) or not isinstance(document.get("inputs"), list):
        raise _bad("the body must be an object with a list 'inputs'")
    outputs = document.get("outputs") or []
    parameters = document.get("parameters") or {}
    if not isinstance(outputs, list) or not isinstance(parameters, dict):
        raise _bad("'outputs' must be a list and 'parameters' an object")
    for key, value in parameters.items():
        if not isinstance(value, bool | int | float | str):
            raise _bad(f"parameter '{key}' must be a string, a number or a boolean")
    return InferenceRequest(
        model_name=model,
        model_version=version,
        inputs=[_decode_input(item) for item in document["inputs"]],
        on_response=on_response,
        id=str(document.get("id") or ""),
        outputs=[RequestedOutput(_name(item, "output")) for item in outputs],
        parameters=parameters,
        unit=unit,
    )


def decode_binary(
    model: str, unit: str, head: memoryview, tensors: memoryview, on_response: Callable[[InferenceResponse], None]
) -> InferenceRequest:
    """Return the request whose JSON ``head`` names inputs that follow one another in ``tensors``, as views.

    Raises:
        InferenceError: INVALID_ARG with one sentence.
    """
    try:
        document = orjson.loads(head)
    except orjson.JSONDecodeError as error:
        raise _bad(f"the head of the body is not JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("inputs"), list):
        raise _bad("the body must be an object with a list 'inputs'")
    inputs, offset = [], 0
    for item in document["inputs"]:
        name, parameters = _name(item, "input"), item.get("parameters")
        size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
        if type(size) is not int or not 0 <= size <= len(tensors) - offset:
            raise _bad(f"input '{name}' must say in 'binary_data_size' how many of the body's bytes are its own")
        datatype = item.get("datatype")
        if datatype not in NUMPY_DTYPES:
            raise _bad(f"input '{name}' has the unknown datatype {datatype!r}")
        inputs.append(Tensor(name, datatype, _shape(name, item.get("shape")), tensors[offset : offset + size]))
        offset += size
    if offset != len(tensors):
        raise _bad(f"the body has {len(tensors) - offset} bytes that belong to no input")
    return InferenceRequest(model_name=model, model_version="", inputs=inputs, on_response=on_response, unit=unit)


def encode_outline(response: InferenceResponse) -> dict[str, Any]:
    """Return the answer without the data of its outputs, with ``timing`` in microseconds."""
    document: dict[str, Any] = {
        "model_name": response.model_name,
        "model_version": response.model_version,
        "outputs": [
            {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
            for tensor in response.outputs
        ],
    }
    return document | _timing(response)


def encode_response(response: InferenceResponse) -> dict[str, Any]:
    """Return the answer as a JSON-ready dict with flat ``data`` and ``timing`` in microseconds.

    Raises:
        InferenceError: INVALID_ARG, an output is too large for this interface.
    """
    document: dict[str, Any] = {
        "model_name": response.model_name,
        "model_version": response.model_version,
        "outputs": [_encode_output(tensor) for tensor in response.outputs],
    }
    if response.id:
        document["id"] = response.id
    if response.parameters:
        document["parameters"] = response.parameters
    return document | _timing(response)


def _timing(response: InferenceResponse) -> dict[str, Any]:
    timing = response.timing
    if timing is None:
        return {}
    compute_ns = timing.compute_input_ns + timing.compute_infer_ns + timing.compute_output_ns
    return {"timing": {"queue_us": timing.queue_ns // 1000, "compute_us": compute_ns // 1000}}


def _decode_input(item: Any) -> Tensor:
    name = _name(item, "input")
    datatype, shape, data = item.get("datatype"), item.get("shape"), item.get("data")
    if datatype not in NUMPY_DTYPES or datatype == "BF16":
        raise _bad(f"input '{name}' has the datatype {datatype!r}, which cannot travel as JSON")
    shape = _shape(name, shape)
    if not isinstance(data, list):
        raise _bad(f"the data of input '{name}' must be a list")
    if prod(shape) > _MAX_ELEMENTS:
        raise _bad(f"input '{name}' is too large for this interface")
    flat = list(_flatten(data))
    if len(flat) != prod(shape):
        raise _bad(f"input '{name}' has {len(flat)} elements, its shape asks for {prod(shape)}")
    wanted: tuple[type, ...] = (str,) if datatype == "BYTES" else (bool,) if datatype == "BOOL" else (int, float)
    if datatype.startswith(("INT", "UINT")):
        wanted = (int,)
    if not all(type(element) in wanted for element in flat):
        raise _bad(f"the data of input '{name}' does not fit {datatype}")
    try:
        array = np.array(flat, dtype=NUMPY_DTYPES[datatype]).reshape(shape)
    except (OverflowError, ValueError) as error:
        raise _bad(f"the data of input '{name}' does not fit {datatype}: {error}") from error
    return Tensor.from_numpy(name, array, datatype)


def _encode_output(tensor: Tensor) -> dict[str, Any]:
    if prod(tensor.shape) > _MAX_ELEMENTS:
        raise _bad(f"output '{tensor.name}' of shape {list(tensor.shape)} is too large for this interface")
    array = tensor.as_numpy().reshape(-1)
    if tensor.datatype == "BF16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    data: list[Any] = array.tolist()
    if tensor.datatype == "BYTES":
        data = [element.decode("utf-8", errors="replace") for element in data]
    elif tensor.datatype in ("FP16", "FP32", "FP64", "BF16"):
        # JSON has no NaN nor infinity; a word says more than null.
        data = [value if isfinite(value) else str(value) for value in data]
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape), "data": data}


def _flatten(data: list[Any], depth: int = 1) -> Iterator[Any]:
    if depth > _MAX_NESTING:
        raise _bad(f"the data of an input is nested more than {_MAX_NESTING} times")
    for element in data:
        if isinstance(element, list):
            yield from _flatten(element, depth + 1)
        else:
            yield element


def _shape(name: str, shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise _bad(f"the shape of input '{name}' must be a list of sizes")
    return tuple(shape)


def _name(item: Any, what: str) -> str:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        raise _bad(f"each {what} must be an object with a 'name'")
    return str(item["name"])


def _bad(sentence: str) -> InferenceError:
    return InferenceError(ErrorCode.INVALID_ARG, sentence)
