"""What the requests of sequences get besides their inputs, and what is taken out of the answers. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from serving_node.core.errors import InferenceError
from serving_node.core.execution import Execution
from serving_node.core.request import InferenceRequest, InferenceResponse, RequestedOutput
from serving_node.core.tensor import Tensor
from serving_node.scheduling.batch import Batch
from serving_node.scheduling.sequence_controls import SequenceControls
from serving_node.scheduling.sequence_states import SequenceStates, zeros_like
from serving_node.scheduling.sequence_strategies import Row, SequenceBatch

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig
    from serving_node.scheduling.sequence_slots import Sequence


class RunningRows(Batch):
    """A batch as an instance gets it: a request for each row, also for those without one.

    ``asked`` is what the clients asked for, in the order of the rows; the requests ask for the states too.
    """

    __slots__ = ("asked", "sequences")

    def __init__(self, requests: list[InferenceRequest], sequences: SequenceBatch) -> None:
        super().__init__(requests, len(requests))
        self.sequences = sequences
        self.asked: list[list[RequestedOutput]] = []


@dataclass(slots=True)
class Ended:
    """A batch that has run: the execution without what is of the node's own making, and who is to run once more."""

    execution: Execution
    again: list[InferenceRequest]


class SequenceRows:
    """The controls and states of one model."""

    def __init__(self, config: ModelConfig, folder: Path) -> None:
        """Read the first states; ``folder`` is the model's. Raises InferenceError: see ``SequenceStates``."""
        self._controls = SequenceControls(config)
        self._states = SequenceStates(config, folder) if config.sequence_batching.state else None
        self.check = self._controls.check
        # what a row without a request gets, and the number of tensors that each row gets
        self.null = [*self._controls.null, *(self._states.first if self._states is not None else ())]
        self._added = len(self.null)

    def begin(self, batch: SequenceBatch) -> RunningRows:
        """Return the batch for an instance. Its requests get their controls and states as further inputs."""
        given = next(row for row in batch.rows if row.request is not None)
        sample = given.request
        assert sample is not None
        has_gaps = any(row.request is None for row in batch.rows)
        zeros = [zeros_like(tensor) for tensor in sample.inputs] if has_gaps else []
        for row in batch.rows:
            if row.request is not None:
                row.request.inputs = [*row.request.inputs, *self._tensors(row, row.request)]
        requests = [row.request or self._empty(sample, zeros, given.sequence) for row in batch.rows]
        running = RunningRows(requests, batch)
        if self._states is not None:
            running.asked = [request.outputs for request in requests]
            for request in requests:
                request.outputs = self._states.asked(request.outputs)
        return running

    def end(self, running: RunningRows, execution: Execution) -> Ended:
        """Take out rows without a request, states, and requests that are to run once more."""
        again: list[InferenceRequest] = []
        real = Execution([], execution.rows)
        real.started_ns, real.inputs_ready_ns = execution.started_ns, execution.inputs_ready_ns
        real.computed_ns, real.finished_ns = execution.computed_ns, execution.finished_ns
        for place, (row, result) in enumerate(zip(running.sequences.rows, execution.results, strict=True)):
            if row.request is None:
                continue
            if self._states is not None:
                row.request.outputs = running.asked[place]
                result = self._without_states(self._states, row, result)
            if execution.again and place in execution.again:
                if self._added:
                    del row.request.inputs[-self._added :]
                again.append(row.request)
                continue
            if execution.parameters and place in execution.parameters:
                real.parameters = real.parameters or {}
                real.parameters[len(real.requests)] = execution.parameters[place]
            real.requests.append(row.request)
            real.results.append(result)
        return Ended(real, again)

    def _tensors(self, row: Row, request: InferenceRequest) -> list[Tensor]:
        tensors = self._controls.of(request)
        if self._states is not None and row.sequence is not None:
            tensors += self._states.of(row.sequence, start=request.sequence_start)
        return tensors

    def _empty(self, sample: InferenceRequest, zeros: list[Tensor], like: Sequence | None) -> InferenceRequest:
        """Return the request of a row without one: that it is not ready, and zeros in the shapes of another row."""
        states = self._states.empty(like) if self._states is not None else ()
        inputs = [*zeros, *self._controls.null, *states]
        return InferenceRequest(sample.model_name, sample.model_version, inputs, _ignore)

    @staticmethod
    def _without_states(
        states: SequenceStates, row: Row, result: list[Tensor] | InferenceError | None
    ) -> list[Tensor] | InferenceError | None:
        if not isinstance(result, list) or row.sequence is None or row.request is None:
            return result
        try:
            return states.take(row.sequence, row.request.outputs, result)
        except InferenceError as error:
            return error


def _ignore(response: InferenceResponse) -> None:
    """Nobody waits for the answer of a row without a request."""
