"""JSON texts and the tensors in them. Pure and picklable: large ones are handled in another process.

Error classes and texts are Triton's: what is not JSON or has the wrong type is INTERNAL (500), what is well-formed but
not acceptable is INVALID_ARG (400).
"""

from __future__ import annotations

import json
import re
import struct
from typing import Any

import numpy as np
import orjson

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.tensor import NUMPY_DTYPES, decode_bytes_elements
from serving_node.wire.exchange import Buffer

_MAX_DEPTH = 100
_SMALL_BYTES = 1024 * 1024
_ALLOWED: dict[str, frozenset[type]] = {
    "BOOL": frozenset({bool}),
    "FP32": frozenset({int, float}),
    "FP64": frozenset({int, float}),
}
_INTEGERS: frozenset[type] = frozenset({int})
_BOM = b"\xef\xbb\xbf"
_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_LONE = re.compile(rb"(?<!\\)(?:\\\\)*\\u[dD][89a-fA-F]")
_NO_COUNT = "Unable to parse 'data': Shape does not match true shape of 'data' field"


def parse_json(text: bytes | memoryview) -> Any:
    """Return a JSON value. NaN, Infinity, a byte order mark and strings that are not UTF-8 are taken too.

    Raises:
        InferenceError: INTERNAL, not JSON; INVALID_ARG, nested too deeply.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        try:
            return _parse_leniently(bytes(text))
        except RecursionError:
            raise _too_deep() from None
        except ValueError:
            sentence = f"failed to parse the request JSON buffer: {error.msg} at {error.pos}"
            raise InferenceError(ErrorCode.INTERNAL, sentence) from None


def parse_small(text: bytes | memoryview) -> Any:
    """Return a JSON value of a call that says little: parsing a large one would hold up everybody else.

    Raises:
        InferenceError: as ``parse_json`` does, and INVALID_ARG for more than 1 MiB.
    """
    if len(text) > _SMALL_BYTES:
        sentence = f"request JSON size of {len(text)} bytes exceeds the maximum of {_SMALL_BYTES} bytes for this call"
        raise InferenceError(ErrorCode.INVALID_ARG, sentence)
    return parse_json(text)


def parse_object(text: bytes | memoryview) -> dict[str, Any]:
    """Return a JSON object. Raises InferenceError as ``parse_json`` does, and INTERNAL for any other value."""
    return as_object(parse_json(text))


def as_object(document: Any) -> dict[str, Any]:
    """Return a parsed document that must be an object. Raises InferenceError INTERNAL."""
    if not isinstance(document, dict):
        raise InferenceError(ErrorCode.INTERNAL, "failed to parse the request JSON buffer: not an object at 0")
    return document


def _parse_leniently(text: bytes) -> Any:
    """Return what Triton's parser takes and orjson does not. Raises ValueError or RecursionError."""
    text = text.removeprefix(_BOM)
    if _LONE.search(_PAIR.sub(b"", text)):
        raise ValueError("the surrogate pair in string is invalid")
    return _clean(json.loads(text.decode("utf-8", "surrogateescape"), parse_float=_finite), 0)


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("number too big to be stored in double")
    return value


def _clean(value: Any, depth: int) -> Any:
    """Return a document whose strings are all text; only tensor data keep bytes that are not UTF-8, as surrogates."""
    if depth > _MAX_DEPTH:
        raise RecursionError
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, list):
        return [_clean(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {_clean(key, depth): item if key == "data" else _clean(item, depth + 1) for key, item in value.items()}
    return value


def wrong_type(key: str, expected: str) -> InferenceError:
    """Return Triton's error for a member of the wrong JSON type."""
    if key == "sequence_id":  # tried as an integer first
        expected = "string"
    sentence = f"Unable to parse '{key}': attempt to access JSON non-{expected} as {expected}"
    return InferenceError(ErrorCode.INTERNAL, sentence)


def tensor_bytes(name: str, datatype: str, data: list[Any], count: int | None) -> bytes:
    """Return the bytes of a tensor whose elements are in ``data``, in nested or flat arrays.

    Integers are cut to the type, as in Triton. ``count`` is how many elements there must be, None for any number; of
    strings there may be any number, because the model's own check has a better text.

    Raises:
        InferenceError: the type cannot travel as JSON, an element has the wrong type, or the count is wrong.
    """
    if datatype in ("FP16", "BF16"):
        sentence = (
            f"receiving {datatype} data via JSON is not supported. Please use the binary data format for input {name}"
        )
        raise InferenceError(ErrorCode.INVALID_ARG, sentence)
    flat, kinds = _flatten(data)
    if datatype == "BYTES":
        return _string_bytes(flat, kinds)
    if count is not None and len(flat) != count:
        raise InferenceError(ErrorCode.INTERNAL, _NO_COUNT)
    return _number_bytes(datatype, flat, kinds)


def _flatten(data: list[Any]) -> tuple[list[Any], set[type]]:
    """Return the innermost values in order, and their types."""
    level = data
    for _ in range(_MAX_DEPTH - 1):
        kinds = set(map(type, level))
        if list not in kinds:
            return level, kinds
        following: list[Any] = []
        for item in level:
            if type(item) is list:
                following += item
            else:
                following.append(item)
        level = following
    raise _too_deep()


def _string_bytes(data: list[Any], kinds: set[type]) -> bytes:
    if not kinds <= {str}:
        sentence = "Unable to parse JSON bytes array: attempt to access JSON non-string as string"
        raise InferenceError(ErrorCode.INTERNAL, sentence)
    parts: list[bytes] = []
    try:
        for text in data:
            raw = text.encode("utf-8", "surrogateescape")
            parts += (len(raw).to_bytes(4, "little"), raw)
    except UnicodeEncodeError:
        sentence = "failed to parse the request JSON buffer: The surrogate pair in string is invalid."
        raise InferenceError(ErrorCode.INTERNAL, sentence) from None
    return b"".join(parts)


def _number_bytes(datatype: str, data: list[Any], kinds: set[type]) -> bytes:
    dtype = NUMPY_DTYPES[datatype]
    if not kinds <= _ALLOWED.get(datatype, _INTEGERS):
        raise _wrong_number(datatype)
    try:
        if dtype.kind == "f":
            return _float_bytes(dtype, data)
        if datatype == "BOOL":
            return bytes(data)
        return np.array(data, np.uint64 if dtype.kind == "u" else np.int64).astype(dtype).tobytes()
    except OverflowError:
        raise _wrong_number(datatype) from None


def _float_bytes(dtype: np.dtype[Any], data: list[Any]) -> bytes:
    try:
        return struct.pack(f"<{len(data)}{dtype.char}", *data)  # twice as fast as numpy
    except (OverflowError, struct.error):
        with np.errstate(over="ignore"):  # some are infinity in this type
            return np.array(data, dtype).tobytes()


def _wrong_number(datatype: str) -> InferenceError:
    if datatype.startswith("FP"):
        return InferenceError(ErrorCode.INTERNAL, "Unable to parse 'data': attempt to access JSON non-number as double")
    if datatype == "BOOL":
        return wrong_type("data", "boolean")
    return wrong_type("data", "unsigned-integer" if datatype.startswith("U") else "signed-integer")


def _too_deep() -> InferenceError:
    return InferenceError(ErrorCode.INVALID_ARG, f"JSON nesting depth exceeds maximum allowed limit ({_MAX_DEPTH})")


def write_data(name: str, datatype: str, data: Buffer) -> bytes:
    """Return the flat JSON array of a tensor's bytes. FP32 is written as the double that it is, NaN as NaN.

    Raises:
        InferenceError: INVALID_ARG, the type cannot travel as JSON.
    """
    if datatype in ("FP16", "BF16"):
        sentence = f"sending {datatype} data via JSON is not supported. Please use the binary data format for output"
        raise InferenceError(ErrorCode.INVALID_ARG, sentence)
    if datatype == "BYTES":
        return _write_strings(name, data)
    array = np.frombuffer(data, NUMPY_DTYPES[datatype])
    if array.dtype.kind != "f":
        return orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY)
    text = orjson.dumps(array.astype(np.float64), option=orjson.OPT_SERIALIZE_NUMPY)
    return _write_special(text, array) if b"null" in text else text


def _write_special(text: bytes, array: np.ndarray[Any, np.dtype[Any]]) -> bytes:
    """Return ``text`` with the names of the values that JSON does not know, where orjson has written null."""
    pieces = text[1:-1].split(b",")
    for index in np.flatnonzero(~np.isfinite(array)):
        value = array[index]
        pieces[index] = b"NaN" if np.isnan(value) else b"Infinity" if value > 0 else b"-Infinity"
    return b"[" + b",".join(pieces) + b"]"


def _write_strings(name: str, data: Buffer) -> bytes:
    elements = decode_bytes_elements(data, name, _count_elements(data))
    # what is not UTF-8 cannot be said in JSON: clients that need such bytes ask for binary data
    return orjson.dumps([element.decode("utf-8", "replace") for element in elements])


def _count_elements(data: Buffer) -> int:
    count = position = 0
    while position + 4 <= len(data):
        position += 4 + int.from_bytes(data[position : position + 4], "little")
        count += 1
    return count
