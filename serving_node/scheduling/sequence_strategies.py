"""Which requests of the sequences of one instance run together. Pure: time is an argument in monotonic nanoseconds.

*Direct*: a sequence has a fixed row of each batch of its instance; rows without a request are sent as not ready, so
that the others stay in their row. *Oldest*: the requests of different sequences are batched dynamically, at most one of
each sequence at a time. Source: Triton's sequence batcher (core, sequence_batch_scheduler.cc).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest
from serving_node.scheduling.batcher import Batcher, DynamicBatcher, SingleBatcher
from serving_node.scheduling.sequence_policy import SequencePolicy
from serving_node.scheduling.sequence_slots import Sequence, SequenceSlots


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


class DirectRows:
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


class OldestFirst:
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
