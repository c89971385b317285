"""DLPack with ctypes: tensors to and from other libraries without copying, bfloat16 included, which numpy lacks."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np

CPU, CUDA, CUDA_HOST = 1, 2, 3
_BFLOAT = 4
_NAME = b"dltensor"

# Source: dlpack.h, DLDataTypeCode and the width in bits.
_DATATYPES = {
    (2, 16): "FP16", (2, 32): "FP32", (2, 64): "FP64", (_BFLOAT, 16): "BF16", (6, 8): "BOOL",
    (0, 8): "INT8", (0, 16): "INT16", (0, 32): "INT32", (0, 64): "INT64",
    (1, 8): "UINT8", (1, 16): "UINT16", (1, 32): "UINT32", (1, 64): "UINT64",
}  # fmt: skip
_NUMPY = {
    "FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BF16": np.uint16, "BOOL": np.bool_,
    "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
}  # fmt: skip


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))

_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_set_name = ctypes.pythonapi.PyCapsule_SetName
_set_name.restype, _set_name.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_USED = b"used_dltensor"  # lives as long as the module: a capsule keeps the pointer only


class Unsupported(Exception):
    """The tensor cannot be taken. The text is for the user."""


def is_capsule(value: Any) -> bool:
    """Return whether a value is a DLPack capsule that nobody has taken yet."""
    return type(value).__name__ == "PyCapsule" and bool(_is_valid(value, _NAME))


def capsule(array: np.ndarray, datatype: str) -> Any:
    """Return a capsule on the memory of an array; with BF16 the array holds the bits as uint16."""
    if not array.flags.writeable:
        array = array.copy()  # numpy exports no memory that may not be written
    made = array.__dlpack__()
    if datatype == "BF16":
        ctypes.cast(_get_pointer(made, _NAME), ctypes.POINTER(_Managed)).contents.tensor.code = _BFLOAT
    return made


def from_capsule(value: Any) -> tuple[np.ndarray, str]:
    """Take a capsule; return a view on its memory, which lives as long as the view, and the datatype.

    Raises:
        Unsupported: the tensor is on another device, not contiguous, or of a datatype that does not exist here.
    """
    managed = ctypes.cast(_get_pointer(value, _NAME), ctypes.POINTER(_Managed))
    tensor = managed.contents.tensor
    if tensor.device_type not in (CPU, CUDA_HOST):
        raise Unsupported(f"DLDevice type {tensor.device_type} is not support by Python backend.")
    datatype = _DATATYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if datatype is None:
        raise Unsupported("DLPack tensor has a datatype that is not supported.")
    shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
    if tensor.strides and 0 not in shape:
        _check_contiguous(shape, tensor.strides[: tensor.ndim])
    kind = np.dtype(_NUMPY[datatype])
    count = 1
    for dimension in shape:
        count *= dimension
    if not count:
        array = np.empty(shape, kind)
        base: Any = array
    else:
        base = (ctypes.c_uint8 * (count * kind.itemsize)).from_address(tensor.data + tensor.byte_offset)
        array = np.frombuffer(base, kind).reshape(shape)
    _set_name(value, _USED)
    weakref.finalize(base, _delete, managed)
    return array, datatype


def _delete(managed: Any) -> None:
    if managed.contents.deleter:
        managed.contents.deleter(managed)


def _check_contiguous(shape: tuple[int, ...], strides: list[int]) -> None:
    expected = 1
    for dimension, stride in zip(reversed(shape), reversed(strides)):  # noqa: B905 (Python 3.8)
        if dimension != 1 and stride != expected:
            raise Unsupported(
                "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in C-Order are"
                " supported."
            )
        expected *= dimension
