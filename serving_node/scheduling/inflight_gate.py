"""How many requests of one ensemble may be in one of its steps at a time (``max_inflight_requests``). Pure.

Who finds a step full waits, first come first served; nobody waits longer than the gate's patience, as in Triton.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class InflightGate(Generic[T]):
    """The door of one step. Units: monotonic nanoseconds."""

    def __init__(self, limit: int, patience_ns: int) -> None:
        self._limit = limit
        self._patience_ns = patience_ns
        self._waiting: deque[tuple[int, T]] = deque()
        self.inside = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, item: T, now_ns: int) -> bool:
        """Let an item in, or keep it waiting and return False: ``leave`` or ``overdue`` gives it back."""
        if self.inside < self._limit and not self._waiting:
            self.inside += 1
            return True
        self._waiting.append((now_ns + self._patience_ns, item))
        return False

    def leave(self) -> T | None:
        """Note that one went out; return who goes in instead, None when nobody does."""
        self.inside -= 1
        if self._waiting and self.inside < self._limit:
            self.inside += 1
            return self._waiting.popleft()[1]
        return None

    def overdue(self, now_ns: int) -> list[T]:
        """Let in those that waited too long, although the step is full, and return them."""
        late: list[T] = []
        while self._waiting and self._waiting[0][0] <= now_ns:
            late.append(self._waiting.popleft()[1])
        self.inside += len(late)
        return late

    def withdraw(self, item: T) -> None:
        """Forget somebody who waits."""
        self._waiting = deque(entry for entry in self._waiting if entry[1] is not item)

    def due_ns(self) -> int | None:
        """Return when somebody will have waited too long, None when nobody waits."""
        return self._waiting[0][0] if self._waiting else None
