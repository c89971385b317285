"""Tensors as views on bytes: little-endian, row-major, exactly as on the wire."""

from __future__ import annotations

import struct
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError

# v2 datatype -> numpy dtype. BF16 has no numpy type and travels as its 16 raw bits; BYTES is an object array.
NUMPY_DTYPES: dict[str, np.dtype[np.generic]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BF16": np.dtype(np.uint16),
    "BYTES": np.dtype(np.object_),
}

_LENGTH = struct.Struct("<I")


class Tensor:
    """One named tensor.

    Shapes: ``shape`` includes the batch dimension when the model has one.
    Ownership: ``data`` is a view; whoever made it keeps the memory alive by the reference. Never write into it.
    ``data`` of BYTES tensors is 4-byte little-endian length + bytes for each element.
    """

    __slots__ = ("data", "datatype", "name", "shape")

    # written out, not made by ``dataclass``: see core.request
    def __init__(self, name: str, datatype: str, shape: tuple[int, ...], data: memoryview | bytes | bytearray) -> None:
        self.name = name
        self.datatype = datatype
        self.shape = shape
        self.data = data

    def __reduce__(self) -> tuple[type[Tensor], tuple[str, str, tuple[int, ...], memoryview | bytes | bytearray]]:
        """Travel between processes: a compiled class does not by itself."""
        return Tensor, (self.name, self.datatype, self.shape, self.data)

    def reshaped(self, shape: tuple[int, ...]) -> Tensor:
        """Return a tensor of the same bytes with another shape."""
        return Tensor(self.name, self.datatype, shape, self.data)

    def as_numpy(self) -> npt.NDArray[np.generic]:
        """Return an array of ``shape``: a view for fixed-size types, a new object array for BYTES.

        Raises:
            InferenceError: INVALID_ARG when the bytes do not fill the shape exactly.
        """
        if self.datatype == "BYTES":
            return decode_bytes_elements(self.data, self.name, prod(self.shape)).reshape(self.shape)
        dtype = NUMPY_DTYPES[self.datatype]
        expected = prod(self.shape) * dtype.itemsize
        if len(self.data) != expected:
            raise InferenceError(
                ErrorCode.INVALID_ARG,
                f"input byte size mismatch for input '{self.name}'. Expected {expected}, got {len(self.data)}",
            )
        return np.frombuffer(self.data, dtype=dtype).reshape(self.shape)

    @classmethod
    def from_numpy(cls, name: str, array: npt.NDArray[np.generic], datatype: str) -> Tensor:
        """Wrap an array without copying when it is already contiguous. Object arrays become BYTES."""
        if datatype == "BYTES":
            return cls(name, datatype, array.shape, encode_bytes_elements(array))
        contiguous = np.ascontiguousarray(array)
        # memoryview.cast refuses views with a zero in the shape
        return cls(name, datatype, array.shape, array_bytes(contiguous) if contiguous.size else b"")


def array_bytes(array: npt.NDArray[np.generic]) -> memoryview:
    """Return the bytes of a contiguous, non-empty array as a view."""
    flat: Any = array.reshape(-1).view(np.uint8)  # typing knows no buffers that are no bytes
    return memoryview(flat)


def encode_bytes_elements(array: npt.NDArray[np.generic]) -> bytes:
    """Return the wire form of an object array of str or bytes, in row-major order."""
    parts: list[bytes] = []
    elements: Any = array.flat
    for element in elements:
        raw = element.encode() if isinstance(element, str) else bytes(element)
        parts.append(_LENGTH.pack(len(raw)))
        parts.append(raw)
    return b"".join(parts)


def decode_bytes_elements(data: memoryview | bytes | bytearray, name: str, count: int) -> npt.NDArray[np.object_]:
    """Return the ``count`` elements of a BYTES tensor as a flat object array of bytes.

    Raises:
        InferenceError: INVALID_ARG when a length runs past the end or the number of elements differs.
    """
    elements: list[bytes] = []
    offset, end = 0, len(data)
    while offset < end:
        if offset + 4 > end:
            raise InferenceError(
                ErrorCode.INVALID_ARG,
                f"incomplete string length indicator for inference input '{name}',"
                f" expecting 4 bytes but only {end - offset} bytes available",
            )
        (length,) = _LENGTH.unpack_from(data, offset)
        offset += 4
        if offset + length > end:
            raise InferenceError(
                ErrorCode.INVALID_ARG,
                f"incomplete string data for inference input '{name}',"
                f" expecting string of length {length} but only {end - offset} bytes available",
            )
        elements.append(bytes(data[offset : offset + length]))
        offset += length
    if len(elements) != count:
        raise InferenceError(
            ErrorCode.INVALID_ARG,
            f"unexpected number of string elements {len(elements)} for inference input '{name}', expecting {count}",
        )
    array = np.empty(count, dtype=np.object_)
    array[:] = elements
    return array
