"""When callers stop waiting for queued requests, whatever the model's policy says. Pure.

Requests that leave the queue otherwise are skipped lazily; they never outnumber the living by more than a constant.
"""

from __future__ import annotations

import heapq

from serving_node.core.request import InferenceRequest

# ``InferenceRequest.queue_state`` of a request that does not wait any more.
GONE = 0

_DEAD_SLACK = 64


class CallerDeadlines:
    """Requests of one queue that have a deadline, the next one first. Ask only when there are ``entries``."""

    __slots__ = ("_pushed", "entries")

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, InferenceRequest]] = []
        self._pushed = 0

    def push(self, request: InferenceRequest, waiting: int) -> None:
        """Note a request that has a deadline. ``waiting``: how many requests the queue has."""
        self._pushed += 1
        heapq.heappush(self.entries, (request.deadline_ns, self._pushed, request))
        # requests that were taken leave their entry behind; long deadlines must not pile them (and tensors) up
        if len(self.entries) > 2 * waiting + _DEAD_SLACK:
            self.entries = [entry for entry in self.entries if entry[2].queue_state != GONE]
            heapq.heapify(self.entries)

    def due(self, now_ns: int) -> list[InferenceRequest]:
        """Remove and return the requests that still wait although their deadline is reached."""
        due: list[InferenceRequest] = []
        entries = self.entries
        while entries and entries[0][0] <= now_ns:
            request = heapq.heappop(entries)[2]
            if request.queue_state != GONE:
                due.append(request)
        return due

    def next_ns(self) -> int | None:
        """Return the next deadline of a request that waits."""
        entries = self.entries
        while entries and entries[0][2].queue_state == GONE:
            heapq.heappop(entries)
        return entries[0][0] if entries else None
