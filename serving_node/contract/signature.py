"""What a model file itself says about its inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass

from serving_node.contract.messages import Message


@dataclass(frozen=True, slots=True)
class TensorSignature(Message):
    """One tensor as the model file has it.

    ``datatype`` is a wire name (``FP32``, ``BYTES``).
    Shapes: ``shape`` has every dimension of the file, the batch dimension too; -1 is a dynamic one, () is a scalar.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelSignature(Message):
    """Inputs and outputs of a model file, in its order."""

    inputs: tuple[TensorSignature, ...]
    outputs: tuple[TensorSignature, ...]

    @property
    def is_batchable(self) -> bool:
        """Whether the first dimension of every tensor is dynamic, so that it can be a batch dimension."""
        tensors = (*self.inputs, *self.outputs)
        return bool(tensors) and all(tensor.shape[:1] == (-1,) for tensor in tensors)
