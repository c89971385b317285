"""What the scheduler notes on the traces of requests. Nothing here runs for a request that is not traced."""

from __future__ import annotations

import time

from serving_node.core.execution import Execution
from serving_node.core.request import InferenceRequest
from serving_node.core.tensor import Tensor


class TraceMarks:
    """Notes queueing, computing and the end of the traced requests of one model. On the loop."""

    def __init__(self) -> None:
        # Requests that are answered apart from their batch, by their identity: those whose final response came before
        # the batch was over, and those whose batch was over first.
        self._answered: dict[int, InferenceRequest] = {}
        self._computed: dict[int, InferenceRequest] = {}

    @staticmethod
    def queued(request: InferenceRequest) -> None:
        """Note that a request waits from now on."""
        assert request.trace is not None
        request.trace.mark("QUEUE_START", request.queued_ns)
        request.trace.tensors("TENSOR_QUEUE_INPUT", request.inputs)

    def computed(self, request: InferenceRequest, execution: Execution, outputs: list[Tensor] | None) -> None:
        """Note when the batch of a request ran. ``outputs`` is None for a request that is answered apart from it."""
        trace = request.trace
        assert trace is not None
        if outputs:
            trace.tensors("TENSOR_BACKEND_OUTPUT", outputs)
        trace.mark("COMPUTE_START", execution.started_ns)
        trace.mark("COMPUTE_INPUT_END", execution.inputs_ready_ns)
        trace.mark("COMPUTE_OUTPUT_START", execution.computed_ns)
        trace.mark("COMPUTE_END", execution.finished_ns)
        if outputs is None:
            if self._answered.pop(id(request), None) is not None:
                trace.end(time.monotonic_ns())
            else:
                self._computed[id(request)] = request

    def answered_apart(self, request: InferenceRequest) -> None:
        """Note that the final response of a request is out; its trace ends with the later of this and its batch."""
        assert request.trace is not None
        if self._computed.pop(id(request), None) is not None:
            request.trace.end(time.monotonic_ns())
        else:
            self._answered[id(request)] = request
