"""Between arrays and PyTorch's tensors: views both ways wherever there is one."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.rows import Array

TORCH_TYPES = {
    "BOOL": torch.bool,
    "UINT8": torch.uint8,
    "UINT16": torch.uint16,
    "UINT32": torch.uint32,
    "UINT64": torch.uint64,
    "INT8": torch.int8,
    "INT16": torch.int16,
    "INT32": torch.int32,
    "INT64": torch.int64,
    "FP16": torch.float16,
    "FP32": torch.float32,
    "FP64": torch.float64,
    "BF16": torch.bfloat16,
}
WIRE_NAMES = {kind: name for name, kind in TORCH_TYPES.items()}

Value: TypeAlias = torch.Tensor | list[str]


def as_value(array: Array, *, is_bfloat16: bool = False) -> Value:
    """Return an array as a tensor that shares its memory; of strings, as a list. BF16 comes as its raw bits.

    The memory may be read-only: a model that writes to its inputs must have them in memory of its own, which they are
    in a worker process.
    """
    if array.dtype == np.object_:
        texts: list[str] = array.reshape(-1).tolist()
        return texts
    tensor = torch.from_dlpack(array)  # the others warn of memory that is read-only
    value: Value = tensor.view(torch.bfloat16) if is_bfloat16 else tensor
    return value


def as_array(name: str, value: Any, datatype: str) -> Array:
    """Return an output as an array on its memory. A value without dimensions gets one.

    Raises:
        InferenceError: INVALID_ARG, as Triton has it, when it is of another type than the config says.
    """
    if isinstance(value, torch.Tensor):
        provided = WIRE_NAMES.get(value.dtype, str(value.dtype).removeprefix("torch.").upper())
        if provided != datatype:
            raise _other_type(name, datatype, provided)
        return _tensor_array(value)
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        if datatype != "BYTES":
            raise _other_type(name, datatype, "STRING")
        texts = np.empty(len(value), np.object_)
        texts[:] = value
        return texts
    raise InferenceError(ErrorCode.INVALID_ARG, f"output '{name}' must be of type Tensor or List[str].")


def _tensor_array(value: torch.Tensor) -> Array:
    value = value.detach()
    if value.layout is not torch.strided:
        value = value.to_dense()
    if value.ndim == 0:
        value = value.reshape(1)
    value = value.cpu().contiguous().resolve_neg()
    array: Array = value.view(torch.uint16).numpy() if value.dtype is torch.bfloat16 else value.numpy()
    return array


def _other_type(name: str, expected: str, provided: str) -> InferenceError:
    expected = expected.replace("BYTES", "STRING")
    return InferenceError(
        ErrorCode.INVALID_ARG,
        f"configuration expects datatype TYPE_{expected} for output '{name}', model provides TYPE_{provided}",
    )
