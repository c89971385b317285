"""What an engine says about itself, as plain values. Pure: TensorRT fills these in, everything else reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from serving_node.contract.errors import ErrorCode
from serving_node.contract.signature import ModelSignature, TensorSignature
from serving_node.core.errors import InferenceError
from serving_node.core.tensor import NUMPY_DTYPES

Shape = tuple[int, ...]

# TensorRT's names of element types -> the protocol's. FP8, INT4, FP4 and E8M0 have none there.
WIRE_NAMES = {
    "FLOAT": "FP32",
    "HALF": "FP16",
    "BF16": "BF16",
    "INT8": "INT8",
    "INT32": "INT32",
    "INT64": "INT64",
    "BOOL": "BOOL",
    "UINT8": "UINT8",
}


@dataclass(frozen=True, slots=True)
class EngineTensor:
    """One input or output.

    ``type_name`` is TensorRT's (``FLOAT``). Shapes: -1 is a dimension that a profile bounds, or one that only the
    data tell. ``is_shape``: its elements are themselves dimensions. ``on_host``: it lies in the host's memory.
    ``layout`` is empty for rows of plain elements, else TensorRT's name of the vectorised layout.
    """

    name: str
    type_name: str
    shape: Shape
    is_input: bool
    is_shape: bool = False
    on_host: bool = False
    layout: str = ""

    @property
    def datatype(self) -> str:
        """The protocol's name of the element type."""
        return WIRE_NAMES[self.type_name]

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The elements as numpy holds them."""
        return NUMPY_DTYPES[self.datatype]

    def byte_size(self, shape: Sequence[int]) -> int:
        """Return the bytes of a tensor of this type."""
        return prod(shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a profile allows for one input: its shape, or the elements of a shape tensor. Ends are included."""

    least: Shape
    best: Shape
    most: Shape


@dataclass(frozen=True, slots=True)
class Profile:
    """One optimisation profile: bounds of the shapes of all inputs, and of the elements of those that are shapes."""

    index: int
    shapes: Mapping[str, Bounds]
    values: Mapping[str, Bounds]


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """An engine: its tensors in its own order, and its profiles."""

    tensors: tuple[EngineTensor, ...]
    profiles: tuple[Profile, ...]
    weight_bytes: int = 0

    @property
    def inputs(self) -> tuple[EngineTensor, ...]:
        """The inputs, in the engine's order."""
        return tuple(tensor for tensor in self.tensors if tensor.is_input)

    @property
    def outputs(self) -> tuple[EngineTensor, ...]:
        """The outputs, in the engine's order."""
        return tuple(tensor for tensor in self.tensors if not tensor.is_input)

    @property
    def has_shape_tensors(self) -> bool:
        """Whether an input or output holds dimensions."""
        return any(tensor.is_shape for tensor in self.tensors)


def check_served(facts: EngineFacts, model: str) -> None:
    """Refuse engines whose tensors no client could send or read.

    Raises:
        InferenceError: UNSUPPORTED with one sentence.
    """
    for tensor in facts.tensors:
        subject = f"{'input' if tensor.is_input else 'output'} '{tensor.name}' of model '{model}'"
        if tensor.type_name not in WIRE_NAMES:
            raise InferenceError(
                ErrorCode.UNSUPPORTED,
                f"{subject} is of type {tensor.type_name}, which the inference protocol cannot carry: build the engine"
                " with a cast at that place",
            )
        if tensor.layout:
            raise InferenceError(
                ErrorCode.UNSUPPORTED,
                f"{subject} has the layout {tensor.layout}, only linear layouts are served: build the engine without"
                " a format for that tensor",
            )


def signature(facts: EngineFacts, max_batch_size: int) -> ModelSignature:
    """Return the inputs and outputs as the engine has them. ``max_batch_size``: see ``profiles.largest_batch``."""
    return ModelSignature(
        tuple(_tensor_signature(tensor) for tensor in facts.inputs),
        tuple(_tensor_signature(tensor) for tensor in facts.outputs),
        max_batch_size=max_batch_size,
    )


def _tensor_signature(tensor: EngineTensor) -> TensorSignature:
    return TensorSignature(tensor.name, tensor.datatype, tensor.shape, is_shape_tensor=tensor.is_shape)
