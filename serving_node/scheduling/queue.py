"""Requests that wait, by priority and arrival, with time-outs and cancellation. Pure: time is an argument.

State of a request while it is here (``InferenceRequest.queue_state``):

    GONE -> WAITING            push
    WAITING -> DELAYED         its time-out passed and the action is DELAY
    WAITING, DELAYED -> GONE   taken into a batch, rejected, or cancelled

Requests that leave from the middle are skipped lazily, so that cancelling is O(1); dead entries never outnumber
the living by more than a constant.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import request_error
from serving_node.core.request import InferenceRequest
from serving_node.scheduling.deadlines import GONE, CallerDeadlines
from serving_node.scheduling.policy import BatchPolicy, QueuePolicy, TimeoutAction

WAITING, DELAYED = 1, 2

_DEAD_SLACK = 64


class LevelQueue:
    """The queue of one priority level."""

    __slots__ = ("_dead", "_delayed", "_pushed", "_ready", "_reject", "_shortened", "_usual", "live", "policy")

    def __init__(self, policy: QueuePolicy) -> None:
        self.policy = policy
        self.live = 0
        self._reject = policy.timeout_action is TimeoutAction.REJECT
        self._ready: deque[InferenceRequest] = deque()
        self._delayed: deque[InferenceRequest] = deque()
        # with the level's own time-out requests are due in the order of arrival; only those that shortened it are not
        self._usual: deque[InferenceRequest] = deque()
        self._shortened: list[tuple[int, int, InferenceRequest]] = []
        self._dead = 0
        self._pushed = 0

    def push(self, request: InferenceRequest, now_ns: int) -> None:
        """Append a request. Raises InferenceError UNAVAILABLE when the level is full."""
        policy = self.policy
        if policy.max_queue_size and self.live >= policy.max_queue_size:
            raise request_error(ErrorCode.UNAVAILABLE, request.id, "Exceeds maximum queue size")
        request.queued_ns = now_ns
        request.queue_state = WAITING
        if policy.default_timeout_ns:
            timeout_ns = policy.timeout_ns(request.timeout_us)
            request.queue_deadline_ns = now_ns + timeout_ns
            if timeout_ns == policy.default_timeout_ns:
                self._usual.append(request)
            else:
                self._pushed += 1
                heapq.heappush(self._shortened, (request.queue_deadline_ns, self._pushed, request))
            # taken requests leave their deadline behind; long time-outs must not pile them (and tensors) up
            if len(self._usual) + len(self._shortened) > 2 * self.live + _DEAD_SLACK:
                self._compact_deadlines()
        self._ready.append(request)
        self.live += 1

    def walk(self) -> Iterator[InferenceRequest]:
        """Yield live requests in the order in which they should run, without taking them."""
        for request in self._ready:
            if request.queue_state == WAITING:
                yield request
        for request in self._delayed:
            if request.queue_state == DELAYED:
                yield request

    def take(self, count: int, into: list[InferenceRequest]) -> int:
        """Move up to ``count`` requests, in the order of ``walk``, to the end of ``into``; return how many."""
        before = len(into)
        for pending, state in ((self._ready, WAITING), (self._delayed, DELAYED)):
            while pending and len(into) - before < count:
                request = pending.popleft()
                if request.queue_state == state:
                    request.queue_state = GONE
                    into.append(request)
                else:
                    self._dead -= 1
        taken = len(into) - before
        self.live -= taken
        return taken

    def cancel(self, request: InferenceRequest) -> None:
        """Forget a request that is in this queue."""
        request.queue_state = GONE
        self.live -= 1
        self._bury(1)

    def expire(self, now_ns: int, rejected: list[InferenceRequest]) -> None:
        """Apply time-outs that are due: rejected requests go to the end of ``rejected``."""
        while (request := self._next_due()) is not None and request.queue_deadline_ns <= now_ns:
            if self._reject:
                request.queue_state = GONE
                self.live -= 1
                rejected.append(request)
            else:
                request.queue_state = DELAYED
                self._delayed.append(request)
            self._bury(1)

    def next_rejection_ns(self) -> int | None:
        """Return when the next request will be rejected if it still waits."""
        request = self._next_due() if self._reject else None
        return None if request is None else request.queue_deadline_ns

    def _next_due(self) -> InferenceRequest | None:
        """Return the request in time whose time-out ends first. Forgets those before it that have left."""
        usual, shortened = self._usual, self._shortened
        while usual and usual[0].queue_state != WAITING:
            usual.popleft()
        while shortened and shortened[0][2].queue_state != WAITING:
            heapq.heappop(shortened)
        if not shortened:
            return usual[0] if usual else None
        if usual and usual[0].queue_deadline_ns <= shortened[0][0]:
            return usual[0]
        return shortened[0][2]

    def _bury(self, count: int) -> None:
        self._dead += count
        if self._dead > self.live + _DEAD_SLACK:
            self._ready = deque(request for request in self._ready if request.queue_state == WAITING)
            self._delayed = deque(request for request in self._delayed if request.queue_state == DELAYED)
            self._dead = 0
            self._compact_deadlines()

    def _compact_deadlines(self) -> None:
        self._usual = deque(request for request in self._usual if request.queue_state == WAITING)
        self._shortened = [entry for entry in self._shortened if entry[2].queue_state == WAITING]
        heapq.heapify(self._shortened)


class PriorityQueue:
    """All levels of one model. Requests of a more urgent level run first; delayed ones after those of their level."""

    __slots__ = ("_by_priority", "_callers", "_levels", "_timed")

    def __init__(self, policy: BatchPolicy) -> None:
        self._levels = tuple(LevelQueue(level) for level in policy.levels)
        self._by_priority = policy.level_index
        self._timed = tuple(level for level in self._levels if level.policy.default_timeout_ns)
        self._callers = CallerDeadlines()

    def __len__(self) -> int:
        return sum(level.live for level in self._levels)

    def push(self, request: InferenceRequest, now_ns: int) -> None:
        """Append a request to its level. Raises InferenceError UNAVAILABLE when the level is full."""
        self._levels[self._by_priority(request.priority)].push(request, now_ns)
        if request.deadline_ns:
            self._callers.push(request, len(self))

    def walk(self) -> Iterator[InferenceRequest]:
        """Yield live requests in the order in which they should run, without taking them."""
        if len(self._levels) == 1:
            return self._levels[0].walk()
        return (request for level in self._levels for request in level.walk())

    def take(self, count: int) -> list[InferenceRequest]:
        """Remove and return the first ``count`` requests of ``walk``."""
        taken: list[InferenceRequest] = []
        for level in self._levels:
            count -= level.take(count, taken)
            if not count:
                break
        return taken

    def cancel(self, request: InferenceRequest) -> bool:
        """Forget a request. Returns False when it does not wait here any more."""
        if request.queue_state == GONE:
            return False
        self._levels[self._by_priority(request.priority)].cancel(request)
        return True

    def expire(self, now_ns: int) -> list[InferenceRequest]:
        """Apply time-outs that are due and return the rejected requests."""
        rejected: list[InferenceRequest] = []
        for level in self._timed:
            level.expire(now_ns, rejected)
        if self._callers.entries:
            for request in self._callers.due(now_ns):
                self.cancel(request)
                rejected.append(request)
        return rejected

    def next_rejection_ns(self) -> int | None:
        """Return when the next request will be rejected if it still waits."""
        times = [time for level in self._timed if (time := level.next_rejection_ns()) is not None]
        if self._callers.entries and (caller_ns := self._callers.next_ns()) is not None:
            times.append(caller_ns)
        return min(times, default=None)
