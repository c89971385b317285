"""Which requests of which sequences run where, and when. Pure: time is an argument in monotonic nanoseconds.

Sequences get slots of instances (``sequence_slots``), and instances make batches of what their sequences have queued
(``sequence_strategies``).
"""

from __future__ import annotations

from collections.abc import Collection

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest
from serving_node.scheduling.deadlines import GONE, CallerDeadlines
from serving_node.scheduling.queue import WAITING
from serving_node.scheduling.sequence_policy import SequencePolicy
from serving_node.scheduling.sequence_slots import Sequence, SequenceSlots, expired_error
from serving_node.scheduling.sequence_strategies import DirectRows, OldestFirst, SequenceBatch, SequencePoll

_NOBODY_WAITS = "Request timeout expired"


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
        make = DirectRows if policy.is_direct else OldestFirst
        self._instances: list[DirectRows | OldestFirst] = [
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
