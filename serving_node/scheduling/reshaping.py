"""Outputs whose shape the config changes between model and client (``reshape``)."""

from __future__ import annotations

from serving_node.core.backend import BackendInstance, InstanceEvents, LoopInstance
from serving_node.core.execution import Execution
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.core.tensor import Tensor
from serving_node.scheduling.io_rules import IoRules


class _Reshaper:
    """Gives outputs the client's shape."""

    def __init__(self, rules: IoRules) -> None:
        self._has_rows = rules.max_batch_size > 0
        self._rules = {rule.name: rule for rule in rules.outputs if rule.dims != rule.model_dims}

    def tensors(self, tensors: list[Tensor]) -> list[Tensor]:
        return [self._reshaped(tensor) for tensor in tensors]

    def execution(self, execution: Execution) -> None:
        execution.results = [
            self.tensors(result) if isinstance(result, list) else result for result in execution.results
        ]

    def _reshaped(self, tensor: Tensor) -> Tensor:
        rule = self._rules.get(tensor.name)
        return tensor if rule is None else tensor.reshaped(rule.to_client(tensor.shape, self._has_rows))


class ReshapingInstance:
    """An instance whose outputs get the client's shape. Inputs were reshaped when the request was checked."""

    def __init__(self, instance: BackendInstance, rules: IoRules) -> None:
        self._instance = instance
        self._reshaper = _Reshaper(rules)

    def execute(self, execution: Execution) -> None:
        """Run the batch and reshape its results."""
        self._instance.execute(execution)
        self._reshaper.execution(execution)

    def close(self) -> None:
        """Close the instance."""
        self._instance.close()


class ReshapingLoopInstance:
    """The same for an instance that the event loop drives."""

    def __init__(self, instance: LoopInstance, rules: IoRules) -> None:
        self._instance = instance
        self._reshaper = _Reshaper(rules)
        self.begin = instance.begin
        self.depth = instance.depth
        self.usable = instance.usable
        self.busy = instance.busy
        self.gone = instance.gone
        self.ready = instance.ready
        self.detach = instance.detach
        self.close = instance.close

    def execute(self, execution: Execution) -> None:
        """Run the batch and reshape its results."""
        self._instance.execute(execution)
        self._reshaper.execution(execution)

    def attach(self, events: InstanceEvents) -> None:
        """Attach the instance; results and responses pass through here."""

        def done(execution: Execution) -> None:
            self._reshaper.execution(execution)
            events.done(execution)

        def responded(request: InferenceRequest, response: InferenceResponse) -> None:
            response.outputs = self._reshaper.tensors(response.outputs)
            events.responded(request, response)

        self._instance.attach(InstanceEvents(done, responded, events.changed))


def reshaping(instance: BackendInstance | LoopInstance, rules: IoRules) -> BackendInstance | LoopInstance:
    """Return the instance itself when no output is reshaped."""
    if all(rule.dims == rule.model_dims for rule in rules.outputs):
        return instance
    if isinstance(instance, LoopInstance):
        return ReshapingLoopInstance(instance, rules)
    return ReshapingInstance(instance, rules)
