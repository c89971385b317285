"""One request on its way through an ensemble: which step requests it makes, and what becomes of their responses."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Protocol

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError, request_error
from serving_node.core.request import InferenceRequest, InferenceResponse, RequestedOutput, Timing
from serving_node.core.tensor import Tensor
from serving_node.scheduling.ensemble_graph import EnsembleRun, Launch, Progress
from serving_node.scheduling.step_links import Piece, Pipeline, Place, place_of

STUCK = "unexpected deadlock, at least one output is not set while no more ensemble steps can be made"


class Surroundings(Protocol):
    """What a flow needs of the ensemble that it is in. All on the event loop."""

    pipeline: Pipeline

    def admit(self, call: StepCall) -> bool:
        """Return whether a step request may be made now; otherwise ``StepCall.make`` is called later."""

    def submit_step(self, request: InferenceRequest) -> None:
        """Submit a step request. Raises InferenceError."""

    def settled(self, call: StepCall) -> None:
        """Note that a step request, which was admitted, has had its final response, or was refused."""

    def withdrawn(self, call: StepCall) -> None:
        """Note that a step request which waits for its admission will not be made."""

    def respond(self, flow: Flow, response: InferenceResponse) -> None:
        """Pass a response on to the caller; the final one ends the flow."""


class StepCall:
    """One step request. ``origin`` made the tensor that came last of its inputs, None for those of the ensemble.

    ``waiting`` counts the step requests that followed from this one and wait for their admission.
    """

    __slots__ = ("flow", "is_final", "launch", "made_ns", "origin", "place", "request", "waiting")

    def __init__(self, flow: Flow, launch: Launch[Piece], origin: StepCall | None) -> None:
        self.flow = flow
        self.launch = launch
        self.origin = origin
        self.request: InferenceRequest | None = None
        self.place = Place()
        self.made_ns = 0
        self.is_final = False
        self.waiting = 0

    def make(self) -> None:
        """Make the request: it was admitted."""
        self.flow.make(self)

    def on_response(self, response: InferenceResponse) -> None:
        """Take a response of the step's model."""
        self.flow.responded(self, response)


class Flow:
    """One request inside an ensemble. It is answered finally exactly once, also when steps still run.

    ``timing`` sums up what its steps say of themselves.
    """

    __slots__ = (
        "_calls",
        "_due",
        "_ensemble",
        "_is_driving",
        "_last",
        "_parting",
        "_place",
        "_run",
        "_waiting",
        "begun_ns",
        "is_over",
        "request",
        "timing",
    )

    def __init__(self, ensemble: Surroundings, request: InferenceRequest) -> None:
        self._ensemble = ensemble
        self._run: EnsembleRun[Piece] = EnsembleRun(
            ensemble.pipeline.graph, [output.name for output in request.outputs]
        )
        self._calls: set[StepCall] = set()
        self._waiting: set[StepCall] = set()
        self._due: deque[StepCall] = deque()
        self._is_driving = False
        self._last: dict[str, Piece] | None = None
        self._parting: InferenceResponse | None = None
        self._place = Place(request.sequence_id, request.sequence_start, request.sequence_end)
        self.request = request
        self.begun_ns = time.monotonic_ns()
        self.is_over = False
        self.timing = Timing()

    def begin(self) -> None:
        """Make the first step requests."""
        request = self.request
        rows = request.batch_size if self._ensemble.pipeline.side.has_rows else 0
        self._follow(
            self._run.begin({tensor.name: Piece(tensor, rows, self._place) for tensor in request.inputs}), None
        )

    def make(self, call: StepCall) -> None:
        """Make a step request now."""
        self._waiting.discard(call)
        if self.is_over:
            self._end_call(call)
            return
        request = call.request = self._step_request(call)
        call.made_ns = request.arrival_ns = time.monotonic_ns()
        self._calls.add(call)
        try:
            self._ensemble.submit_step(request)
        except InferenceError as error:
            self._end_call(call)
            self.fail(error)

    def responded(self, call: StepCall, response: InferenceResponse) -> None:
        """Go on with a response of a step."""
        if not response.final:
            self._take(call, response)
            return
        self._calls.discard(call)
        self._count(call, response)
        try:
            self._take(call, response)
        finally:
            # only now: what followed from it has found a place, or waits for one
            self._end_call(call)

    def _take(self, call: StepCall, response: InferenceResponse) -> None:
        if self.is_over:
            return
        if response.error is not None:
            self.fail(response.error)
            return
        if self.request.cancelled:
            self.fail(InferenceError(ErrorCode.CANCELLED, ""))
            return
        try:
            outputs = None if response.flag_only else self._pieces(call, response)
        except InferenceError as error:
            self.fail(error)
            return
        self._follow(self._run.responded(call.launch, outputs, is_final=response.final), call)

    def fail(self, error: InferenceError) -> None:
        """Answer with an error that names the ensemble; what still runs is cancelled, and its responses are dropped."""
        if self.is_over:
            return
        self._stop()
        named = InferenceError(error.code, f"in ensemble '{self._ensemble.pipeline.name}', {error.message}")
        response = InferenceResponse("", "", error=named)
        if self.request.lease is not None and self._calls:
            self._parting = response  # steps that run still read memory that is the caller's until it is answered
        else:
            self._ensemble.respond(self, response)

    def cancel(self) -> bool:
        """Cancel the steps that run; return whether one does: its answer ends the flow."""
        for call in [*self._calls]:
            if call.request is not None:
                call.request.cancel()
        return bool(self._calls)

    def _stop(self) -> None:
        self.is_over = True
        self._run.stop()
        self._due.clear()
        waiting, self._waiting = self._waiting, set()
        for call in waiting:
            self._ensemble.withdrawn(call)
        for call in [*self._calls]:
            if call.request is not None:
                call.request.cancel()

    def _follow(self, progress: Progress[Piece], origin: StepCall | None) -> None:
        """Do what follows from an event: answer, make step requests, end."""
        for answer in progress.answers:
            if self._ensemble.pipeline.graph.is_decoupled:
                self._ensemble.respond(self, self._response(answer, is_final=False))
            else:
                self._last = answer
        self._due.extend(StepCall(self, launch, origin) for launch in progress.launches)
        self._drive()
        if progress.is_over and not self.is_over:
            self._finish(is_stuck=progress.is_stuck)

    def _drive(self) -> None:
        """Make the step requests that are due. A model may answer at once, so that more come while this runs."""
        if self._is_driving:
            return
        self._is_driving = True
        try:
            while self._due:
                call = self._due.popleft()
                if self._ensemble.admit(call):
                    self.make(call)
                elif not self.is_over:
                    self._waiting.add(call)
        finally:
            self._is_driving = False

    def _finish(self, *, is_stuck: bool) -> None:
        if is_stuck:
            self.fail(request_error(ErrorCode.INVALID_ARG, self.request.id, STUCK))
            return
        self.is_over = True
        if self._last is not None:
            self._ensemble.respond(self, self._response(self._last, is_final=True))
        else:
            self._ensemble.respond(self, InferenceResponse("", "", final=True, flag_only=True))

    def _end_call(self, call: StepCall) -> None:
        self._calls.discard(call)
        call.is_final = True
        if call.request is not None and call.request.trace is not None:
            call.request.trace.finish()
        self._ensemble.settled(call)
        if self._parting is not None and not self._calls:
            parting, self._parting = self._parting, None
            self._ensemble.respond(self, parting)

    def _step_request(self, call: StepCall) -> InferenceRequest:
        request = self.request
        link = self._ensemble.pipeline.links[call.launch.step]
        inputs: list[Tensor] = []
        place = self._place
        for name, piece in call.launch.inputs.items():
            if piece.tensor is not None:
                inputs.append(link.side.fit(name, piece.tensor, piece.rows))
            if piece.place is not self._place:
                place = piece.place
        call.place = place
        return InferenceRequest(
            link.model,
            link.version,
            inputs,
            call.on_response,
            request.id,
            [RequestedOutput(name) for name in link.outputs],
            request.parameters,
            request.priority,
            request.timeout_us,
            place.sequence_id,
            place.start,
            place.end,
            deadline_ns=request.deadline_ns,
            sticky_key=request.sticky_key,
            trace=None if request.trace is None else request.trace.child(),
            inner=True,
        )

    def _pieces(self, call: StepCall, response: InferenceResponse) -> Mapping[str, Piece]:
        link = self._ensemble.pipeline.links[call.launch.step]
        assert call.request is not None
        rows = call.request.batch_size if link.side.has_rows else 0
        place = (place_of(response.parameters) if response.parameters else None) or call.place
        given = {tensor.name: tensor for tensor in response.outputs}
        return {name: Piece(given.get(name), rows, place) for name in link.outputs}

    def _response(self, answer: Mapping[str, Piece], *, is_final: bool) -> InferenceResponse:
        pipeline = self._ensemble.pipeline
        response = InferenceResponse("", "", final=is_final)
        for name in pipeline.outputs:
            piece = answer.get(name)
            if piece is not None and piece.tensor is not None:
                response.outputs.append(pipeline.side.fit(name, piece.tensor, piece.rows))
                response.parameters = piece.place.parameters()
        return response

    def _count(self, call: StepCall, response: InferenceResponse) -> None:
        timing = response.timing
        if timing is None:
            # responses that come apart from their batch do not say how long it ran
            self.timing.compute_infer_ns += time.monotonic_ns() - call.made_ns
            return
        self.timing.queue_ns += timing.queue_ns
        self.timing.compute_input_ns += timing.compute_input_ns
        self.timing.compute_infer_ns += timing.compute_infer_ns
        self.timing.compute_output_ns += timing.compute_output_ns
