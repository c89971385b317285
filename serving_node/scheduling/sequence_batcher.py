"""Which requests of which sequences run together. Pure: time is an argument in monotonic nanoseconds.

Two strategies. *Direct*: a sequence has a fixed row of each batch of its instance; rows without a request are sent as
not ready, so that the others stay in their row. *Oldest*: the requests of different sequences of an instance are
batched dynamically, at most one of each sequence at a time.
Source: Triton's sequence batcher (core, sequence_batch_scheduler.cc).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest
from serving_node.scheduling.batcher import Batcher, DynamicBatcher, SingleBatcher
from serving_node.scheduling.policy import BatchPolicy
from serving_node.scheduling.sequence_slots import Sequence, SequenceSlots, expired_error


@dataclass(frozen=True, slots=True)
class SequencePolicy:
    """The rules of a model with sequences. ``slots`` of each instance.

    Direct: ``rows`` is the largest batch; with a delay a batch waits until the oldest request in it has waited that
    long, or until the share ``minimum_utilization`` of the rows is filled. Oldest: ``batching`` is how the requests of
    different sequences are batched, None for each alone.
    """

    slots: int
    max_idle_ns: int
    is_direct: bool
    rows: int = 1
    delay_ns: int = 0
    minimum_utilization: float = 0.0
    batching: BatchPolicy | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a batch: a request in its slot, or None for a slot that has nothing to run."""

    slot: int
    request: InferenceRequest | None


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
        self._slots = SequenceSlots(model, instances=instances, slots=policy.slots, max_idle_ns=policy.max_idle_ns)
        make = _DirectRows if policy.is_direct else _OldestFirst
        self._instances: list[_DirectRows | _OldestFirst] = [
            make(number, policy, self._slots) for number in range(instances)
        ]
        # the sequence of each request that waits, by identity
        self._of: dict[int, Sequence] = {}
        self.pending = 0

    @property
    def conflicts(self) -> int:
        """How many sequences began under the id of one that had not ended."""
        return self._slots.conflicts

    @property
    def backlog(self) -> int:
        """How many sequences wait for a slot."""
        return self._slots.backlog

    def push(self, request: InferenceRequest, now_ns: int) -> None:
        """Take a request in. Raises InferenceError INVALID_ARG; see ``SequenceSlots.push``."""
        sequence = self._slots.push(request, now_ns)
        self._of[id(request)] = sequence
        self.pending += 1
        if sequence.seat is not None:
            self._instances[sequence.seat.instance].seated(sequence, now_ns)

    def poll(self, now_ns: int, free: Collection[int]) -> SequencePoll:
        """Return what the ``free`` instances run now, at most one batch each, and what waited too long."""
        poll = SequencePoll()
        for sequence in self._slots.expire(now_ns):
            self._fail(sequence, expired_error(), poll)
        for sequence in self._slots.end_idle(now_ns):
            assert sequence.seat is not None
            self._instances[sequence.seat.instance].closed(sequence, now_ns)
        for number in free:
            batch = self._instances[number].poll(now_ns, poll)
            if batch is not None:
                poll.batches.append(batch)
                for request in batch.requests:
                    del self._of[id(request)]
                    self.pending -= 1
        poll.wake_by(self._slots.next_ns())
        return poll

    def finished(self, batch: SequenceBatch, now_ns: int) -> None:
        """Note that a batch has run; the next requests of its sequences may follow."""
        self._instances[batch.instance].finished(batch, now_ns)

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
        for one in gone:
            del self._of[id(one)]
        self.pending -= len(gone)
        self._slots.close(sequence)
        if sequence.seat is not None:
            self._instances[sequence.seat.instance].closed(sequence, now_ns)
        elif not sequence.queue and sequence.waits:
            self._slots.leave(sequence)
        return gone

    def take_all(self) -> list[InferenceRequest]:
        """Remove and return everything that waits. Nothing may be pushed afterwards."""
        waiting = [request for sequence in dict.fromkeys(self._of.values()) for request in sequence.queue]
        for instance in self._instances:
            waiting += instance.take_all()
        self._of.clear()
        self.pending = 0
        return waiting

    def _fail(self, sequence: Sequence, error: InferenceError, poll: SequencePoll) -> None:
        for request in sequence.queue:
            del self._of[id(request)]
            poll.failed.append((request, error))
        self.pending -= len(sequence.queue)
        sequence.queue.clear()


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
        if not sequence.queue:
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
        key = ready[0].queue[0].batch_key
        assert ready[-1].seat is not None
        rows = [self._row(slot, key) for slot in range(ready[-1].seat.slot + 1)]
        return SequenceBatch(self._number, rows)

    def finished(self, batch: SequenceBatch, now_ns: int) -> None:
        """Nothing to do: rows follow from the seats."""

    def withdraw(self, request: InferenceRequest, now_ns: int) -> None:
        """Nothing to do: requests leave their sequence only when they run."""

    def take_all(self) -> list[InferenceRequest]:
        """Return nothing: all requests are with their sequences."""
        return []

    def _row(self, slot: int, key: object) -> Row:
        sequence = self._seats[slot]
        if sequence is None or not sequence.queue or sequence.queue[0].batch_key != key:
            return Row(slot, None)
        request = sequence.queue.popleft()
        if not sequence.is_open and not sequence.queue:
            self._release(sequence)
        return Row(slot, request)

    def _release(self, sequence: Sequence) -> None:
        assert sequence.seat is not None
        slot = sequence.seat.slot
        self._seats[slot] = self._slots.leave(sequence)


class _OldestFirst:
    """One instance with the oldest strategy: one request of each sequence at a time goes to a dynamic batcher."""

    def __init__(self, number: int, policy: SequencePolicy, slots: SequenceSlots) -> None:
        self._number = number
        self._slots = slots
        self._seats: list[Sequence | None] = [None] * policy.slots
        self._batcher: Batcher = SingleBatcher() if policy.batching is None else DynamicBatcher(policy.batching)
        # the slot of each request that was handed on and has not run to its end, by identity
        self._handed: dict[int, int] = {}
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
            rows = [Row(self._handed[id(request)], request) for request in batch.requests]
            return SequenceBatch(self._number, rows)
        return None

    def finished(self, batch: SequenceBatch, now_ns: int) -> None:
        """Let the next requests of the sequences in the batch follow."""
        for request in batch.requests:
            self._follow(request, now_ns)

    def withdraw(self, request: InferenceRequest, now_ns: int) -> None:
        """Take back a request that was handed on and does not run yet; one that is elsewhere is no error."""
        if id(request) in self._handed and self._batcher.cancel(request):
            self._follow(request, now_ns)

    def take_all(self) -> list[InferenceRequest]:
        """Return what was handed on and does not run yet."""
        return self._batcher.take_all()

    def _follow(self, request: InferenceRequest, now_ns: int) -> None:
        slot = self._handed.pop(id(request))
        self._busy.discard(slot)
        self._hand_on(slot, now_ns)

    def _hand_on(self, slot: int, now_ns: int) -> None:
        """Hand on the next request of a slot unless one is under way; give the seats of ended sequences away."""
        while slot not in self._busy:
            sequence = self._seats[slot]
            if sequence is None or (sequence.is_open and not sequence.queue):
                return
            if sequence.queue:
                request = sequence.queue.popleft()
                self._busy.add(slot)
                self._handed[id(request)] = slot
                self._batcher.push(request, now_ns)
            if not sequence.is_open and not sequence.queue:
                self._seats[slot] = self._slots.leave(sequence)
