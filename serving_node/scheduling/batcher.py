"""Which requests run together, and when. Pure: time is an argument in monotonic nanoseconds.

Source: Triton's dynamic batcher (core, dynamic_batch_scheduler.cc), as observed in its behaviour: batches count rows,
are never split out of a request, close at the maximum, at a preferred size, at a different shape, or after the delay.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from serving_node.core.request import InferenceRequest
from serving_node.scheduling.batch import Batch
from serving_node.scheduling.deadlines import GONE, CallerDeadlines
from serving_node.scheduling.policy import BatchPolicy
from serving_node.scheduling.queue import WAITING, PriorityQueue


class Poll:
    """What to do now. ``wake_at_ns`` is when polling again is useful although nothing else happens."""

    __slots__ = ("batches", "rejected", "wake_at_ns")

    # written out, not made by ``dataclass``: see core.request
    def __init__(self, rejected: list[InferenceRequest] | None = None) -> None:
        self.batches: list[Batch] = []
        self.rejected = [] if rejected is None else rejected
        self.wake_at_ns: int | None = None


class Batcher(Protocol):
    """How a scheduler turns requests into batches."""

    @property
    def pending(self) -> int:
        """How many requests wait."""

    def push(self, request: InferenceRequest, now_ns: int) -> None:
        """Take a request in. Raises InferenceError UNAVAILABLE when the queue is full."""

    def poll(self, now_ns: int, free_slots: int) -> Poll:
        """Return at most ``free_slots`` batches that must run now, and the requests whose time-out passed."""

    def due_ns(self, now_ns: int) -> int | None:
        """Return from when on a batch may run if no other request comes, None when nothing waits."""

    def cancel(self, request: InferenceRequest) -> bool:
        """Forget a waiting request. Returns False when it does not wait any more."""

    def take_all(self) -> list[InferenceRequest]:
        """Remove and return everything that waits."""


class SingleBatcher:
    """The default scheduler's rule: first come first served, each request alone.

    Priorities, time-outs and queue limits do not apply here, as in Triton; work whose caller waits no more is dropped.
    """

    def __init__(self) -> None:
        self._waiting: deque[InferenceRequest] = deque()
        self._callers = CallerDeadlines()
        self._live = 0
        self._tickets = 0

    @property
    def pending(self) -> int:
        """How many requests wait."""
        return self._live

    def push(self, request: InferenceRequest, now_ns: int) -> None:
        """Take a request in."""
        request.queued_ns = now_ns
        request.queue_state = WAITING
        self._waiting.append(request)
        self._live += 1
        if request.deadline_ns:
            self._callers.push(request, self._live)

    def poll(self, now_ns: int, free_slots: int) -> Poll:
        """Return the oldest requests, each as its own batch, and those whose callers have stopped waiting."""
        poll = Poll()
        callers = self._callers
        if callers.entries:
            for request in callers.due(now_ns):
                self.cancel(request)
                poll.rejected.append(request)
        while free_slots and self._waiting:
            request = self._waiting.popleft()
            if request.queue_state == GONE:
                continue
            request.queue_state = GONE
            self._live -= 1
            poll.batches.append(Batch([request], request.batch_size, self._tickets))
            self._tickets += 1
            free_slots -= 1
        if callers.entries:
            poll.wake_at_ns = callers.next_ns()
        return poll

    def due_ns(self, now_ns: int) -> int | None:
        """Return ``now_ns`` while something waits."""
        return now_ns if self._live else None

    def cancel(self, request: InferenceRequest) -> bool:
        """Forget a waiting request. Returns False when it does not wait any more."""
        if request.queue_state == GONE:
            return False
        request.queue_state = GONE
        self._live -= 1
        if len(self._waiting) > 2 * self._live + 64:
            self._waiting = deque(waiting for waiting in self._waiting if waiting.queue_state != GONE)
        return True

    def take_all(self) -> list[InferenceRequest]:
        """Remove and return everything that waits."""
        taken = [request for request in self._waiting if request.queue_state != GONE]
        for request in taken:
            request.queue_state = GONE
        self._waiting.clear()
        self._live = 0
        return taken


@dataclass(slots=True)
class _Gathered:
    """The requests at the head of the queue that could run as one batch."""

    count: int = 0
    rows: int = 0
    oldest_ns: int = 0
    best_count: int = 0
    best_rows: int = 0
    closed: bool = False


class DynamicBatcher:
    """Dynamic batching. ``delay_ns``: how long a batch waits for more requests; it may be set at any time."""

    def __init__(self, policy: BatchPolicy) -> None:
        self._policy = policy
        self.delay_ns = policy.max_queue_delay_ns
        self._queue = PriorityQueue(policy)
        self._largest_preferred = policy.largest_preferred
        self._tickets = 0

    @property
    def pending(self) -> int:
        """How many requests wait."""
        return len(self._queue)

    def push(self, request: InferenceRequest, now_ns: int) -> None:
        """Take a request in. Raises InferenceError UNAVAILABLE when its queue is full."""
        self._queue.push(request, now_ns)

    def poll(self, now_ns: int, free_slots: int) -> Poll:
        """Return at most ``free_slots`` batches that must run now, and the requests whose time-out passed.

        Shapes: rows of a batch <= max_batch_size, all requests of one ``batch_key``.
        """
        poll = Poll(rejected=self._queue.expire(now_ns))
        while free_slots:
            gathered = self._gather()
            if not gathered.count:
                break
            count, rows = self._decide(gathered, now_ns)
            if not count:
                poll.wake_at_ns = gathered.oldest_ns + self.delay_ns
                break
            poll.batches.append(Batch(self._queue.take(count), rows, self._tickets))
            self._tickets += 1
            free_slots -= 1
        rejection_ns = self._queue.next_rejection_ns()
        if rejection_ns is not None:
            poll.wake_at_ns = rejection_ns if poll.wake_at_ns is None else min(poll.wake_at_ns, rejection_ns)
        return poll

    def due_ns(self, now_ns: int) -> int | None:
        """Return from when on a batch may run if no other request comes, None when nothing waits."""
        gathered = self._gather()
        if not gathered.count:
            return None
        return now_ns if self._decide(gathered, now_ns)[0] else gathered.oldest_ns + self.delay_ns

    def cancel(self, request: InferenceRequest) -> bool:
        """Forget a waiting request. Returns False when it does not wait any more."""
        return self._queue.cancel(request)

    def take_all(self) -> list[InferenceRequest]:
        """Remove and return everything that waits."""
        return self._queue.take(len(self._queue))

    def _gather(self) -> _Gathered:
        """Walk the queue until the batch cannot grow, remembering the largest preferred size on the way."""
        found = _Gathered()
        maximum, largest = self._policy.max_batch_size, self._largest_preferred
        preferred = self._policy.preferred_sizes
        count = rows = 0
        key = None
        for request in self._queue.walk():
            size = request.batch_size or 1  # no rows still cost a place
            if count:
                if rows + size > largest and not found.best_count:
                    # no preferred size can be reached any more: what is there counts as one
                    found.best_count, found.best_rows = count, rows
                if rows + size > maximum or request.batch_key != key:
                    found.closed = True
                    break
                found.oldest_ns = min(found.oldest_ns, request.queued_ns)
            else:
                key, found.oldest_ns = request.batch_key, request.queued_ns
            count += 1
            rows += size
            if rows in preferred:
                found.best_count, found.best_rows = count, rows
            if rows >= maximum:
                break
        found.count, found.rows = count, rows
        return found

    def _decide(self, found: _Gathered, now_ns: int) -> tuple[int, int]:
        """Return how many requests, and rows, run now; (0, 0) means wait for more."""
        delay = self.delay_ns
        delay_is_over = delay > 0 and now_ns - found.oldest_ns >= delay
        if found.best_count and not delay_is_over:
            return found.best_count, found.best_rows
        if found.closed or found.rows >= self._largest_preferred or delay_is_over or not delay:
            return found.count, found.rows
        return 0, 0
