"""What a model file itself says about its inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass

from serving_node.contract.messages import Message


@dataclass(frozen=True, slots=True)
class TensorSignature(Message):
    """One tensor as the model file has it.

    ``datatype`` is a wire name (``FP32``, ``BYTES``).
    Shapes: ``shape`` has every dimension of the file, the batch dimension too; -1 is a dynamic one, () is a scalar.
    ``is_shape_tensor``: its elements are dimensions of other tensors (TensorRT).
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    is_shape_tensor: bool = False


@dataclass(frozen=True, slots=True)
class ModelSignature(Message):
    """Inputs and outputs of a model file, in its order.

    ``max_batch_size``: the largest first dimension that the file allows (TensorRT engines are built for one, 0: for
    none); None: the file sets no limit. ``optional_inputs`` have a value in the file, which a request may replace.
    ``has_rows`` False: the file tells that its dynamic first dimensions are not one and the same (exported programs).
    ``is_declared``: no file tells it, but a config or code does: what clients send and get, without the controls and
    states that the server adds.
    """

    inputs: tuple[TensorSignature, ...]
    outputs: tuple[TensorSignature, ...]
    max_batch_size: int | None = None
    optional_inputs: tuple[TensorSignature, ...] = ()
    has_rows: bool = True
    is_declared: bool = False

    @property
    def is_batchable(self) -> bool:
        """Whether the first dimension of every tensor is dynamic, so that it can be a batch dimension."""
        tensors = (*self.inputs, *self.outputs)
        return self.has_rows and bool(tensors) and all(tensor.shape[:1] == (-1,) for tensor in tensors)
