"""Which batches and requests a worker holds, and what its messages mean for them. Nothing it says is trusted."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from serving_node.backends.python.calls import WorkerCalls
from serving_node.backends.python.link import Link, Message, WorkerGone
from serving_node.backends.python.messages import RequestTable, Results, ResultTable, encode_batches
from serving_node.backends.python.worker import flotilla_wire as wire
from serving_node.backends.python.worker.flotilla_wire import WireError
from serving_node.contract.errors import ErrorCode
from serving_node.core.backend import InstanceEvents
from serving_node.core.errors import InferenceError
from serving_node.core.execution import Execution
from serving_node.core.request import InferenceRequest, InferenceResponse

_FINAL = 1
_MASK = wire.FLAG_SLOTS - 1
# Batches up to this are short: a few of them may be sent ahead, and nobody notices that they cannot be taken back.
_SHORT_NS = 500_000
_AHEAD = 8
# With fewer batches than that at a time nobody else needs the core of who waits for the next one.
_ALONE = 1.3


class Exchange:
    """The batches of one worker. All methods on one thread at a time."""

    def __init__(self, link: Link, events: InstanceEvents, calls: WorkerCalls) -> None:
        self._link = link
        self.events = events
        self.calls = calls
        self._flags = link.process.flags
        self._requests = RequestTable()
        self._results = ResultTable()
        self._handles = 0
        # batches that are not over, in order, each with the handle of its first request
        self._running: deque[tuple[Execution, int]] = deque()
        # requests of those that had their final response
        self._finished: set[int] = set()
        # requests of earlier batches whose responses come apart, by handle, and the flags that they use
        self._open: dict[int, InferenceRequest] = {}
        self._slots: set[int] = set()
        self._last_computed_ns = 0
        self._usual_ns = float(_SHORT_NS)
        # how many batches may be sent ahead: several when they were short lately
        self.depth = 1
        # how many batches the worker had lately when it got one: about 1 while requests come one by one
        self._usual_running = 2.0

    @property
    def busy(self) -> bool:
        """Whether a request is without its final response."""
        return bool(self._running or self._open)

    @property
    def oldest(self) -> int:
        """The handle of the first request of the batch that runs, 0 when nothing waits behind one."""
        return self._running[0][1] if len(self._running) > 1 else 0

    def ends_within(self, time_ns: int) -> bool:
        """Whether there is one batch and nothing else to wait for, as mostly lately, and such took less than that."""
        is_alone = len(self._running) == 1 and self._usual_running < _ALONE
        return is_alone and not self._open and self._usual_ns < time_ns

    def send(self, executions: Sequence[Execution]) -> None:
        """Send batches in one message.

        Raises:
            WorkerGone: the process ended; the batches count as running.
            OSError, ValueError, TypeError: they cannot be sent; they do not count as running.
        """
        batches = [execution.requests for execution in executions]
        count = sum(map(len, batches))
        first = self._handles + 1
        if self._slots:
            while any((first + place) & _MASK in self._slots for place in range(count)):
                first += 1
        encoded = encode_batches(batches, self._requests)
        self._handles = first + count - 1
        flags, cancel = self._flags, self._cancel
        handle = first
        for execution in executions:
            self._running.append((execution, handle))
            for request in execution.requests:
                flags[handle & _MASK] = request.cancelled
                request.on_cancel = cancel
                handle += 1
        self._usual_running += (len(self._running) - self._usual_running) * 0.1
        said = [first, encoded.records, 1 if self._usual_running < _ALONE else 0]
        try:
            self._link.send(wire.EXECUTE, said, encoded.payload, encoded.placed, encoded.placed_bytes)
        except (OSError, ValueError, TypeError):
            for _ in executions:
                self._running.pop()
            self._requests.forget()
            raise

    def handle(self, message: Message) -> None:
        """Act on a message of the worker. Raises WorkerGone when it makes no sense."""
        kind = message.kind
        try:
            if kind == wire.BATCHES:
                self._batches_over(message)
            elif kind == wire.RESPONSE:
                self._response(message)
            elif kind == wire.BATCH_FAILED:
                self._batch_failed(message)
            elif kind == wire.CLOSED:
                self._closed(int(*message.fields))
            elif kind == wire.CALL:
                self._call(message)
            elif kind == wire.CANCEL_CALL:
                self.calls.cancel(*message.fields)
            elif kind == wire.ASK:
                self.calls.ask(message)
            elif kind == wire.METRIC:
                self.calls.metric(message)
            elif kind == wire.METRIC_DROPPED:
                self.calls.metrics.drop(*message.fields)
            else:
                raise WorkerGone(f"it sent a message of unknown kind {kind}")
        except (WireError, ValueError, TypeError) as error:
            raise WorkerGone(f"it sent a malformed message: {error}") from error

    def abandon(self, error: InferenceError) -> list[Execution]:
        """Fail the batches that were begun and the requests that wait for responses; return the batches not begun.

        The oldest batch counts as begun: it may be what ended the worker.
        """
        events = self.events
        waiting, self._open = self._open, {}
        running, self._running = list(self._running), deque()
        (begun,) = wire.BEGUN.unpack_from(self._flags, wire.FLAG_SLOTS)
        last = next((place for place, (_, first) in enumerate(running) if first == begun), 0)
        for execution, first in running[: last + 1]:
            self._fail(execution, first, error)
        self._finished.clear()
        for request in waiting.values():
            events.responded(request, InferenceResponse("", "", error=error))
        return [execution for execution, _ in running[last + 1 :]]

    def waits_for(self) -> list[InferenceRequest]:
        """Return the requests to other models that the running batch has made and that have no answer."""
        if not self.calls or not self._running:
            return []
        batch = self._running[0][0]
        return [call.request for call in self.calls if call.batch is batch]

    def runs(self, request: InferenceRequest) -> bool:
        """Return whether the worker has a request."""
        return any(one is request for execution, _ in self._running for one in execution.requests) or any(
            one is request for one in self._open.values()
        )

    # -- inside

    def _call(self, message: Message) -> None:
        """Run a request that the model makes to another one."""
        number, owner, *fields, traced, result = message.fields
        tensors, parameters = Results(self._results, message.payload, message.block).result(result)
        if isinstance(tensors, InferenceError):
            raise WireError("a request that is an error")
        batch = self._running[0][0] if owner is None and self._running else None
        if batch is not None:
            owners = list(batch.requests)
        else:
            owners = [one for one in map(self._request, owner or ()) if one is not None]
        origin = self._request(traced)
        trace = None if origin is None or origin.trace is None else origin.trace.child()
        self.calls.call([number, *fields], tensors, parameters, owners, batch, trace)

    def _request(self, handle: Any) -> InferenceRequest | None:
        """Return a request that has not had its final response."""
        if type(handle) is not int:
            raise WireError("a request of nobody")
        for execution, first in self._running:
            if 0 <= handle - first < len(execution.requests):
                return execution.requests[handle - first]
        return self._open.get(handle)

    def _cancel(self, request: InferenceRequest) -> None:
        """Let the model see that the client has left."""
        if self.calls:
            self.calls.outer_cancelled()
        for handle, one in self._open.items():
            if one is request:
                self._flags[handle & _MASK] = 1
                return
        for execution, first in self._running:
            for place, one in enumerate(execution.requests):
                if one is request:
                    self._flags[(first + place) & _MASK] = 1
                    return

    def _batches_over(self, message: Message) -> None:
        (ended,) = message.fields
        reader = Results(self._results, message.payload, message.block)
        for ready_ns, computed_ns, encoded in zip(ended[::3], ended[1::3], ended[2::3], strict=True):
            self._batch_over(reader, ready_ns, computed_ns, encoded)

    def _batch_over(self, reader: Results, ready_ns: Any, computed_ns: Any, encoded: list[Any]) -> None:
        execution, first = self._oldest()
        if len(encoded) != len(execution.requests):
            raise WireError("results of another batch")
        if len(encoded) == 1 and type(encoded[0]) is int and not self._finished:
            execution.results = [reader.tensors(encoded[0])]
            self._end(execution, ready_ns, computed_ns)
            return
        results: list[Any] = []
        for place, one in enumerate(encoded):
            if one is None:
                self._expect(first + place, execution.requests[place])
                results.append(None)
                continue
            if one is True:  # it is to run once more, unless it has had its final response
                results.append(None)
                if first + place not in self._finished:
                    execution.again = [*(execution.again or ()), place]
                continue
            result, parameters = reader.result(one)
            results.append(None if first + place in self._finished else result)
            if parameters:
                execution.parameters = execution.parameters or {}
                execution.parameters[place] = parameters
        execution.results = results
        self._end(execution, ready_ns, computed_ns)

    def _batch_failed(self, message: Message) -> None:
        ready_ns, computed_ns, text = message.fields
        execution, first = self._oldest()
        self._note_times(execution, ready_ns, computed_ns)
        self._running.popleft()
        self._fail(execution, first, InferenceError(ErrorCode.INTERNAL, str(text)))
        if not self._running:
            self._finished.clear()

    def _oldest(self) -> tuple[Execution, int]:
        if not self._running:
            raise WireError("results of no batch")
        return self._running[0]

    def _expect(self, handle: int, request: InferenceRequest) -> None:
        """Remember a request whose responses come apart from its batch."""
        if handle in self._finished:
            self._finished.discard(handle)
        else:
            self._open[handle] = request
            self._slots.add(handle & _MASK)

    def _end(self, execution: Execution, ready_ns: Any, computed_ns: Any) -> None:
        self._note_times(execution, ready_ns, computed_ns)
        self._running.popleft()
        if not self._running:
            self._finished.clear()
        self.events.done(execution)

    def _note_times(self, execution: Execution, ready_ns: Any, computed_ns: Any) -> None:
        if type(ready_ns) is not int or type(computed_ns) is not int:
            raise WireError("times that make no sense")
        # a batch that was sent ahead began when the one before it was over
        started_ns = execution.started_ns
        if started_ns < self._last_computed_ns:
            started_ns = execution.started_ns = self._last_computed_ns
        now_ns = time.monotonic_ns()
        if not started_ns <= ready_ns <= computed_ns <= now_ns:
            ready_ns = min(max(ready_ns, started_ns), now_ns)
            computed_ns = min(max(computed_ns, ready_ns), now_ns)
        execution.inputs_ready_ns = ready_ns
        execution.computed_ns = self._last_computed_ns = computed_ns
        self._usual_ns += (computed_ns - ready_ns - self._usual_ns) * 0.2
        self.depth = _AHEAD if self._usual_ns < _SHORT_NS else 1

    def _fail(self, execution: Execution, first: int, error: InferenceError) -> None:
        """Answer a batch, but for what was answered already."""
        finished = self._finished
        execution.results = [None if first + place in finished else error for place in range(len(execution.requests))]
        self.events.done(execution)

    def _response(self, message: Message) -> None:
        handle, flags, encoded = message.fields
        if type(handle) is not int:
            raise WireError("a response to nothing")
        final = bool(flags & _FINAL)
        response = InferenceResponse("", "", final=final)
        if encoded is None:
            response.flag_only = True
        else:
            result, parameters = Results(self._results, message.payload, message.block).result(encoded)
            if isinstance(result, InferenceError):
                response.error = result
            else:
                response.outputs = result
            if parameters:
                response.parameters = parameters
        request = self._take(handle, final=final)
        if request is not None:
            self.events.responded(request, response)

    def _closed(self, handle: int) -> None:
        """Nothing in the worker can answer the request any more: it ends here."""
        request = self._take(handle, final=True)
        if request is not None:
            self.events.responded(request, InferenceResponse("", "", flag_only=True))

    def _take(self, handle: int, *, final: bool) -> InferenceRequest | None:
        """Return the request that a response belongs to, None when it had its final one."""
        request = self._open.get(handle)
        if request is not None:
            if final:
                del self._open[handle]
                self._slots.discard(handle & _MASK)
            return request
        for execution, first in self._running:
            if 0 <= handle - first < len(execution.requests) and handle not in self._finished:
                if final:
                    self._finished.add(handle)
                return execution.requests[int(handle - first)]
        return None
