"""Batches of requests whose shapes differ: how such inputs are joined, and what the model is told about them. Pure.

Source: ``batch_input`` and ``batch_output`` of Triton's ModelConfig and its ragged batching guide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from serving_node.contract.datatypes import wire_name
from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest
from serving_node.core.rows import Array
from serving_node.core.tensor import NUMPY_DTYPES, Tensor, decode_bytes_elements

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig


@dataclass(frozen=True, slots=True)
class BatchInput:
    """One kind of fact about a batch that the model gets as inputs, computed from the shapes of input ``source``."""

    kind: str
    targets: tuple[str, ...]
    datatype: str
    source: str


@dataclass(frozen=True, slots=True)
class RaggedRules:
    """What of a model's batches is ragged. ``scattered``: name of an output -> the input whose shapes it is cut by."""

    inputs: frozenset[str]
    batch_inputs: tuple[BatchInput, ...]
    scattered: dict[str, str]


def ragged_rules(config: ModelConfig) -> RaggedRules | None:
    """Return the rules of a config, None when its batches are tensors with rows and nothing else."""
    inputs = frozenset(tensor.name for tensor in config.input if tensor.allow_ragged_batch)
    batch_inputs = tuple(
        BatchInput(
            kind=one.Kind.Name(one.kind),
            targets=tuple(one.target_name),
            datatype=wire_name(one.data_type),
            source=one.source_input[0],
        )
        for one in config.batch_input
    )
    scattered = {target: one.source_input[0] for one in config.batch_output for target in one.target_name}
    if config.max_batch_size < 1 or not (inputs or batch_inputs or scattered):
        return None
    return RaggedRules(inputs, batch_inputs, scattered)


def join_flat(tensors: Sequence[Tensor]) -> Array:
    """Return all elements of all tensors, in order, as one dimension.

    Raises:
        InferenceError: INVALID_ARG when the bytes of a BYTES tensor are malformed.
    """
    first = tensors[0]
    if first.datatype == "BYTES":
        return np.concatenate([decode_bytes_elements(one.data, one.name, prod(one.shape)) for one in tensors])
    return np.frombuffer(b"".join([one.data for one in tensors]), NUMPY_DTYPES[first.datatype])


def batch_input_arrays(rules: Sequence[BatchInput], requests: Sequence[InferenceRequest]) -> dict[str, Array]:
    """Return the inputs that describe the batch. Requests without an (optional) source have no elements.

    Shapes: counts (requests,), with a zero in front (requests + 1,); BATCH_MAX_ELEMENT_COUNT_AS_SHAPE as many zeros as
    the largest request has elements; BATCH_ITEM_SHAPE (rows, dimensions), flattened (rows x dimensions,).
    """
    arrays: dict[str, Array] = {}
    for rule in rules:
        shapes = [_shape(request, rule.source) for request in requests]
        array = _values(rule.kind, shapes).astype(NUMPY_DTYPES[rule.datatype])
        arrays.update(dict.fromkeys(rule.targets, array))
    return arrays


def scatter(name: str, datatype: str, array: Array, source: str, requests: Sequence[InferenceRequest]) -> list[Tensor]:
    """Return one tensor for each request: the elements of an output, cut by the shapes of an input.

    Raises:
        InferenceError: INTERNAL when the output does not have as many elements as the input.
    """
    shapes = [_shape(request, source) for request in requests]
    wanted = sum(map(prod, shapes))
    if array.size != wanted:
        raise InferenceError(
            ErrorCode.INTERNAL,
            f"output '{name}' has {array.size} elements, expected {wanted}: as many as input '{source}' of the batch",
        )
    flat, start = array.reshape(-1), 0
    tensors: list[Tensor] = []
    for shape in shapes:
        end = start + prod(shape)
        tensors.append(Tensor.from_numpy(name, flat[start:end].reshape(shape), datatype))
        start = end
    return tensors


def _shape(request: InferenceRequest, name: str) -> tuple[int, ...]:
    for tensor in request.inputs:
        if tensor.name == name:
            return tensor.shape
    return (0,)


def _values(kind: str, shapes: Sequence[tuple[int, ...]]) -> Array:
    counts = np.array([prod(shape) for shape in shapes], np.int64)
    if kind == "BATCH_ELEMENT_COUNT":
        return counts
    if kind == "BATCH_ACCUMULATED_ELEMENT_COUNT":
        return np.cumsum(counts)
    if kind == "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO":
        return np.concatenate(([0], np.cumsum(counts)))
    if kind == "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE":
        return np.zeros(int(counts.max()), np.int64)
    rows = [shape[1:] for shape in shapes for _ in range(shape[0])]
    items = np.array(rows, np.int64).reshape(len(rows), -1 if rows else 0)
    return items.reshape(-1) if kind == "BATCH_ITEM_SHAPE_FLATTEN" else items
