"""Outputs whose shape the config changes between model and client (``reshape``)."""

from __future__ import annotations

from dataclasses import replace

from serving_node.core.backend import BackendInstance, Execution
from serving_node.core.errors import InferenceError
from serving_node.core.tensor import Tensor
from serving_node.scheduling.io_rules import IoRules


class ReshapingInstance:
    """An instance whose outputs get the client's shape. Inputs were reshaped when the request was checked."""

    def __init__(self, instance: BackendInstance, rules: IoRules) -> None:
        self._instance = instance
        self._has_rows = rules.max_batch_size > 0
        self._rules = {rule.name: rule for rule in rules.outputs if rule.dims != rule.model_dims}

    def execute(self, execution: Execution) -> None:
        """Run the batch and reshape its results."""
        self._instance.execute(execution)
        execution.results = [
            result if isinstance(result, InferenceError) else [self._reshaped(tensor) for tensor in result]
            for result in execution.results
        ]

    def close(self) -> None:
        """Close the instance."""
        self._instance.close()

    def _reshaped(self, tensor: Tensor) -> Tensor:
        rule = self._rules.get(tensor.name)
        return tensor if rule is None else replace(tensor, shape=rule.to_client(tensor.shape, self._has_rows))


def reshaping(instance: BackendInstance, rules: IoRules) -> BackendInstance:
    """Return the instance itself when no output is reshaped."""
    if all(rule.dims == rule.model_dims for rule in rules.outputs):
        return instance
    return ReshapingInstance(instance, rules)
