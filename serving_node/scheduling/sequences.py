"""The shell around the sequence batcher: which instance runs which batch, timers, answers on the event loop.

A ``Scheduler`` whose queue is a ``SequenceBatcher``. Sequences stay with one instance, so batches are formed for a
certain instance; every row gets the controls and states of its sequence before it runs. An iterative model says which
of its requests run once more; they are answered when they do not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import structlog

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError, request_error
from serving_node.core.execution import Execution
from serving_node.core.request import InferenceRequest
from serving_node.observability.statistics import FailureReason, ModelStatistics
from serving_node.scheduling.batch import Batch
from serving_node.scheduling.instances import InstanceThread, LoopRunner
from serving_node.scheduling.scheduler import STOPPED, Scheduler
from serving_node.scheduling.sequence_batcher import SequenceBatcher
from serving_node.scheduling.sequence_policy import SequencePolicy
from serving_node.scheduling.sequence_rows import RunningRows, SequenceRows
from serving_node.scheduling.sequence_strategies import SequenceBatch, SequencePoll
from serving_node.scheduling.turns import Turns

log = structlog.get_logger(__name__)

_LOST = "the sequence of the request is over"

_REASONS = {ErrorCode.CANCELLED: FailureReason.CANCELED, ErrorCode.UNAVAILABLE: FailureReason.REJECTED}


class SequenceScheduler(Scheduler):
    """Queues, batches, runs and answers the requests of one served model with sequences.

    Concurrency: as of ``Scheduler``; ``_lock`` guards the sequences too. What a running batch holds belongs to whoever
    runs it.
    """

    def __init__(
        self,
        *,
        name: str,
        version: int,
        policy: SequencePolicy,
        rows: SequenceRows,
        instances: Sequence[InstanceThread | LoopRunner],
        statistics: ModelStatistics,
        on_closed: Callable[[], None] | None = None,
        turns: Turns | None = None,
    ) -> None:
        self._sequences = SequenceBatcher(name, policy, len(instances))
        self._rows = rows
        self._number = {instance: number for number, instance in enumerate(instances)}
        self._failed: list[tuple[InferenceRequest, InferenceError]] = []
        super().__init__(
            name=name,
            version=version,
            policy=None,
            instances=instances,
            statistics=statistics,
            on_closed=on_closed,
            turns=turns,
        )

    def submit(self, request: InferenceRequest) -> None:
        """Queue a validated request. While the node stops, those of sequences that have begun are still taken.

        Ownership: the scheduler owns the request until it has called ``on_response`` with ``final``.

        Raises:
            InferenceError: INVALID_ARG, it fits no sequence; UNAVAILABLE, the scheduler is stopping; CANCELLED, the
                request already is; INTERNAL when what runs the model died and will not be back soon.
        """
        if self._stopping and (request.sequence_start or not self._sequences.is_open(request.sequence_id)):
            raise request_error(ErrorCode.UNAVAILABLE, request.id, STOPPED)
        if request.cancelled:
            raise InferenceError(ErrorCode.CANCELLED, "")
        if self._down is not None:
            raise self._down
        self._rows.check(request)
        with self._lock:
            conflicts = self._sequences.conflicts
            self._sequences.push(request, time.monotonic_ns())
            is_conflict = self._sequences.conflicts > conflicts
        if is_conflict:
            log.warning("sequence.conflict", model=self._name, version=self._version, sequence=request.sequence_id)
        request.on_cancel = self._cancel
        self._inflight += 1
        if request.trace is not None:
            self._marks.queued(request)
        self._pump_soon()

    def pending_count(self) -> int:
        """Return how many requests wait for execution."""
        return self._sequences.pending

    def inflight_count(self) -> int:
        """Return how many requests wait or run; 1 when there are none but a sequence that has begun goes on."""
        if self._inflight:
            return self._inflight
        with self._lock:
            return int(self._sequences.seated)

    async def close(self, timeout_seconds: float = 10.0) -> None:
        """Stop now: answer what is queued with UNAVAILABLE, let running batches end, free the instances."""
        self._stopping = True
        if not self._closed:
            with self._lock:
                waiting = self._sequences.take_all()
            for request in waiting:
                self._fail(request, request_error(ErrorCode.UNAVAILABLE, request.id, STOPPED), FailureReason.OTHER)
        await super().close(timeout_seconds)

    def _sole_runner(self) -> LoopRunner | None:
        return None  # nothing is given ahead: what follows depends on what came out

    def _pump(self) -> None:
        """Give batches to idle instances and set the timer. On the loop."""
        self._pump_is_due = False
        with self._lock:
            idle = {self._number[instance]: instance for instance in self._idle}
            poll = self._sequences.poll(time.monotonic_ns(), idle if self._turns is None else ())
            given = [(idle[batch.instance], batch) for batch in poll.batches]
            for instance, _ in given:
                self._idle.remove(instance)
            waiting = tuple(self._idle) if self._sequences.pending else ()
        for instance, batch in given:
            instance.give(self._rows.begin(batch))
        self._after(poll)
        if self._turns is not None:
            if waiting:
                self._turns.ask(waiting, self._take_turn)
            else:
                self._turns.withdraw(self._instances)

    def _take_turn(self, instance: InstanceThread | LoopRunner) -> bool:
        """Form a batch for an idle instance and start it; False when there is none. On the loop."""
        with self._lock:
            if instance not in self._idle:
                return False
            poll = self._sequences.poll(time.monotonic_ns(), (self._number[instance],))
            if poll.batches:
                self._idle.remove(instance)
        for batch in poll.batches:
            instance.give(self._rows.begin(batch))
        self._after(poll)
        return bool(poll.batches)

    def _after(self, poll: SequencePoll) -> None:
        """Answer what waited too long, and come back in time."""
        for request, error in poll.failed:
            self._fail(request, error, _REASONS[error.code])
        self._set_timer(poll.wake_at_ns)

    def _batch_done(self, instance: InstanceThread, batch: Batch, execution: Execution) -> Batch | None:
        """Hand a finished batch to the loop and take the next one. On the instance's thread."""
        ended, following = self._end_batch(instance, batch, execution)
        with self._lock:
            self._finished.append((batch, ended))
            if following is None:
                self._idle.append(instance)
            must_wake, self._notified = not self._notified, True
        try:
            if self._turns is not None:
                self._loop.call_soon_threadsafe(self._end_turn, instance)
            if must_wake:
                self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            return None  # the loop is closed, nobody waits for answers
        return None if following is None else self._rows.begin(following)

    def _end_batch(
        self, instance: InstanceThread | LoopRunner, batch: Batch, execution: Execution
    ) -> tuple[Execution, SequenceBatch | None]:
        """Let the sequences of a batch go on. Return what is to be answered, and what a thread runs next."""
        assert isinstance(batch, RunningRows)
        ended = self._rows.end(batch, execution)
        takes_next = isinstance(instance, InstanceThread) and self._turns is None
        with self._lock:
            now_ns = time.monotonic_ns()
            for request in ended.again:
                request.on_cancel = self._cancel
            lost = self._sequences.finished(batch.sequences, now_ns, ended.again)
            self._failed += [(request, InferenceError(ErrorCode.UNAVAILABLE, _LOST)) for request in lost]
            # whoever left while it ran could not be told then
            for request in [one for one in ended.again if one.cancelled]:
                gone = self._sequences.cancel(request, now_ns)
                self._failed += [(one, InferenceError(ErrorCode.CANCELLED, "")) for one in gone]
            if not takes_next:
                return ended.execution, None
            poll = self._sequences.poll(now_ns, (self._number[instance],))
            self._failed += poll.failed
        return ended.execution, poll.batches[0] if poll.batches else None

    def _deliver(self) -> None:
        """Answer the requests of finished batches. On the loop."""
        with self._lock:
            finished, self._finished = self._finished, []
            failed, self._failed = self._failed, []
            self._notified = False
        self._pump()
        for _, execution in finished:
            self._answer(execution)
        for request, error in failed:
            self._fail(request, error, _REASONS[error.code])

    def _runner_done(self, runner: LoopRunner, batch: Batch, execution: Execution) -> None:
        """Give the next batch, then answer this one. On the loop."""
        if self._turns is not None:
            self._turns.release(runner)
        ended, _ = self._end_batch(runner, batch, execution)
        with self._lock:
            self._finished.append((batch, ended))
            if not self._closed and not runner.busy and runner.instance.usable():
                self._idle.append(runner)
        self._deliver()

    def _runner_changed(self, runner: LoopRunner) -> None:
        """Use an instance that came back; end the sequences of one that will not be back soon."""
        if self._closed or runner not in self._number:
            return
        number, error = self._number[runner], runner.instance.gone()
        waiting: list[InferenceRequest] = []
        with self._lock:
            if runner in self._idle and not runner.instance.usable():
                self._idle.remove(runner)
            elif runner not in self._idle and not runner.busy and runner.instance.usable():
                self._idle.append(runner)
            if error is not None:
                waiting = self._sequences.abandon(number)
            else:
                self._sequences.restore(number, time.monotonic_ns())
            self._down = self._gone()
            if self._down is not None:
                waiting += self._sequences.take_all()
        for request in waiting:
            assert error is not None
            self._fail(request, error, FailureReason.BACKEND)
        self._pump()

    def _cancel(self, request: InferenceRequest) -> None:
        with self._lock:
            gone = self._sequences.cancel(request, time.monotonic_ns())
        for one in gone:
            # answered later: the caller of cancel() does not expect its callback to run inside
            error = InferenceError(ErrorCode.CANCELLED, "")
            self._loop.call_soon(self._fail, one, error, FailureReason.CANCELED)
        if gone:
            self._pump_soon()

    def _pump_soon(self) -> None:
        if not self._pump_is_due:
            self._pump_is_due = True
            self._loop.call_soon(self._pump)
