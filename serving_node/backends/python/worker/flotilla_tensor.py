"""Tensors of models and what converts them: numpy, DLPack, strings, names and numbers of datatypes."""

from __future__ import annotations

import struct
from typing import Any

import flotilla_dlpack  # type: ignore[import-not-found]
import numpy as np

TRITON_STRING_TO_NUMPY: dict[str, Any] = {
    "TYPE_BOOL": bool,
    "TYPE_UINT8": np.uint8,
    "TYPE_UINT16": np.uint16,
    "TYPE_UINT32": np.uint32,
    "TYPE_UINT64": np.uint64,
    "TYPE_INT8": np.int8,
    "TYPE_INT16": np.int16,
    "TYPE_INT32": np.int32,
    "TYPE_INT64": np.int64,
    "TYPE_FP16": np.float16,
    "TYPE_FP32": np.float32,
    "TYPE_FP64": np.float64,
    "TYPE_STRING": np.object_,
}

# By Triton's number of the datatype: numpy's type and the name on the wire.
_BY_NUMBER: dict[int, tuple[Any, str]] = {
    1: (np.bool_, "BOOL"),
    2: (np.uint8, "UINT8"),
    3: (np.uint16, "UINT16"),
    4: (np.uint32, "UINT32"),
    5: (np.uint64, "UINT64"),
    6: (np.int8, "INT8"),
    7: (np.int16, "INT16"),
    8: (np.int32, "INT32"),
    9: (np.int64, "INT64"),
    10: (np.float16, "FP16"),
    11: (np.float32, "FP32"),
    12: (np.float64, "FP64"),
    13: (np.object_, "BYTES"),
}
_NUMBERS = {name: number for number, (_, name) in _BY_NUMBER.items()}
_NUMBERS["BF16"] = 14
_WIRE_NAMES = {np.dtype(kind): name for kind, name in _BY_NUMBER.values()}
# bfloat16 has no numpy type: its bits are kept as uint16
_DTYPES = {name: np.dtype(kind) for kind, name in _BY_NUMBER.values()}
_DTYPES["BF16"] = np.dtype(np.uint16)
_LENGTH = struct.Struct("<I")


class TritonModelException(Exception):
    """What goes wrong in this module."""


class UnreadableStrings(Exception):
    """The bytes of a tensor are not the strings that its shape promises.

    Arguments are the sentence up to where the model is named, and what comes after that.
    """


class Tensor:
    """A named array. Tensors of bfloat16 come and go through DLPack only; those of strings hold bytes objects."""

    __slots__ = ("_array", "_datatype", "_name")

    def __init__(self, name: str, array: np.ndarray) -> None:
        if not isinstance(array, np.ndarray) or not isinstance(name, str):  # type: ignore[redundant-expr]
            raise TypeError(
                "Tensor(): incompatible constructor arguments. The following argument types are supported:"
                f" (str, numpy.ndarray). Invoked with: {name!r}, {array!r}"
            )
        if not name:
            raise TritonModelException("Tensor name cannot be an empty string.")
        self._name = name
        self._array = array if array.flags.c_contiguous else np.ascontiguousarray(array)
        datatype = _WIRE_NAMES.get(array.dtype)
        if datatype is None:
            if array.dtype.type is not np.bytes_:
                raise TritonModelException("NumPy dtype is not supported.")
            datatype = "BYTES"
        self._datatype = datatype

    @classmethod
    def _from_wire(cls, name: str, datatype: str, shape: Any, data: Any, start: int = 0, end: Any = None) -> Tensor:
        """Return a tensor on a part of what the node sent; the array is a view on it. Raises UnreadableStrings."""
        tensor = cls.__new__(cls)
        tensor._name = name
        tensor._datatype = datatype
        if datatype == "BYTES":
            tensor._array = _strings(name, shape, data[start:end])
        else:
            tensor._array = np.ndarray(shape, _DTYPES[datatype], data, start)
        return tensor

    def name(self) -> str:
        """Return the name."""
        return self._name

    def as_numpy(self) -> np.ndarray:
        """Return the array."""
        if self._datatype == "BF16":
            raise TritonModelException(
                "Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and from_dlpack() instead."
            )
        return self._array

    def triton_dtype(self) -> int:
        """Return Triton's number of the datatype."""
        return _NUMBERS[self._datatype]

    def shape(self) -> list[int]:
        """Return the shape."""
        return list(self._array.shape)

    def is_cpu(self) -> bool:
        """Return whether the memory is that of the CPU."""
        return True

    def to_dlpack(self) -> Any:
        """Return a DLPack capsule on the memory of the tensor."""
        if self._datatype == "BYTES":
            raise TritonModelException("DLPack does not have support for string tensors.")
        array = self._array
        return flotilla_dlpack.capsule(
            array if array.flags.c_contiguous else np.ascontiguousarray(array), self._datatype
        )

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.to_dlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (flotilla_dlpack.CPU, 0)

    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> Tensor:
        """Return a tensor on the memory of another library's. What lies on a GPU is copied from there."""
        if not name:
            raise TritonModelException("Tensor name cannot be an empty string.")
        if not flotilla_dlpack.is_capsule(tensor):
            tensor = _capsule_of(tensor)
        made = Tensor.__new__(Tensor)
        made._name = name
        try:
            made._array, made._datatype = flotilla_dlpack.from_capsule(tensor)
        except flotilla_dlpack.Unsupported as error:
            raise TritonModelException(str(error)) from None
        return made


def _strings(name: str, shape: Any, data: Any) -> np.ndarray:
    try:
        return deserialize_bytes_tensor(data).reshape(shape)
    except (TritonModelException, struct.error, ValueError):
        place = f"for inference input '{name}'"
    expected = 1
    for dimension in shape:
        expected *= dimension
    offset, end, count = 0, len(data), 0
    while offset < end:
        if offset + 4 > end:
            raise UnreadableStrings(f"incomplete string length indicator {place}", "")
        count += 1
        offset += 4 + _LENGTH.unpack_from(data, offset)[0]
    if count == expected:
        raise UnreadableStrings(f"incomplete string data {place}", "")
    raise UnreadableStrings(f"expected {expected} string elements {place}", f", got {count}")


def _capsule_of(tensor: Any) -> Any:
    if not hasattr(tensor, "__dlpack__") or not hasattr(tensor, "__dlpack_device__"):
        raise TritonModelException(
            "Provided tensor is not supported. Tensor must be a DLPack capsule"
            "         or have `__dlpack__` and `__dlpack_device__` attributes"
        )
    kind = int(tensor.__dlpack_device__()[0])
    if kind == flotilla_dlpack.CUDA:
        if not hasattr(tensor, "cpu"):
            raise TritonModelException("A tensor on a GPU that has no cpu() method cannot be passed on.")
        tensor = tensor.cpu()
    elif kind not in (flotilla_dlpack.CPU, flotilla_dlpack.CUDA_HOST):
        raise TritonModelException(f"DLDevice type {kind} is not support by Python backend.")
    return tensor.__dlpack__(stream=None)


def serialize_byte_tensor(input_tensor: np.ndarray) -> bytes | tuple[()] | None:
    """Return strings as bytes: each with its length in front, 4 bytes, little-endian; None for other arrays."""
    if input_tensor.size == 0:
        return ()
    if input_tensor.dtype != np.object_ and input_tensor.dtype.type is not np.bytes_:
        return None
    return wire_bytes(input_tensor)


def wire_bytes(array: np.ndarray) -> bytes:
    """Return the strings of an array as they travel. What is neither bytes nor text is converted to text."""
    pack = _LENGTH.pack
    parts: list[bytes] = []
    for element in array.ravel().tolist():  # C order; numpy's bytes_ become bytes, without zeros at their ends
        raw = element if type(element) is bytes else str(element).encode("utf-8")
        parts.append(pack(len(raw)))
        parts.append(raw)
    return b"".join(parts)


def deserialize_bytes_tensor(encoded_tensor: Any) -> np.ndarray:
    """Return the strings in bytes made by ``serialize_byte_tensor``, in one dimension."""
    data = bytes(encoded_tensor)
    elements: list[bytes] = []
    offset, end = 0, len(data)
    while offset < end:
        (length,) = _LENGTH.unpack_from(data, offset)
        offset += 4
        if offset + length > end:
            raise TritonModelException("Invalid bytes tensor data: string extends beyond buffer")
        elements.append(data[offset : offset + length])
        offset += length
    array = np.empty(len(elements), dtype=np.object_)
    array[:] = elements
    return array


def triton_to_numpy_type(data_type: int) -> Any:
    """Return numpy's type for Triton's number of a datatype, None when there is none."""
    found = _BY_NUMBER.get(data_type)
    return None if found is None else found[0]


def numpy_to_triton_type(data_type: Any) -> int | None:
    """Return Triton's number for a numpy type, None when there is none."""
    for number, (kind, _) in _BY_NUMBER.items():
        if data_type == kind:
            return number
    return 13 if data_type == np.bytes_ else None


def triton_string_to_numpy(triton_type_string: str) -> Any:
    """Return numpy's type for a datatype as configs name it, such as TYPE_FP32. Raises KeyError."""
    return TRITON_STRING_TO_NUMPY[triton_type_string]
