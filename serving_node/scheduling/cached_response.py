"""A response as one immutable run of bytes, and back. Pure.

Layout: ``FRC1``, the length of the head (4 bytes, little-endian), the head as JSON, then the bytes of each output, each
from a multiple of 16 bytes on, because engines may read a cached output as the input of another model.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from math import isfinite, prod
from typing import Any

import orjson

from serving_node.core.request import Parameter
from serving_node.core.tensor import NUMPY_DTYPES, Tensor

_MAGIC = b"FRC1"
_START = struct.Struct("<4sI")
_ALIGNMENT = 16


def pack_response(outputs: Sequence[Tensor], parameters: Mapping[str, Parameter]) -> bytes:
    """Return the bytes that ``unpack_response`` reads.

    Raises:
        ValueError: a parameter has no JSON: a number that is not finite or too large, or a broken string.
    """
    if any(isinstance(value, float) and not isfinite(value) for value in parameters.values()):
        raise ValueError("a parameter is not a finite number")
    described = [[tensor.name, tensor.datatype, list(tensor.shape), len(tensor.data)] for tensor in outputs]
    try:
        head = orjson.dumps([described, dict(parameters)])
    except TypeError as error:
        raise ValueError(f"a parameter has no JSON: {error}") from error
    parts: list[bytes | bytearray | memoryview] = [_START.pack(_MAGIC, len(head)), head]
    end = _START.size + len(head)
    for tensor in outputs:
        parts += (bytes(-end % _ALIGNMENT), tensor.data)
        end += -end % _ALIGNMENT + len(tensor.data)
    return b"".join(parts)


def unpack_response(raw: bytes) -> tuple[list[Tensor], dict[str, Parameter]]:
    """Return outputs, as views on ``raw``, and parameters.

    Raises:
        ValueError: not what ``pack_response`` writes; it may come from a server that others write to.
    """
    try:
        magic, length = _START.unpack_from(raw)
        if magic != _MAGIC:
            raise ValueError("not a cached response")
        described, parameters = orjson.loads(memoryview(raw)[_START.size : _START.size + length])
        return _tensors(raw, _START.size + length, described), _checked(parameters)
    except (struct.error, AttributeError, TypeError, KeyError) as error:
        raise ValueError("not a cached response") from error


def _tensors(raw: bytes, end: int, described: Any) -> list[Tensor]:
    view = memoryview(raw)
    outputs: list[Tensor] = []
    for name, datatype, shape, length in described:
        start = end + -end % _ALIGNMENT
        end = start + length
        dtype = NUMPY_DTYPES[datatype]
        has_length = dtype.hasobject or prod(shape) * dtype.itemsize == length
        if not isinstance(name, str) or length < 0 or min(shape, default=0) < 0 or not has_length:
            raise ValueError("not a cached response")
        outputs.append(Tensor(name, datatype, tuple(shape), view[start:end]))
    if end != len(raw):
        raise ValueError("a cached response of another length")
    return outputs


def _checked(parameters: dict[str, Parameter]) -> dict[str, Parameter]:
    if not all(isinstance(value, bool | int | float | str) for value in parameters.values()):
        raise ValueError("not a cached response")
    return parameters
