"""The classification extension: the k largest values of an output as text. Source: Triton classification.cc."""

from __future__ import annotations

from math import prod

import numpy as np

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.metadata import OutputClasses
from serving_node.core.tensor import NUMPY_DTYPES, Tensor, encode_bytes_elements

_MAX_ELEMENTS = 1_000_000
_UNSUPPORTED = frozenset({"BYTES", "FP16", "BF16", "BOOL"})


def classify(tensor: Tensor, count: int, classes: OutputClasses) -> Tensor:
    """Return a BYTES tensor with ``"value:index[:label]"`` of the ``count`` largest elements, descending.

    Of equal values the one with the lower index comes first. Indices count the elements of a row in C order. Shapes:
    (rows, *dims) -> (rows, k) when the model has rows, otherwise dims -> (k,), with k = min(count, elements of a row).

    Raises:
        InferenceError: the type has no order, or a row of the output is too large.
    """
    if tensor.datatype in _UNSUPPORTED:
        sentence = f"class result not available for output due to unsupported type '{tensor.datatype}'"
        raise InferenceError(ErrorCode.INVALID_ARG, sentence)
    rows, dims = (tensor.shape[0], tensor.shape[1:]) if classes.has_rows and tensor.shape else (1, tensor.shape)
    size = prod(dims)
    if size > _MAX_ELEMENTS:
        raise InferenceError(ErrorCode.INVALID_ARG, "classification output tensor too large")
    values = np.frombuffer(tensor.data, NUMPY_DTYPES[tensor.datatype]).reshape(rows, size)
    k = min(count, size)
    order = _descending(values)[:, :k]
    labels = classes.labels.get(tensor.name, ())
    form = "{:f}:{}" if values.dtype.kind == "f" else "{}:{}"
    texts: list[str] = []
    for row in range(rows):
        for index in order[row].tolist():
            text = form.format(values[row, index], index)
            label = labels[index] if index < len(labels) else ""
            texts.append(f"{text}:{label}" if label else text)
    shape = (rows, k) if classes.has_rows else (k,)
    return Tensor(tensor.name, "BYTES", shape, encode_bytes_elements(np.array(texts, dtype=np.object_)))


def _descending(values: np.ndarray) -> np.ndarray:
    """Return the indices of each row, largest value first, equal ones by index; not-a-number comes last."""
    if values.dtype.kind == "f":
        order: np.ndarray = np.argsort(-values, axis=1, kind="stable")
    else:
        # integers cannot be negated: sort them backwards, which turns equal ones around, and turn the whole around
        order = values.shape[1] - 1 - np.argsort(values[:, ::-1], axis=1, kind="stable")[:, ::-1]
    return order
