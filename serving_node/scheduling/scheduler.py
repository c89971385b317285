"""The shell around a batcher: instance threads, one timer, answers on the event loop.

The batcher is pure and guarded by one lock. A request is pushed on the loop; batches are formed as late as possible:
by an instance's own thread when it becomes free, or on the loop when one is idle. Answers of finished batches travel
back together: one wake-up of the loop however many batches and requests they hold.

Instances that the loop drives need none of this: their next batch is given before the last one is answered. Requests
whose responses come apart from their batch stay here until the final one; the instance is free as soon as it says so.

With a rate limiter an idle instance runs when its turn has come: then nobody takes the next batch by himself, and none
is given ahead. Instances take part in it before they come here, and leave it here.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence

import structlog

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError, request_error
from serving_node.core.execution import Execution
from serving_node.core.request import InferenceRequest, InferenceResponse, Timing
from serving_node.observability.statistics import FailureReason, ModelStatistics
from serving_node.scheduling.batch import Batch, ReleaseOrder
from serving_node.scheduling.batcher import Batcher, DynamicBatcher, SingleBatcher
from serving_node.scheduling.deadlines import GONE
from serving_node.scheduling.instances import InstanceThread, LoopRunner
from serving_node.scheduling.marks import TraceMarks
from serving_node.scheduling.policy import BatchPolicy
from serving_node.scheduling.turns import Turns

log = structlog.get_logger(__name__)

STOPPED = "Server is stopping, scheduler for model has stopped accepting new inference requests"
EXPIRED = "Request timeout expired"

_NS = 1_000_000_000
# How long the end of an instance that is not needed any more is waited for.
_LEAVE_SECONDS = 30.0


class Scheduler:
    """Queues, batches, runs and answers the requests of one served model.

    Concurrency: all public methods are called on the event loop's thread. ``_lock`` guards the batcher, the list of
    idle instances and the finished batches; nothing else happens while it is held.
    """

    def __init__(
        self,
        *,
        name: str,
        version: int,
        policy: BatchPolicy | None,
        instances: Sequence[InstanceThread | LoopRunner],
        statistics: ModelStatistics,
        on_closed: Callable[[], None] | None = None,
        turns: Turns | None = None,
    ) -> None:
        self._name = name
        self._version = str(version)
        self._statistics = statistics
        self._instances = tuple(instances)
        self._on_closed = on_closed
        self._turns = turns
        # how many batches an instance thread takes when it has finished one
        self._next_batches = 1 if turns is None else 0
        self._batcher: Batcher = SingleBatcher() if policy is None else DynamicBatcher(policy)
        self._order: ReleaseOrder[Execution] | None = ReleaseOrder() if policy and policy.preserve_ordering else None
        # A batch may wait until the loop has read all sockets that are ready, so that what arrives together runs
        # together; not when a full queue could refuse a request although an instance is idle.
        self._eager = policy is None or policy.limits_queue
        self._has_timeouts = policy is not None and any(level.default_timeout_ns for level in policy.levels)
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._idle = list(reversed(self._instances))
        self._finished: list[tuple[Batch, Execution]] = []
        self._rejected: list[InferenceRequest] = []
        self._notified = False
        self._pump_is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self._marks = TraceMarks()
        self._inflight = 0
        self._stopping = False
        self._closed = False
        self._down: InferenceError | None = None
        self._drained = asyncio.Event()
        self._leaving: set[InstanceThread | LoopRunner] = set()
        self._ending: set[asyncio.Future[bool]] = set()
        self._sole = self._sole_runner()
        for instance in self._instances:
            self._start(instance)

    def set_instances(
        self, added: Sequence[InstanceThread | LoopRunner], removed: Sequence[InstanceThread | LoopRunner]
    ) -> None:
        """Run batches on other instances from now on; those removed end as soon as all that they run is answered."""
        for instance in added:
            self._start(instance)
        with self._lock:
            if self._sole is not None:  # while it was the only one, nobody kept this up to date
                self._idle = [] if self._sole.busy or not self._sole.instance.usable() else [self._sole]
            self._instances = (*(one for one in self._instances if one not in removed), *added)
            resting = [one for one in self._idle if one in removed and not (isinstance(one, LoopRunner) and one.owes)]
            self._leaving.update(one for one in removed if one not in resting)
            self._idle = [*added, *(one for one in self._idle if one not in removed)]
        self._sole = self._sole_runner()
        for instance in resting:
            instance.stop()
            self._end(instance)
        self._end_quiet()
        self._down = self._gone()
        self._pump()

    def _sole_runner(self) -> LoopRunner | None:
        """Return the instance that may be given batches ahead: the only one, and requests run alone.

        With several instances a request would wait behind another although an instance is idle.
        """
        if self._turns is not None:
            return None
        sole = self._instances[0] if len(self._instances) == 1 else None
        return sole if isinstance(sole, LoopRunner) and isinstance(self._batcher, SingleBatcher) else None

    def _start(self, instance: InstanceThread | LoopRunner) -> None:
        if isinstance(instance, LoopRunner):
            instance.start(self._runner_done, self._respond_apart, self._runner_changed)
        else:
            instance.start(self._batch_done)

    def _end_quiet(self) -> None:
        """End the instances of the loop that are to leave and have answered everything, or are being replaced."""
        for runner in [one for one in self._leaving if isinstance(one, LoopRunner) and not one.owes]:
            runner.stop()
            self._end(runner)

    def _end(self, instance: InstanceThread | LoopRunner) -> None:
        """Free an instance that was stopped, in the background."""
        self._leaving.discard(instance)
        if self._turns is not None:
            self._turns.remove((instance,))
        ending = self._loop.run_in_executor(None, instance.join, _LEAVE_SECONDS)
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def submit(self, request: InferenceRequest) -> None:
        """Queue a validated request.

        Ownership: the scheduler owns the request until it has called ``on_response`` with ``final``.

        Raises:
            InferenceError: UNAVAILABLE when the queue is full or the scheduler is stopping; CANCELLED when the
                request already is; INTERNAL when what runs the model died and will not be back soon.
        """
        if self._stopping:
            raise request_error(ErrorCode.UNAVAILABLE, request.id, STOPPED)
        if request.cancelled:
            raise InferenceError(ErrorCode.CANCELLED, "")
        if self._down is not None:
            raise self._down
        sole = self._sole
        if sole is not None:
            self._batcher.push(request, time.monotonic_ns())  # the loop alone is at work here
            is_idle = False
        else:
            with self._lock:
                self._batcher.push(request, time.monotonic_ns())
                is_idle = bool(self._idle)
        request.on_cancel = self._cancel
        self._inflight += 1
        if request.trace is not None:
            self._marks.queued(request)
        if sole is not None:
            self._pump_sole(sole)
            if request.deadline_ns and request.queue_state != GONE:
                self._set_timer(request.deadline_ns)
        elif is_idle or self._has_timeouts or request.deadline_ns:
            if self._eager:
                self._pump()
            elif not self._pump_is_due:
                self._pump_is_due = True
                self._loop.call_soon(self._pump)

    def ready(self) -> bool:
        """Return whether requests would be answered: an instance lives and its model says that it can."""
        return not self._stopping and all(
            instance.instance.ready() for instance in self._instances if isinstance(instance, LoopRunner)
        )

    def pending_count(self) -> int:
        """Return how many requests wait for execution."""
        return self._batcher.pending

    def inflight_count(self) -> int:
        """Return how many requests wait or run."""
        return self._inflight

    async def drain(self, timeout_seconds: float) -> bool:
        """Take no new requests and wait for those inside. Returns False when the time ran out."""
        self._stopping = True
        if not self._inflight:
            return True
        try:
            await asyncio.wait_for(self._drained.wait(), timeout_seconds)
        except TimeoutError:
            return False
        return True

    async def close(self, timeout_seconds: float = 10.0) -> None:
        """Stop now: answer what is queued with UNAVAILABLE, let running batches end, free the instances."""
        self._stopping = True
        if self._closed:
            return
        self._closed = True
        with self._lock:
            waiting = self._batcher.take_all()
        self._withdraw_if_empty()
        for request in waiting:
            self._fail(request, request_error(ErrorCode.UNAVAILABLE, request.id, STOPPED), FailureReason.OTHER)
        if self._timer is not None:
            self._timer.cancel()
        deadline = time.monotonic() + timeout_seconds
        if not await self.drain(timeout_seconds):
            log.warning("scheduler.close_timed_out", model=self._name, version=self._version, running=self._inflight)
        with self._lock:
            idle, self._idle = self._idle, []
        # those of the loop can be ended whatever they do; a thread cannot
        idle += [instance for instance in self._instances if isinstance(instance, LoopRunner) and instance not in idle]
        for instance in idle:
            instance.stop()
        await asyncio.to_thread(_join, idle, max(0.1, deadline - time.monotonic()))
        if self._ending:
            await asyncio.wait(self._ending, timeout=max(0.1, deadline - time.monotonic()))
        if self._turns is not None:
            self._turns.remove(self._instances)
        # an instance that still runs may use what is shared: then nothing is freed but with the process
        is_free = len(idle) == len(self._instances) and not self._leaving and not self._ending
        if is_free and self._on_closed is not None:
            await asyncio.to_thread(self._on_closed)

    def _pump(self) -> None:
        """Give batches to idle instances and set the timer. On the loop."""
        self._pump_is_due = False
        if self._sole is not None:
            self._pump_sole(self._sole)
            return
        if self._turns is not None:
            self._ask(self._turns)
            return
        with self._lock:
            poll = self._batcher.poll(time.monotonic_ns(), len(self._idle))
            given = [(self._idle.pop(), batch) for batch in poll.batches]
        for instance, batch in given:
            instance.give(batch)
        for request in poll.rejected:
            self._reject(request)
        self._set_timer(poll.wake_at_ns)

    def _pump_sole(self, runner: LoopRunner) -> None:
        room = runner.room()
        if not room:
            return
        poll = self._batcher.poll(time.monotonic_ns(), room)
        if poll.batches:
            runner.give(*poll.batches)
        for request in poll.rejected:
            self._reject(request)

    def _ask(self, turns: Turns) -> None:
        """Ask for a turn of each idle instance while a batch is due. On the loop."""
        now_ns = time.monotonic_ns()
        with self._lock:
            poll = self._batcher.poll(now_ns, 0)
            due_ns = self._batcher.due_ns(now_ns)
            idle = tuple(reversed(self._idle))
        for request in poll.rejected:
            self._reject(request)
        if due_ns is not None and due_ns <= now_ns:
            self._set_timer(poll.wake_at_ns)
            turns.ask(idle, self._take_turn)
        else:
            # who waits for a turn must not hold up others before there is a batch
            self._set_timer(min((one for one in (poll.wake_at_ns, due_ns) if one is not None), default=None))
            turns.withdraw(self._instances)

    def _take_turn(self, instance: InstanceThread | LoopRunner) -> bool:
        """Form a batch for an idle instance and start it; False when there is none. On the loop."""
        with self._lock:
            if instance not in self._idle:
                return False
            poll = self._batcher.poll(time.monotonic_ns(), 1)
            if poll.batches:
                self._idle.remove(instance)
        for batch in poll.batches:
            instance.give(batch)
        for request in poll.rejected:
            self._reject(request)
        if self._turns is not None:
            self._loop.call_soon(self._ask, self._turns)  # for what is left
        return bool(poll.batches)

    def _withdraw_if_empty(self) -> None:
        """Let nobody wait behind instances that have nothing to run any more."""
        if self._turns is not None and not self._batcher.pending:
            self._turns.withdraw(self._instances)

    def _end_turn(self, instance: InstanceThread) -> None:
        """Let others have what a finished instance held, or ask again. On the loop."""
        if self._turns is not None:
            self._turns.release(instance)
            self._pump()

    def _set_timer(self, wake_at_ns: int | None) -> None:
        if self._timer is not None:
            if wake_at_ns is not None and self._timer_ns <= wake_at_ns:
                return  # an early timer polls again and sets the next; cheaper than moving it for each request
            self._timer.cancel()
            self._timer = None
        if wake_at_ns is not None and not self._closed:
            delay_ns = max(0, wake_at_ns - time.monotonic_ns())
            self._timer_ns = wake_at_ns
            self._timer = self._loop.call_later(delay_ns / _NS, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        if self._sole is not None:
            self._expire()
        self._pump()

    def _expire(self) -> None:
        """Answer the requests whose time is over although no batch can be given now."""
        with self._lock:
            poll = self._batcher.poll(time.monotonic_ns(), 0)
        for request in poll.rejected:
            self._reject(request)
        self._set_timer(poll.wake_at_ns)

    def _batch_done(self, instance: InstanceThread, batch: Batch, execution: Execution) -> Batch | None:
        """Hand a finished batch to the loop and take the next one. On the instance's thread."""
        with self._lock:
            is_leaving = instance in self._leaving
            poll = self._batcher.poll(time.monotonic_ns(), 0 if is_leaving else self._next_batches)
            self._finished.append((batch, execution))
            self._rejected += poll.rejected
            if not poll.batches and not is_leaving:
                self._idle.append(instance)
            must_wake, self._notified = not self._notified, True
        try:
            if self._turns is not None:
                self._loop.call_soon_threadsafe(self._end_turn, instance)
            if must_wake:
                self._loop.call_soon_threadsafe(self._deliver)
            if is_leaving:
                instance.stop()
                self._loop.call_soon_threadsafe(self._end, instance)
        except RuntimeError:
            return None  # the loop is closed, nobody waits for answers
        return poll.batches[0] if poll.batches else None

    def _deliver(self) -> None:
        """Answer the requests of finished batches. On the loop."""
        with self._lock:
            finished, self._finished = self._finished, []
            rejected, self._rejected = self._rejected, []
            self._notified = False
            is_waiting = self._batcher.pending > 0
        if is_waiting:
            self._pump()
        for batch, execution in finished:
            if self._order is None:
                self._answer(execution)
            else:
                for released in self._order.finish(batch.ticket, execution):
                    self._answer(released)
        for request in rejected:
            self._reject(request)

    def _runner_done(self, runner: LoopRunner, batch: Batch, execution: Execution) -> None:
        """Give the next batch, then answer this one. On the loop."""
        if runner is self._sole and not self._closed:
            if self._batcher.pending:
                self._pump_sole(runner)
            self._answer(execution)
            return
        if self._turns is not None:
            self._turns.release(runner)
        with self._lock:
            is_leaving = runner in self._leaving
            if not self._closed and not is_leaving and not runner.busy and runner.instance.usable():
                self._idle.append(runner)
            is_waiting = self._batcher.pending > 0
        if is_waiting:
            self._pump()
        if self._order is None:
            self._answer(execution)
        else:
            for released in self._order.finish(batch.ticket, execution):
                self._answer(released)
        if is_leaving:
            self._end_quiet()

    def _runner_changed(self, runner: LoopRunner) -> None:
        """Use an instance that came back, leave out one that went; when all are gone, let nobody wait for them."""
        if self._closed or runner not in self._instances:
            return
        with self._lock:
            is_unusable = runner in self._idle and not runner.instance.usable()
            if is_unusable:
                self._idle.remove(runner)
            elif runner not in self._idle and not runner.busy and runner.instance.usable():
                self._idle.append(runner)
        if is_unusable and self._turns is not None:
            self._turns.withdraw((runner,))
        error = self._down = self._gone()
        if error is not None:
            with self._lock:
                waiting = self._batcher.take_all()
            self._withdraw_if_empty()
            for request in waiting:
                self._fail(request, error, FailureReason.BACKEND)
        elif self._idle:
            self._pump()

    def _gone(self) -> InferenceError | None:
        """Return why no instance will run anything for a while, None when one will."""
        reason: InferenceError | None = None
        for instance in self._instances:
            reason = instance.instance.gone() if isinstance(instance, LoopRunner) else None
            if reason is None:
                return None
        return reason

    def _respond_apart(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """Pass on one response of a request that is not answered with its batch. On the loop."""
        response.model_name, response.model_version, response.id = self._name, self._version, request.id
        self._statistics.record_response(request, response, time.monotonic_ns())
        if request.trace is not None:
            request.trace.tensors("TENSOR_BACKEND_OUTPUT", response.outputs)
        if response.final:
            self._respond(request, response)
            if request.trace is not None:
                self._marks.answered_apart(request)
            if self._leaving:
                # later: the instance has not yet crossed this request off
                self._loop.call_soon(self._end_quiet)
            return
        try:
            request.on_response(response)
        except Exception:
            log.exception(
                "scheduler.on_response_failed", model=self._name, version=self._version, request_id=request.id
            )

    def _answer(self, execution: Execution) -> None:
        now_ns = time.monotonic_ns()
        self._statistics.record_execution(execution, now_ns)
        if len(execution.requests) == 1 and type(execution.results[0]) is list and execution.parameters is None:
            request = execution.requests[0]
            if request.trace is None:
                response = InferenceResponse(self._name, self._version, request.id, execution.results[0])
                response.timing = _timing(execution, request)
                self._respond(request, response)
                return
        for position, (request, result) in enumerate(zip(execution.requests, execution.results, strict=True)):
            if request.trace is not None:
                self._marks.computed(request, execution, result if isinstance(result, list | None) else [])
            if result is None:
                continue  # answered apart from the batch
            response = InferenceResponse(self._name, self._version, request.id)
            if isinstance(result, InferenceError):
                response.error = result
            else:
                response.outputs = result
                response.timing = _timing(execution, request)
            if execution.parameters:
                response.parameters = execution.parameters.get(position, response.parameters)
            self._respond(request, response)
            if request.trace is not None:
                request.trace.end(time.monotonic_ns())

    def _respond(self, request: InferenceRequest, response: InferenceResponse) -> None:
        self._inflight -= 1
        request.on_cancel = None
        try:
            request.on_response(response)
        except Exception:
            # one frontend's bug must not leave the siblings of its batch without an answer
            log.exception(
                "scheduler.on_response_failed", model=self._name, version=self._version, request_id=request.id
            )
        if not self._inflight and self._stopping:
            self._drained.set()

    def _fail(self, request: InferenceRequest, error: InferenceError, reason: FailureReason) -> None:
        self._statistics.record_failure(reason, time.monotonic_ns() - request.arrival_ns)
        self._respond(request, InferenceResponse(self._name, self._version, request.id, error=error))
        if request.trace is not None:
            request.trace.end(time.monotonic_ns())

    def _reject(self, request: InferenceRequest) -> None:
        self._fail(request, InferenceError(ErrorCode.UNAVAILABLE, EXPIRED), FailureReason.REJECTED)

    def _cancel(self, request: InferenceRequest) -> None:
        with self._lock:
            was_waiting = self._batcher.cancel(request)
        if was_waiting:
            self._withdraw_if_empty()
            # answered later: the caller of cancel() does not expect its callback to run inside
            error = InferenceError(ErrorCode.CANCELLED, "")
            self._loop.call_soon(self._fail, request, error, FailureReason.CANCELED)


def _timing(execution: Execution, request: InferenceRequest) -> Timing:
    """Return where the time of a request of a finished batch went."""
    return Timing(
        execution.started_ns - request.queued_ns,
        execution.inputs_ready_ns - execution.started_ns,
        execution.computed_ns - execution.inputs_ready_ns,
        execution.finished_ns - execution.computed_ns,
    )


def _join(instances: Sequence[InstanceThread | LoopRunner], timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    for instance in instances:
        instance.join(max(0.0, deadline - time.monotonic()))
