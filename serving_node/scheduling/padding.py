"""Inputs of different lengths brought to one length, so that their requests share a batch; outputs cut back.

The inputs of a batch's requests are replaced just before it runs: each request belongs to its scheduler then. Models
see only padded inputs, and a mask or the lengths where the config asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from serving_node.contract.model_config.padding import MadeInput, PaddingRule
from serving_node.core.backend import BackendInstance, InstanceEvents, LoopInstance
from serving_node.core.execution import Execution
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.core.tensor import NUMPY_DTYPES, Tensor
from serving_node.scheduling.io_rules import IoRules

Lengths = dict[str, int]
"""Name of a padded input -> its length in one request."""


class Padder:
    """Pads the inputs of batches and cuts outputs, by the rules of one model. Pure.

    Shapes: inputs and outputs have rows in front; axes of rules do not count them.
    """

    def __init__(self, rules: Sequence[PaddingRule]) -> None:
        self._rules = {rule.input: rule for rule in rules}
        self._cuts = {output: (rule.input, axis + 1) for rule in rules for output, axis in rule.outputs}

    def pad(self, requests: Sequence[InferenceRequest]) -> list[Lengths]:
        """Replace the inputs of the requests of one batch; return the lengths that they had."""
        before = [
            {tensor.name: tensor.shape[rule.axis + 1] for tensor in request.inputs if (rule := self._rule(tensor))}
            for request in requests
        ]
        common: Lengths = {}
        for lengths in before:
            for name, length in lengths.items():
                common[name] = max(length, common.get(name, 0))
        for name, longest in common.items():
            multiple = self._rules[name].multiple
            common[name] = -(-longest // multiple) * multiple
        for request in requests:
            request.inputs = self._inputs(request.inputs, common)
        return before

    def cut(self, tensors: list[Tensor], lengths: Lengths) -> list[Tensor]:
        """Return outputs with the length that the request's input had."""
        return [self._cut(tensor, lengths) for tensor in tensors]

    def _rule(self, tensor: Tensor) -> PaddingRule | None:
        return self._rules.get(tensor.name)

    def _inputs(self, inputs: list[Tensor], common: Lengths) -> list[Tensor]:
        padded: list[Tensor] = []
        made: list[Tensor] = []
        for tensor in inputs:
            rule = self._rule(tensor)
            if rule is None:
                padded.append(tensor)
                continue
            length, rows, full = tensor.shape[rule.axis + 1], tensor.shape[0], common[tensor.name]
            padded.append(tensor if length == full else _padded(tensor, rule, full))
            if rule.mask is not None:
                row = (np.arange(full) < length).astype(NUMPY_DTYPES[rule.mask.datatype])
                made.append(_made(rule.mask, np.broadcast_to(row, (rows, full))))
            if rule.lengths is not None:
                made.append(_made(rule.lengths, np.full((rows, 1), length, NUMPY_DTYPES[rule.lengths.datatype])))
        return padded + made

    def _cut(self, tensor: Tensor, lengths: Lengths) -> Tensor:
        source, axis = self._cuts.get(tensor.name, ("", 0))
        length = lengths.get(source)
        if length is None or axis >= len(tensor.shape) or tensor.shape[axis] <= length:
            return tensor
        array = tensor.as_numpy()
        kept = array[(slice(None),) * axis + (slice(length),)]
        return Tensor.from_numpy(tensor.name, kept, tensor.datatype)


class PaddingInstance:
    """An instance whose batches are padded first."""

    def __init__(self, instance: BackendInstance, padder: Padder) -> None:
        self._instance = instance
        self._padder = padder

    def execute(self, execution: Execution) -> None:
        """Pad the batch, run it, cut its results."""
        _execute(self._instance, self._padder, execution)

    def close(self) -> None:
        """Close the instance."""
        self._instance.close()


@dataclass(slots=True)
class _Begun:
    """A request that was begun, and the lengths of its inputs. It is kept so that its ``id`` stays its own."""

    request: InferenceRequest
    lengths: Lengths


class PaddingLoopInstance:
    """The same for an instance that the event loop drives."""

    def __init__(self, instance: LoopInstance, padder: Padder) -> None:
        self._instance = instance
        self._padder = padder
        self._begun: dict[int, _Begun] = {}
        self.depth = instance.depth
        self.usable = instance.usable
        self.busy = instance.busy
        self.gone = instance.gone
        self.ready = instance.ready
        self.detach = instance.detach
        self.close = instance.close

    def execute(self, execution: Execution) -> None:
        """Pad the batch, run it, cut its results."""
        _execute(self._instance, self._padder, execution)

    def begin(self, executions: Sequence[Execution]) -> None:
        """Pad the batches and start them. On the loop."""
        for execution in executions:
            for request, lengths in zip(execution.requests, self._padder.pad(execution.requests), strict=True):
                self._begun[id(request)] = _Begun(request, lengths)
        self._instance.begin(executions)

    def attach(self, events: InstanceEvents) -> None:
        """Attach the instance; results and responses pass through here."""

        def done(execution: Execution) -> None:
            for place, (request, result) in enumerate(zip(execution.requests, execution.results, strict=True)):
                if result is None:
                    continue  # its responses come apart
                begun = self._begun.pop(id(request), None)
                if begun is not None and isinstance(result, list):
                    execution.results[place] = self._padder.cut(result, begun.lengths)
            events.done(execution)

        def responded(request: InferenceRequest, response: InferenceResponse) -> None:
            begun = self._begun.get(id(request))
            if begun is not None:
                response.outputs = self._padder.cut(response.outputs, begun.lengths)
                if response.final:
                    del self._begun[id(request)]
            events.responded(request, response)

        self._instance.attach(InstanceEvents(done, responded, events.changed))


def padding(instance: BackendInstance | LoopInstance, rules: IoRules) -> BackendInstance | LoopInstance:
    """Return the instance itself when no input is padded."""
    if not rules.paddings:
        return instance
    padder = Padder(rules.paddings)
    if isinstance(instance, LoopInstance):
        return PaddingLoopInstance(instance, padder)
    return PaddingInstance(instance, padder)


def _execute(instance: BackendInstance | LoopInstance, padder: Padder, execution: Execution) -> None:
    lengths = padder.pad(execution.requests)
    instance.execute(execution)
    execution.results = [
        padder.cut(result, lengths[place]) if isinstance(result, list) else result
        for place, result in enumerate(execution.results)
    ]


def _padded(tensor: Tensor, rule: PaddingRule, length: int) -> Tensor:
    array = tensor.as_numpy()
    axis = rule.axis + 1
    shape = (*tensor.shape[:axis], length, *tensor.shape[axis + 1 :])
    whole = np.full(shape, _value(rule.value), array.dtype)
    whole[(slice(None),) * axis + (slice(tensor.shape[axis]),)] = array
    return Tensor.from_numpy(tensor.name, whole, tensor.datatype)


def _value(value: float) -> Any:
    """Return the value as it fits any type: integers must not pass through a float of fewer digits."""
    return int(value) if value.is_integer() else value


def _made(made: MadeInput, array: Any) -> Tensor:
    return Tensor.from_numpy(made.name, np.ascontiguousarray(array), made.datatype)
