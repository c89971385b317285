"""Which sequence sits in which slot of which instance, and which wait for one. Pure.

A sequence is a run of requests with one correlation id, from its first until END, or until it was idle for too long or
cancelled. It keeps its slot for life, so that state can stay where the model runs. Source: Triton's sequence batcher
(core, sequence_batch_scheduler.cc).

State of a sequence: backlog -> (a slot becomes free) seated -> (END leaves the queue) gone. It is *open* while requests
with its id go to it: until END is queued, or it is idle for too long, or cancelled. Then what it has queued still runs.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest

SEQUENCE_EXPIRED = "timeout of the corresponding sequence has been expired"

_NS_PER_US = 1000
_SWEEP_FROM = 256
# how often a sequence that waits for a slot, longer than it may be idle, is looked at in that time
_CHECKS_PER_IDLE = 20


@dataclass(frozen=True, order=True, slots=True)
class Seat:
    """One slot of one instance. Slots are filled from the lowest number, across instances."""

    slot: int
    instance: int


@dataclass(eq=False, slots=True)
class Sequence:
    """The requests of one sequence that have not left yet. ``waits`` says that it is in the backlog.

    ``seat`` is None before and after it has one. ``expires_ns`` is when it gives up waiting for one, 0 for never.
    ``busy``: its request runs and may come again. ``state`` is kept here for whoever runs the requests; ``shape`` tells
    apart states that cannot share a batch.
    """

    id: int | str
    queue: deque[InferenceRequest] = field(default_factory=deque)
    seat: Seat | None = None
    last_ns: int = 0
    expires_ns: int = 0
    is_open: bool = True
    waits: bool = False
    busy: bool = False
    state: Any = None
    shape: Hashable = None

    def batch_key(self) -> Hashable:
        """Return what must be equal for its next request to share a batch with others."""
        request = self.queue[0]
        shape = None if request.sequence_start else self.shape
        return request.batch_key if shape is None else (request.batch_key, shape)


class SequenceSlots:
    """The slots of all instances of a model, and the backlog.

    ``conflicts`` counts sequences that began under the id of one that was still open; Triton goes on with that one.
    """

    def __init__(self, model: str, *, instances: int, slots: int, max_idle_ns: int, is_iterative: bool) -> None:
        self._model = model
        self._max_idle_ns = max_idle_ns
        self._is_iterative = is_iterative
        self._numbers = 0
        self._free = [Seat(slot, instance) for slot in range(slots) for instance in range(instances)]
        heapq.heapify(self._free)
        # the free seats of instances that cannot run for a while
        self._parked: dict[int, list[Seat]] = {}
        self._open: dict[int | str, Sequence] = {}
        # in the order of arrival; a dict, because sequences leave from the middle
        self._backlog: dict[Sequence, None] = {}
        self._idle = _Times(lambda sequence: sequence.is_open)
        self._expiring = _Times(lambda sequence: sequence.waits)
        self.conflicts = 0

    @property
    def backlog(self) -> int:
        """How many sequences wait for a slot."""
        return len(self._backlog)

    @property
    def seated(self) -> bool:
        """Whether requests of a sequence that has a seat may still come."""
        return any(sequence.seat is not None for sequence in self._open.values())

    def is_open(self, correlation_id: int | str) -> bool:
        """Return whether a sequence of that id takes requests."""
        return correlation_id in self._open

    def push(self, request: InferenceRequest, now_ns: int) -> Sequence:
        """Append a request to its sequence, which may begin with it and may get a seat at once.

        One without an id is a sequence of its own where the model is iterative.

        Raises:
            InferenceError: INVALID_ARG, the batch size is not 1, there is no correlation id, or START is missing.
        """
        self._check(request)
        sequence = self._open.get(request.sequence_id)
        if sequence is None:
            if not request.sequence_start:
                sentence = (
                    f"inference request for sequence {request.sequence_id} to model '{self._model}' must specify the"
                    " START flag on the first request of the sequence"
                )
                raise InferenceError(ErrorCode.INVALID_ARG, sentence)
            sequence = self._begin(request.sequence_id, now_ns)
        elif request.sequence_start:
            self.conflicts += 1
        sequence.last_ns = now_ns
        request.queued_ns = now_ns
        sequence.queue.append(request)
        if sequence.seat is None and request.timeout_us:
            expires_ns = now_ns + request.timeout_us * _NS_PER_US
            if not sequence.expires_ns or expires_ns < sequence.expires_ns:
                sequence.expires_ns = expires_ns
                self._expiring.add(expires_ns, sequence)
        if request.sequence_end:
            self.close(sequence)
        return sequence

    def close(self, sequence: Sequence) -> None:
        """Let requests with its id not go to the sequence any more."""
        if sequence.is_open:
            sequence.is_open = False
            del self._open[sequence.id]

    def leave(self, sequence: Sequence) -> Sequence | None:
        """Give the seat of a sequence to the next one of the backlog, which is returned, or to nobody."""
        self.close(sequence)
        seat, sequence.seat = sequence.seat, None
        if seat is None:
            del self._backlog[sequence]
            sequence.waits = False
            return None
        if seat.instance in self._parked:
            self._parked[seat.instance].append(seat)
            return None
        return self._give(seat)

    def park(self, instance: int) -> None:
        """Give no seat of an instance to anybody until it is unparked."""
        if instance not in self._parked:
            self._parked[instance] = [seat for seat in self._free if seat.instance == instance]
            self._free = [seat for seat in self._free if seat.instance != instance]
            heapq.heapify(self._free)

    def unpark(self, instance: int) -> list[Sequence]:
        """Give the seats of an instance to whoever waits; return the sequences that have one now."""
        given = [self._give(seat) for seat in sorted(self._parked.pop(instance, []))]
        return [sequence for sequence in given if sequence is not None]

    def _give(self, seat: Seat) -> Sequence | None:
        following = next(iter(self._backlog), None)
        if following is None:
            heapq.heappush(self._free, seat)
            return None
        del self._backlog[following]
        following.seat, following.waits = seat, False
        return following

    def end_idle(self, now_ns: int) -> list[Sequence]:
        """Close the seated sequences that are idle for too long; return them. What they have queued still runs."""
        ended: list[Sequence] = []
        for sequence in self._idle.take(now_ns):
            due_ns = sequence.last_ns + self._max_idle_ns
            if due_ns <= now_ns and sequence.seat is not None and not sequence.busy:
                self.close(sequence)
                ended.append(sequence)
            else:
                # one that waits for a seat, or for its next pass, is not idle: it is looked at again later
                self._idle.add(max(due_ns, now_ns + self._max_idle_ns // _CHECKS_PER_IDLE + 1), sequence)
        return ended

    def expire(self, now_ns: int) -> list[Sequence]:
        """Remove and return the sequences of the backlog whose time is over."""
        expired = [sequence for sequence in self._expiring.take(now_ns) if sequence.expires_ns <= now_ns]
        for sequence in expired:
            self.leave(sequence)
        return expired

    def next_ns(self) -> int | None:
        """Return when ``end_idle`` or ``expire`` may have something to do, None when never."""
        times = [time for time in (self._idle.first_ns(), self._expiring.first_ns()) if time is not None]
        return min(times, default=None)

    def _check(self, request: InferenceRequest) -> None:
        sentence = ""
        if request.batch_size != 1:
            sentence = (
                f"inference request to model '{self._model}' must specify batch-size 1 due to requirements of sequence"
                " batcher"
            )
        elif not request.sequence_id and self._is_iterative:
            request.sequence_id, request.sequence_start = self._new_id(), True
        elif not request.sequence_id:
            sentence = f"inference request to model '{self._model}' must specify a non-zero or non-empty correlation ID"
        if sentence:
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)

    def _new_id(self) -> int:
        self._numbers += 1
        while self._numbers in self._open:
            self._numbers += 1
        return self._numbers

    def _begin(self, correlation_id: int | str, now_ns: int) -> Sequence:
        sequence = Sequence(correlation_id)
        self._open[correlation_id] = sequence
        if self._free:
            sequence.seat = heapq.heappop(self._free)
        else:
            self._backlog[sequence] = None
            sequence.waits = True
        self._idle.add(now_ns + self._max_idle_ns, sequence)
        return sequence


class _Times:
    """Sequences by time. Those that do not matter any more are skipped, and swept out when they are the most."""

    __slots__ = ("_added", "_heap", "_matters", "_sweep_at")

    def __init__(self, matters: Callable[[Sequence], bool]) -> None:
        self._matters = matters
        self._heap: list[tuple[int, int, Sequence]] = []
        self._added = 0
        self._sweep_at = _SWEEP_FROM

    def add(self, at_ns: int, sequence: Sequence) -> None:
        self._added += 1
        heapq.heappush(self._heap, (at_ns, self._added, sequence))
        if len(self._heap) >= self._sweep_at:
            self._heap = [entry for entry in self._heap if self._matters(entry[2])]
            heapq.heapify(self._heap)
            self._sweep_at = max(_SWEEP_FROM, 2 * len(self._heap))

    def take(self, now_ns: int) -> list[Sequence]:
        """Remove what is due and return what of it matters, each once."""
        due: dict[Sequence, None] = {}
        while self._heap and self._heap[0][0] <= now_ns:
            sequence = heapq.heappop(self._heap)[2]
            if self._matters(sequence):
                due[sequence] = None
        return list(due)

    def first_ns(self) -> int | None:
        while self._heap and not self._matters(self._heap[0][2]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None


def expired_error() -> InferenceError:
    """Return what each request of a sequence is answered that waited too long for a slot."""
    return InferenceError(ErrorCode.UNAVAILABLE, SEQUENCE_EXPIRED)
