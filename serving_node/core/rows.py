"""Joining the tensors of a batch into one array, and splitting results again. For backends that compute on arrays.

One request's tensor stays a view; several are joined with one copy; results are views on the joined result.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.tensor import NUMPY_DTYPES, Tensor, array_bytes, decode_bytes_elements, encode_bytes_elements

Array = npt.NDArray[np.generic]


def join_rows(tensors: Sequence[Tensor]) -> Array:
    """Return the tensors as one array, one after the other along the first dimension.

    Shapes: all tensors agree but for the first dimension; a single tensor may have any shape.

    Raises:
        InferenceError: INVALID_ARG when the bytes of a BYTES tensor are malformed.
    """
    first = tensors[0]
    if first.datatype == "BYTES":
        parts = [decode_bytes_elements(tensor.data, tensor.name, prod(tensor.shape)) for tensor in tensors]
        return np.concatenate(parts).reshape(_joined_shape(tensors))
    dtype = NUMPY_DTYPES[first.datatype]
    if len(tensors) == 1:
        array = np.frombuffer(first.data, dtype=dtype).reshape(first.shape)
        if array.flags.aligned:
            return array
        # Views into a message may begin at any byte; engines may assume alignment. Joining keeps the interpreter while
        # it copies less than 1 MiB: numpy's copy would let it go, and was seen to wait for it longer than it copies.
    return np.frombuffer(b"".join([tensor.data for tensor in tensors]), dtype=dtype).reshape(_joined_shape(tensors))


def split_rows(name: str, datatype: str, array: Array, rows: Sequence[int]) -> list[Tensor]:
    """Return one tensor for each count in ``rows``: views on ``array`` for fixed-size types.

    Raises:
        InferenceError: INTERNAL when the array does not have as many rows as are asked for.
    """
    if array.ndim == 0 or array.shape[0] != sum(rows):
        raise InferenceError(
            ErrorCode.INTERNAL,
            f"output '{name}' has shape {list(array.shape)}, expected {sum(rows)} rows: the model does not keep"
            " the batch dimension",
        )
    tail = array.shape[1:]
    tensors: list[Tensor] = []
    start = 0
    if datatype == "BYTES":
        for count in rows:
            part = array[start : start + count]
            tensors.append(Tensor(name, datatype, part.shape, encode_bytes_elements(part)))
            start += count
        return tensors
    contiguous = np.ascontiguousarray(array)
    data: memoryview | bytes = array_bytes(contiguous) if contiguous.size else b""
    row_bytes = prod(tail) * array.itemsize
    for count in rows:
        end = start + count * row_bytes
        tensors.append(Tensor(name, datatype, (count, *tail), data[start:end]))
        start = end
    return tensors


def _joined_shape(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    if len(tensors) == 1:
        return tensors[0].shape
    return (sum([tensor.shape[0] for tensor in tensors]), *tensors[0].shape[1:])
