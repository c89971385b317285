"""How fast a body has to come: pure bookkeeping over times that the caller reads off a monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass, field


class TooSlow(TimeoutError):
    """A body came slower than it has to. ``code`` says how: ``idle`` nothing came, ``too_slow`` too little."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(slots=True)
class Pace:
    """The pace of one body: so many bytes in every window, and all of it by a deadline.

    Only the time during which somebody waits for bytes fills a window, so that a disk that is slow is not held against
    the client; everything counts towards the deadline. Units: seconds, bytes per second.
    """

    least_rate: int
    window_seconds: float
    deadline: float
    _waited: float = field(default=0.0, init=False)
    _arrived: int = field(default=0, init=False)
    _since: float | None = field(default=None, init=False)

    def wait(self, now: float) -> None:
        """Somebody waits for bytes from now on."""
        self._since = now

    def rest(self, arrived: int, now: float) -> None:
        """Nobody waits any more; ``arrived`` bytes came meanwhile."""
        self._waited += self._waiting(now)
        self._arrived += arrived
        self._since = None

    def seconds_left(self, now: float) -> float:
        """Return when to look again: at the end of the window or at the deadline, whichever is first."""
        in_window = self.window_seconds - self._waited - self._waiting(now)
        return max(0.0, min(in_window, self.deadline - now))

    def look(self, arrived: int, now: float) -> TooSlow | None:
        """Return how the body is too slow, if it is; ``arrived`` bytes came since ``wait``.

        The window that is over makes room for the next one.
        """
        if now >= self.deadline:
            return TooSlow("too_slow")
        if self._waited + self._waiting(now) < self.window_seconds:
            return None
        came = self._arrived + arrived
        if came < self.least_rate * self.window_seconds:
            return TooSlow("too_slow" if came > 0 else "idle")
        self._waited, self._arrived = 0.0, -arrived
        self._since = None if self._since is None else now
        return None

    def _waiting(self, now: float) -> float:
        return 0.0 if self._since is None else now - self._since
