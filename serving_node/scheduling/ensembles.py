"""The shell of an ensemble: no instances and no backend, only requests on their way from model to model.

Everything runs on the event loop, in the callbacks by which the steps' models answer; nothing waits and nothing blocks.
"""

from __future__ import annotations

import asyncio
import time

import structlog

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError, request_error
from serving_node.core.execution import Execution
from serving_node.core.inner_calls import ModelCalls
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.observability.statistics import FailureReason, ModelStatistics
from serving_node.scheduling.ensemble_flow import Flow, StepCall
from serving_node.scheduling.inflight_gate import InflightGate
from serving_node.scheduling.scheduler import STOPPED
from serving_node.scheduling.step_links import Pipeline

log = structlog.get_logger(__name__)

FULL = "Exceeds maximum queue size"
# How long a step that is full may keep a request waiting. Source: Triton's max_inflight_requests.
_PATIENCE_NS = 300 * 1_000_000_000


class EnsembleScheduler:
    """Takes the requests of one ensemble through its steps. See ``RequestScheduler``.

    ``max_requests``: how many requests may be inside, 0 for any number. ``max_inflight``: how many of them may be in
    one step at a time, 0 for any number.
    Concurrency: all methods are called on the event loop's thread.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        calls: ModelCalls,
        *,
        name: str,
        version: int,
        statistics: ModelStatistics,
        max_requests: int = 0,
        max_inflight: int = 0,
    ) -> None:
        self.pipeline = pipeline
        self._calls = calls
        self._name = name
        self._version = str(version)
        self._statistics = statistics
        self._max_requests = max_requests
        self._gates: tuple[InflightGate[StepCall], ...] = (
            tuple(InflightGate(max_inflight, _PATIENCE_NS) for _ in pipeline.links) if max_inflight else ()
        )
        self._loop = asyncio.get_running_loop()
        self._flows: set[Flow] = set()
        self._beginning: Flow | None = None
        self._stopping = False
        self._drained = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    # -- as a scheduler

    def submit(self, request: InferenceRequest) -> None:
        """Take a validated request. See ``RequestScheduler.submit``."""
        if self._stopping:
            raise request_error(ErrorCode.UNAVAILABLE, request.id, STOPPED)
        if request.cancelled:
            raise InferenceError(ErrorCode.CANCELLED, "")
        if self._max_requests and len(self._flows) >= self._max_requests:
            raise request_error(ErrorCode.UNAVAILABLE, request.id, FULL)
        request.queued_ns = time.monotonic_ns()
        if request.trace is not None:
            request.trace.mark("QUEUE_START", request.queued_ns)
            request.trace.tensors("TENSOR_QUEUE_INPUT", request.inputs)
        flow = Flow(self, request)
        self._flows.add(flow)
        request.on_cancel = lambda _: self._cancel(flow)
        # what is answered before this returns is passed on later: the caller does not expect its callback to run inside
        outer, self._beginning = self._beginning, flow
        flow.begin()
        self._beginning = outer

    def ready(self) -> bool:
        """Return whether requests would be answered: all models of the steps are ready."""
        return not self._stopping and all(self._is_ready(link.model, link.version) for link in self.pipeline.links)

    def _is_ready(self, model: str, version: str) -> bool:
        try:
            return self._calls.model_ready(model, version)
        except InferenceError:
            return False

    def pending_count(self) -> int:
        """Return 0: requests wait for the models of the steps, which say so themselves."""
        return 0

    def inflight_count(self) -> int:
        """Return how many requests are inside."""
        return len(self._flows)

    async def drain(self, timeout_seconds: float) -> bool:
        """Take no new requests and wait for those inside. Returns False when the time ran out."""
        self._stopping = True
        if not self._flows:
            return True
        try:
            await asyncio.wait_for(self._drained.wait(), timeout_seconds)
        except TimeoutError:
            return False
        return True

    async def close(self, timeout_seconds: float = 10.0) -> None:
        """Stop now: wait for what is inside as long as there is time, and answer the rest with UNAVAILABLE."""
        if not await self.drain(timeout_seconds):
            log.warning("ensemble.close_timed_out", model=self._name, version=self._version, running=len(self._flows))
            for flow in [*self._flows]:
                flow.fail(InferenceError(ErrorCode.UNAVAILABLE, STOPPED))
        if self._timer is not None:
            self._timer.cancel()

    def _cancel(self, flow: Flow) -> None:
        if not flow.cancel():
            # answered later: the caller of cancel() does not expect its callback to run inside
            self._loop.call_soon(flow.fail, InferenceError(ErrorCode.CANCELLED, ""))

    # -- what flows need

    def submit_step(self, request: InferenceRequest) -> None:
        """Submit a step request. Raises InferenceError."""
        self._calls.infer(request)

    def admit(self, call: StepCall) -> bool:
        """Return whether a step request may be made now; otherwise ``StepCall.make`` is called later."""
        if not self._gates:
            return True
        gate = self._gates[call.launch.step]
        if gate.enter(call, time.monotonic_ns()):
            return True
        if call.origin is not None:
            call.origin.waiting += 1
        self._set_timer()
        return False

    def settled(self, call: StepCall) -> None:
        """Note that a step request, which was admitted, has had its final response, or was refused."""
        if self._gates and not call.waiting:
            self._leave(call)

    def withdrawn(self, call: StepCall) -> None:
        """Note that a step request which waits for its admission will not be made."""
        self._gates[call.launch.step].withdraw(call)
        self._free_origin(call)

    def respond(self, flow: Flow, response: InferenceResponse) -> None:
        """Pass a response on to the caller; the final one ends the flow."""
        request = flow.request
        response.model_name, response.model_version, response.id = self._name, self._version, request.id
        if self._beginning is flow:
            self._loop.call_soon(self._pass_on, flow, response)
        else:
            self._pass_on(flow, response)

    def _pass_on(self, flow: Flow, response: InferenceResponse) -> None:
        request = flow.request
        now_ns = time.monotonic_ns()
        if not response.final:
            self._statistics.record_response(request, response, now_ns)
        else:
            self._flows.discard(flow)
            request.on_cancel = None
            self._count(flow, response, now_ns)
        if request.trace is not None:
            request.trace.tensors("TENSOR_BACKEND_OUTPUT", response.outputs)
        try:
            request.on_response(response)
        except Exception:
            log.exception("ensemble.on_response_failed", model=self._name, request_id=request.id)
        if response.final:
            if request.trace is not None:
                request.trace.end(time.monotonic_ns())
            if self._stopping and not self._flows:
                self._drained.set()

    def _count(self, flow: Flow, response: InferenceResponse, now_ns: int) -> None:
        request, timing = flow.request, flow.timing
        if response.error is not None:
            is_cancelled = response.error.code is ErrorCode.CANCELLED and request.cancelled
            reason = FailureReason.CANCELED if is_cancelled else FailureReason.OTHER
            self._statistics.record_failure(reason, now_ns - request.arrival_ns)
            return
        response.timing = timing
        # as in Triton: the time in the queues of the steps is theirs, an ensemble has no queue
        inputs_ready_ns = flow.begun_ns + timing.compute_input_ns
        computed_ns = inputs_ready_ns + timing.compute_infer_ns
        execution = Execution(
            [request],
            request.batch_size,
            [[]],
            started_ns=flow.begun_ns,
            inputs_ready_ns=inputs_ready_ns,
            computed_ns=computed_ns,
            finished_ns=computed_ns + timing.compute_output_ns,
        )
        self._statistics.record_execution(execution, now_ns)

    # -- full steps

    def _leave(self, call: StepCall) -> None:
        """Let out a request whose responses have all gone on, and in whoever waits for its place."""
        following = self._gates[call.launch.step].leave()
        if following is not None:
            self._go(following)

    def _go(self, call: StepCall) -> None:
        self._free_origin(call)
        call.make()

    def _free_origin(self, call: StepCall) -> None:
        """A producer keeps its place until all that it produced has found one: that holds it back."""
        origin, call.origin = call.origin, None
        if origin is not None:
            origin.waiting -= 1
            if origin.is_final and not origin.waiting:
                self._leave(origin)

    def _set_timer(self) -> None:
        due = [due_ns for gate in self._gates if (due_ns := gate.due_ns()) is not None]
        if self._timer is None and due:
            pause = max(0, min(due) - time.monotonic_ns()) / 1e9
            self._timer = self._loop.call_later(pause, self._let_in_overdue)

    def _let_in_overdue(self) -> None:
        self._timer = None
        now_ns = time.monotonic_ns()
        for gate in self._gates:
            for call in gate.overdue(now_ns):
                log.warning("ensemble.step_stays_full", model=self._name, version=self._version, step=call.launch.step)
                self._go(call)
        self._set_timer()
