"""What requests must look like for models with inputs that are shapes (``is_shape_tensor``, TensorRT only). Pure.

Such an input holds dimensions that count for all rows of a batch, so it has no rows itself, and requests share a batch
only when theirs are equal. Source: Triton core, InferenceRequest::Normalize and its dynamic batcher.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from serving_node.core.request import InferenceRequest
from serving_node.core.tensor import Tensor
from serving_node.scheduling.io_rules import IoRules, TensorRule

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig


def io_rules(config: ModelConfig) -> IoRules:
    """Return the compiled inputs and outputs of a model."""
    if config.max_batch_size > 0 and any(tensor.is_shape_tensor for tensor in config.input):
        return ShapeTensorRules(config)
    return IoRules(config)


class ShapeTensorRules(IoRules):
    """The rules of a model with batches some of whose inputs are shapes."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self._shapes = frozenset(tensor.name for tensor in config.input if tensor.is_shape_tensor)
        # what was found good says nothing about the elements, which must be equal within a batch
        self._good = None
        self._has_one_key = False

    def _check_rows(self, request: InferenceRequest, inputs: Sequence[Tensor]) -> int:
        return super()._check_rows(request, [tensor for tensor in inputs if tensor.name not in self._shapes])

    def _check_tensor(self, request: InferenceRequest, tensor: Tensor, rule: TensorRule) -> None:
        if tensor.name in self._shapes:
            tensor = tensor.reshaped((1, *tensor.shape))
        super()._check_tensor(request, tensor, rule)

    def _shape_sentence(self, tensor: Tensor, rule: TensorRule) -> str:
        if tensor.name in self._shapes:
            tensor = tensor.reshaped(tensor.shape[1:])
        return super()._shape_sentence(tensor, rule)

    def _key(self, inputs: Sequence[Tensor]) -> Hashable:
        elements = tuple(bytes(tensor.data) for tensor in inputs if tensor.name in self._shapes)
        return super()._key([tensor for tensor in inputs if tensor.name not in self._shapes]), elements
