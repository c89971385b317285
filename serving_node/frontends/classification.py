"""The classification extension: the k largest values of an output as text. Source: Triton classification.cc."""

from __future__ import annotations

from math import prod

import numpy as np

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.tensor import NUMPY_DTYPES, Tensor, encode_bytes_elements

_MAX_ELEMENTS = 1_000_000
_UNSUPPORTED = frozenset({"BYTES", "FP16", "BF16", "BOOL"})


def classify(tensor: Tensor, count: int, *, batched: bool, labels: list[str] | None = None) -> Tensor:
    """Return a BYTES tensor with ``"value:index[:label]"`` of the ``count`` largest elements, descending.

    Shapes: (rows, *dims) -> (rows, k) when ``batched``, otherwise dims -> (k,), with k = min(count, elements of a row).

    Raises:
        InferenceError: the type has no order, or the output is too large.
    """
    if tensor.datatype in _UNSUPPORTED:
        sentence = f"class result not available for output due to unsupported type '{tensor.datatype}'"
        raise InferenceError(ErrorCode.UNSUPPORTED, sentence)
    if prod(tensor.shape) > _MAX_ELEMENTS:
        raise InferenceError(ErrorCode.INVALID_ARG, "classification output tensor too large")
    rows = tensor.shape[0] if batched and tensor.shape else 1
    values = np.frombuffer(tensor.data, NUMPY_DTYPES[tensor.datatype]).reshape(rows, -1)
    k = min(count, values.shape[1])
    # equal values: the lower index first
    order = np.argsort(-values.astype(np.float64), axis=1, kind="stable")[:, :k]
    is_float = values.dtype.kind == "f"
    texts = [
        f"{values[row, index]:f}:{index}" if is_float else f"{values[row, index]}:{index}"
        for row in range(rows)
        for index in order[row]
    ]
    if labels is not None:
        indices = [int(index) for index in order.flat]
        texts = [
            f"{text}:{labels[index]}" if index < len(labels) else text
            for text, index in zip(texts, indices, strict=True)
        ]
    shape = (rows, k) if batched else (k,)
    return Tensor(tensor.name, "BYTES", shape, encode_bytes_elements(np.array(texts, dtype=np.object_)))
