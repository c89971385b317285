"""Which requests of which sequences run together. Pure: time is an argument in monotonic nanoseconds.

Two strategies. *Direct*: a sequence has a fixed row of each batch of its instance; rows without a request are sent as
not ready, so that the others stay in their row. *Oldest*: the requests of different sequences of an instance are
batched dynamically, at most one of each sequence at a time.
Source: Triton's sequence batcher (core, sequence_batch_scheduler.cc).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass, field

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest
from serving_node.scheduling.batcher import Batcher, DynamicBatcher, SingleBatcher
from serving_node.scheduling.deadlines import GONE, CallerDeadlines
from serving_node.scheduling.queue import WAITING
from serving_node.scheduling.sequence_policy import SequencePolicy
from serving_node.scheduling.sequence_slots import Sequence, SequenceSlots, expired_error

_NOBODY_WAITS = "Request timeout expired"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a batch: a request in its slot, with its sequence, or None for a slot that has nothing to run."""

    slot: int
    request: InferenceRequest | None
    sequence: Sequence | None = None


@dataclass(slots=True)
class SequenceBatch:
    """What one instance runs now. Whoever runs it calls ``finished`` afterwards."""

    instance: int
    rows: list[Row]

    @property
    def requests(self) -> list[InferenceRequest]:
        """The requests in it, without the rows that are not ready."""
        return [row.request for row in self.rows if row.request is not None]


@dataclass(slots=True)
class SequencePoll:
    """What to do now. ``wake_at_ns`` is when polling again is useful although nothing else happens."""

    batches: list[SequenceBatch] = field(default_factory=list)
    failed: list[tuple[InferenceRequest, InferenceError]] = field(default_factory=list)
    wake_at_ns: int | None = None

    def wake_by(self, at_ns: int | None) -> None:
        """Let polling again happen at ``at_ns`` at the latest."""
        if at_ns is not None:
            self.wake_at_ns = at_ns if self.wake_at_ns is None else min(self.wake_at_ns, at_ns)


class SequenceBatcher:
    """The sequences of one model. ``push``, ``poll``, ``finished`` and ``cancel`` are everything that happens."""

    def __init__(self, model: str, policy: SequencePolicy, instances: int) -> None:
        self._slots = SequenceSlots(
            model,
            instances=instances,
            slots=policy.slots,
            max_idle_ns=policy.max_idle_ns,
            is_iterative=policy.is_iterative,
        )
        make = _DirectRows if policy.is_direct else _OldestFirst
        self._instances: list[_DirectRows | _OldestFirst] = [
            make(number, policy, self._slots) for number in range(instances)
        ]
        self._callers = CallerDeadlines()
        # the sequence of each request that waits, by identity
        self._of: dict[int, Sequence] = {}

    @property
    def pending(self) -> int:
        """How many requests wait."""
        return len(self._of)

    @property
    def conflicts(self) -> int:
        """How many sequences began under the id of one that had not ended."""
        return self._slots.conflicts

    @property
    def backlog(self) -> int:
        """How many sequences wait for a slot."""
        return self._slots.backlog

    @property
    def seated(self) -> bool:
        """Whether requests of a sequence that has a slot may still come."""
        return self._slots.seated

    def is_open(self, correlation_id: int | str) -> bool:
        """Return whether a sequence of that id takes requests."""
        return self._slots.is_open(correlation_id)

    def push(self, request: InferenceRequest, now_ns: int) -> None:
        """Take a request in. Raises InferenceError INVALID_ARG; see ``SequenceSlots.push``."""
        sequence = self._slots.push(request, now_ns)
        self._note(request, sequence)
        if sequence.seat is not None:
            self._instances[sequence.seat.instance].seated(sequence, now_ns)

    def poll(self, now_ns: int, free: Collection[int]) -> SequencePoll:
        """Return what the ``free`` instances run now, at most one batch each, and what waited too long."""
        poll = SequencePoll()
        if self._callers.entries:
            self._give_up(now_ns, poll)
        for sequence in self._slots.expire(now_ns):
            poll.failed += [(request, expired_error()) for request in self._taken(sequence)]
        for sequence in self._slots.end_idle(now_ns):
            assert sequence.seat is not None
            self._instances[sequence.seat.instance].closed(sequence, now_ns)
        for number in free:
            batch = self._instances[number].poll(now_ns, poll)
            if batch is not None:
                poll.batches.append(batch)
                for request in batch.requests:
                    request.queue_state = GONE
                    del self._of[id(request)]
        poll.wake_by(self._slots.next_ns())
        return poll

    def finished(
        self, batch: SequenceBatch, now_ns: int, again: Collection[InferenceRequest] = ()
    ) -> list[InferenceRequest]:
        """Note that a batch has run; the next requests of its sequences may follow.

        Those ``again`` are to run once more, of an iterative model, and now wait, in front of their sequences; returned
        are those whose sequence is not here any more.
        """
        instance = self._instances[batch.instance]
        lost: list[InferenceRequest] = []
        for row in batch.rows:
            if row.request is None or row.sequence is None:
                continue
            comes = any(row.request is one for one in again)
            if comes and row.sequence.seat is not None:
                row.request.sequence_start = False
                row.request.queued_ns = row.sequence.last_ns = now_ns
                row.sequence.queue.appendleft(row.request)
                self._note(row.request, row.sequence)
            elif comes:
                lost.append(row.request)
            row.sequence.busy = False
            instance.finished(row, now_ns)
        return lost

    def cancel(self, request: InferenceRequest, now_ns: int) -> list[InferenceRequest]:
        """Forget a waiting request and those behind it in its sequence, which is over; return them.

        What was before it still runs. Nothing is returned, and nothing changes, when it does not wait any more.
        """
        sequence = self._of.get(id(request))
        if sequence is None:
            return []
        gone = _cut(sequence, request)
        if not gone:  # it was handed on already, and all that is queued is behind it
            gone = [request, *sequence.queue]
            sequence.queue.clear()
            for instance in self._instances:
                instance.withdraw(request, now_ns)
        self._forget(gone)
        self._slots.close(sequence)
        if sequence.seat is not None:
            self._instances[sequence.seat.instance].closed(sequence, now_ns)
        elif not sequence.queue and sequence.waits:
            self._slots.leave(sequence)
        return gone

    def abandon(self, number: int) -> list[InferenceRequest]:
        """End the sequences of an instance that cannot run for a while, and give its slots to nobody till ``restore``.

        Returns what waited for the instance.
        """
        self._slots.park(number)
        handed, ended = self._instances[number].clear()
        gone = [*handed, *(request for sequence in ended for request in sequence.queue)]
        for sequence in ended:
            sequence.queue.clear()
            self._slots.leave(sequence)
        self._forget(gone)
        return gone

    def restore(self, number: int, now_ns: int) -> None:
        """Let sequences come to an instance that can run again."""
        for sequence in self._slots.unpark(number):
            self._instances[number].seated(sequence, now_ns)

    def take_all(self) -> list[InferenceRequest]:
        """End all sequences and return everything that waits."""
        waiting: list[InferenceRequest] = []
        for number in range(len(self._instances)):
            waiting += self.abandon(number)
        for sequence in list(dict.fromkeys(self._of.values())):
            waiting += self._taken(sequence)
            self._slots.leave(sequence)
        return waiting

    def _note(self, request: InferenceRequest, sequence: Sequence) -> None:
        request.queue_state = WAITING
        self._of[id(request)] = sequence
        if request.deadline_ns:
            self._callers.push(request, len(self._of))

    def _give_up(self, now_ns: int, poll: SequencePoll) -> None:
        """Fail the requests for which nobody waits any more, and those behind them."""
        for request in self._callers.due(now_ns):
            for one in self.cancel(request, now_ns):
                if one is request:
                    poll.failed.append((one, InferenceError(ErrorCode.UNAVAILABLE, _NOBODY_WAITS)))
                else:
                    poll.failed.append((one, InferenceError(ErrorCode.CANCELLED, "")))
        poll.wake_by(self._callers.next_ns())

    def _taken(self, sequence: Sequence) -> list[InferenceRequest]:
        """Take everything out of the queue of a sequence."""
        taken = list(sequence.queue)
        sequence.queue.clear()
        self._forget(taken)
        return taken

    def _forget(self, requests: list[InferenceRequest]) -> None:
        for request in requests:
            request.queue_state = GONE
            del self._of[id(request)]


def _cut(sequence: Sequence, request: InferenceRequest) -> list[InferenceRequest]:
    """Take a request and all behind it out of the queue of its sequence; return them, none when it is not there."""
    for position, queued in enumerate(sequence.queue):
        if queued is request:
            return [sequence.queue.pop() for _ in range(len(sequence.queue) - position)][::-1]
    return []


class _DirectRows:
    """One instance with the direct strategy: slot and row of the batch are one."""

    def __init__(self, number: int, policy: SequencePolicy, slots: SequenceSlots) -> None:
        self._number = number
        self._policy = policy
        self._slots = slots
        self._seats: list[Sequence | None] = [None] * policy.slots

    def seated(self, sequence: Sequence, now_ns: int) -> None:
        """A request of a sequence that has a seat here came in."""
        assert sequence.seat is not None
        self._seats[sequence.seat.slot] = sequence

    def closed(self, sequence: Sequence, now_ns: int) -> None:
        """No more requests will come for the sequence."""
        if not sequence.queue and not sequence.busy:
            self._release(sequence)

    def poll(self, now_ns: int, poll: SequencePoll) -> SequenceBatch | None:
        """Return what runs now: one row for each slot up to the last that has a request which fits."""
        ready = [sequence for sequence in self._seats if sequence is not None and sequence.queue]
        if not ready:
            return None
        policy = self._policy
        if policy.delay_ns and len(ready) < policy.minimum_utilization * policy.rows:
            due_ns = min(sequence.queue[0].queued_ns for sequence in ready) + policy.delay_ns
            if now_ns < due_ns:
                poll.wake_by(due_ns)
                return None
        key = ready[0].batch_key()
        assert ready[-1].seat is not None
        rows = [self._row(slot, key) for slot in range(ready[-1].seat.slot + 1)]
        return SequenceBatch(self._number, rows)

    def finished(self, row: Row, now_ns: int) -> None:
        """An iterative sequence without another request is over; otherwise rows follow from the seats."""
        sequence = row.sequence
        is_here = sequence is not None and self._seats[row.slot] is sequence
        if self._policy.is_iterative and is_here and sequence is not None and not sequence.queue:
            self._release(sequence)

    def withdraw(self, request: InferenceRequest, now_ns: int) -> None:
        """Nothing to do: requests leave their sequence only when they run."""

    def clear(self) -> tuple[list[InferenceRequest], list[Sequence]]:
        """Forget everything; return the requests that left their sequences and do not run, and the sequences."""
        ended = [sequence for sequence in self._seats if sequence is not None]
        self._seats = [None] * self._policy.slots
        return [], ended

    def _row(self, slot: int, key: Hashable) -> Row:
        sequence = self._seats[slot]
        if sequence is None or not sequence.queue or sequence.batch_key() != key:
            return Row(slot, None)
        request = sequence.queue.popleft()
        if self._policy.is_iterative:
            sequence.busy = True
        elif not sequence.is_open and not sequence.queue:
            self._release(sequence)
        return Row(slot, request, sequence)

    def _release(self, sequence: Sequence) -> None:
        assert sequence.seat is not None
        slot = sequence.seat.slot
        self._seats[slot] = self._slots.leave(sequence)


class _OldestFirst:
    """One instance with the oldest strategy: one request of each sequence at a time goes to a dynamic batcher."""

    def __init__(self, number: int, policy: SequencePolicy, slots: SequenceSlots) -> None:
        self._number = number
        self._policy = policy
        self._slots = slots
        self._seats: list[Sequence | None] = [None] * policy.slots
        self._batcher: Batcher = SingleBatcher() if policy.batching is None else DynamicBatcher(policy.batching)
        # slot and sequence of each request that was handed on and has not run to its end, by identity
        self._handed: dict[int, tuple[int, Sequence]] = {}
        self._busy: set[int] = set()

    def seated(self, sequence: Sequence, now_ns: int) -> None:
        """A request of a sequence that has a seat here came in."""
        assert sequence.seat is not None
        self._seats[sequence.seat.slot] = sequence
        self._hand_on(sequence.seat.slot, now_ns)

    def closed(self, sequence: Sequence, now_ns: int) -> None:
        """No more requests will come for the sequence."""
        assert sequence.seat is not None
        self._hand_on(sequence.seat.slot, now_ns)

    def poll(self, now_ns: int, poll: SequencePoll) -> SequenceBatch | None:
        """Return what runs now."""
        inner = self._batcher.poll(now_ns, 1)
        poll.wake_by(inner.wake_at_ns)
        for batch in inner.batches:
            rows = []
            for request in batch.requests:
                slot, sequence = self._handed[id(request)]
                rows.append(Row(slot, request, sequence))
            return SequenceBatch(self._number, rows)
        return None

    def finished(self, row: Row, now_ns: int) -> None:
        """Let the next request of the sequence follow."""
        if row.request is not None:
            self._follow(row.request, now_ns)

    def withdraw(self, request: InferenceRequest, now_ns: int) -> None:
        """Take back a request that was handed on and does not run yet; one that is elsewhere is no error."""
        if id(request) in self._handed and self._batcher.cancel(request):
            self._handed[id(request)][1].busy = False
            self._follow(request, now_ns)

    def clear(self) -> tuple[list[InferenceRequest], list[Sequence]]:
        """Forget everything; return the requests that left their sequences and do not run, and the sequences."""
        ended = [sequence for sequence in self._seats if sequence is not None]
        self._seats = [None] * self._policy.slots
        self._handed.clear()
        self._busy.clear()
        return self._batcher.take_all(), ended

    def _follow(self, request: InferenceRequest, now_ns: int) -> None:
        slot, sequence = self._handed.pop(id(request), (-1, None))
        if sequence is None:
            return  # it was abandoned while it ran
        self._busy.discard(slot)
        if self._policy.is_iterative and not sequence.queue:
            self._slots.close(sequence)
        self._hand_on(slot, now_ns)

    def _hand_on(self, slot: int, now_ns: int) -> None:
        """Hand on the next request of a slot unless one is under way; give the seats of ended sequences away."""
        while slot not in self._busy:
            sequence = self._seats[slot]
            if sequence is None or (sequence.is_open and not sequence.queue):
                return
            if sequence.queue:
                key = sequence.batch_key()
                request = sequence.queue.popleft()
                request.batch_key = key
                self._busy.add(slot)
                self._handed[id(request)] = (slot, sequence)
                self._batcher.push(request, now_ns)
                if self._policy.is_iterative:
                    sequence.busy = True
                    return
            if not sequence.is_open and not sequence.queue:
                self._seats[slot] = self._slots.leave(sequence)
