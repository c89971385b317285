"""BF16 tensors through ONNX Runtime. numpy has no such type, so they travel as their 16 raw bits."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from serving_node.backends.onnxruntime.settings import prepare_environment
from serving_node.core.rows import Array

prepare_environment()
import onnxruntime as ort  # noqa: E402

# onnx.TensorProto.BFLOAT16
_BFLOAT16 = 16


def run(
    session: Any, names: Sequence[str], feed: Mapping[str, Array], raw_inputs: frozenset[str], options: Any
) -> list[Array]:
    """Return the outputs of a run on the CPU. ``raw_inputs`` names the BF16 inputs, given as uint16 arrays."""
    values = {
        name: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(array), _BFLOAT16)
        if name in raw_inputs
        else ort.OrtValue.ortvalue_from_numpy(array)
        for name, array in feed.items()
    }
    return [_array(value) for value in session.run_with_ort_values(list(names), values, options)]


def _array(value: Any) -> Array:
    if value.element_type() != _BFLOAT16:
        array: Array = value.numpy()
        return array
    shape = tuple(value.shape())
    size = prod(shape)
    if not size:
        return np.empty(shape, np.uint16)
    memory = (ctypes.c_uint16 * size).from_address(value.data_ptr())
    return np.array(memory, dtype=np.uint16).reshape(shape)  # a copy: the memory is freed with ``value``
