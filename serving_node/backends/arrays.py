"""Running batches on engines that take arrays and give arrays: joining, asking for outputs, splitting."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.execution import Execution
from serving_node.core.ragged import batch_input_arrays, join_flat, ragged_rules, scatter
from serving_node.core.request import InferenceRequest
from serving_node.core.rows import Array, join_rows, split_rows
from serving_node.core.tensor import Tensor

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig


class ArrayInstance(ABC):
    """One executor; subclasses call the engine.

    ``datatypes``: those of the outputs, by name.
    """

    def __init__(self, config: ModelConfig, datatypes: Mapping[str, str]) -> None:
        self._has_rows = config.max_batch_size > 0
        self._datatypes = datatypes
        self._outputs = [output.name for output in config.output]
        states = [state.output_name for state in config.sequence_batching.state]
        self._outputs += [name for name in states if name not in self._outputs]
        self._ragged = ragged_rules(config)
        self._feed = self._joined if self._ragged is None else self._flat
        # name of an output -> the input by whose shapes it is cut
        self._scattered: Mapping[str, str] = {} if self._ragged is None else self._ragged.scattered

    def execute(self, execution: Execution) -> None:
        """Run the batch. Requests with malformed strings fail alone; an error of the engine fails all."""
        requests = execution.requests
        try:
            feed = self._feed(requests)
        except InferenceError:
            self._execute_without_malformed(execution)
            return
        names = self._wanted(requests)
        execution.inputs_ready_ns = time.monotonic_ns()
        arrays = self._run(names, feed)
        execution.computed_ns = time.monotonic_ns()
        execution.results.extend(self._results(requests, names, arrays))

    @abstractmethod
    def close(self) -> None:
        """Free what the instance holds. Idempotent."""

    @abstractmethod
    def _run(self, names: list[str], feed: dict[str, Array]) -> Sequence[Array]:
        """Return the outputs ``names``, each in memory that nobody else writes to.

        Raises:
            InferenceError: INTERNAL, the engine failed.
        """

    def _joined(self, requests: Sequence[InferenceRequest]) -> dict[str, Array]:
        feed: dict[str, Array] = {}
        # requests of a batch have the same inputs in the same order (batch_key, IoRules.check)
        for position, first in enumerate(requests[0].inputs):
            array = join_rows([request.inputs[position] for request in requests])
            feed[first.name] = _texts(array, first.name) if first.datatype == "BYTES" else array
        return feed

    def _flat(self, requests: Sequence[InferenceRequest]) -> dict[str, Array]:
        """Join requests whose shapes differ, and add what the model must know about the batch."""
        rules = self._ragged
        assert rules is not None
        feed: dict[str, Array] = {}
        for position, first in enumerate(requests[0].inputs):
            join = join_flat if first.name in rules.inputs else join_rows
            array = join([request.inputs[position] for request in requests])
            feed[first.name] = _texts(array, first.name) if first.datatype == "BYTES" else array
        return feed | batch_input_arrays(rules.batch_inputs, requests)

    def _wanted(self, requests: Sequence[InferenceRequest]) -> list[str]:
        """Return the outputs that at least one request asks for, in the config's order."""
        wanted: set[str] = set()
        for request in requests:
            if not request.outputs:
                return self._outputs
            wanted.update([output.name for output in request.outputs])
        return [name for name in self._outputs if name in wanted]

    def _results(
        self, requests: Sequence[InferenceRequest], names: list[str], arrays: Sequence[Array]
    ) -> list[list[Tensor]]:
        columns: list[list[Tensor]] = []
        rows = [request.inputs[0].shape[0] if request.inputs else 1 for request in requests] if self._has_rows else []
        for name, array in zip(names, arrays, strict=True):
            if name in self._scattered:
                columns.append(scatter(name, self._datatypes[name], array, self._scattered[name], requests))
            elif self._has_rows:
                columns.append(split_rows(name, self._datatypes[name], array, rows))
            else:
                columns.append([Tensor.from_numpy(name, array, self._datatypes[name])])
        results = [list(tensors) for tensors in zip(*columns, strict=True)]
        if names is not self._outputs:
            for position, request in enumerate(requests):
                if request.outputs:
                    wanted = [output.name for output in request.outputs]
                    results[position] = [tensor for tensor in results[position] if tensor.name in wanted]
        return results

    def _execute_without_malformed(self, execution: Execution) -> None:
        results: list[list[Tensor] | InferenceError | None] = []
        good: list[InferenceRequest] = []
        for request in execution.requests:
            try:
                self._feed([request])
                good.append(request)
                results.append([])
            except InferenceError as error:
                results.append(error)
        if good:
            rest = Execution(good, sum(request.batch_size for request in good))
            self.execute(rest)
            execution.inputs_ready_ns, execution.computed_ns = rest.inputs_ready_ns, rest.computed_ns
            answers = iter(rest.results)
            results = [result if isinstance(result, InferenceError) else next(answers) for result in results]
        execution.results.extend(results)


def _texts(array: Array, name: str) -> Array:
    """Return the elements as str: engines keep strings as UTF-8, and their Python bindings take nothing else."""
    texts = np.empty(array.size, dtype=np.object_)
    try:
        texts[:] = [str(element, "utf-8") for element in array.reshape(-1).tolist()]
    except UnicodeDecodeError:
        raise InferenceError(ErrorCode.INVALID_ARG, f"a string of input '{name}' is not valid UTF-8") from None
    return texts.reshape(array.shape)
