"""How far an upload is: all files together, with the rate of the last seconds and the time that is left."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from flotilla.sdk.following import Step
from flotilla.sdk.quantities import counted, size, size_of

# The rate is that of the last so many seconds.
_WINDOW_SECONDS = 10.0
_SHOWN_EVERY = 0.1


class UploadBar:
    """Called as ``progress(path, sent, total)``, from any thread; ``tell`` is called by one at a time.

    The first call for a path says what is there already; that does not count for the rate.
    """

    def __init__(
        self, sizes: Iterable[int], tell: Callable[[Step], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        sizes = list(sizes)
        self._count, self._total = len(sizes), sum(sizes)
        self._tell = tell
        self._clock = clock
        self._lock = threading.Lock()
        self._sent: dict[str, int] = {}
        self._whole: set[str] = set()
        self._there = 0
        self._points: deque[tuple[float, int]] = deque()
        self._shown_at = float("-inf")

    def __call__(self, path: str, sent: int, total: int) -> None:
        """Note that ``sent`` of ``total`` bytes of a file are on the server."""
        with self._lock:
            now = self._clock()
            if path not in self._sent:
                self._there += sent
            self._sent[path] = sent
            if sent >= total:
                self._whole.add(path)
            done = sum(self._sent.values())
            self._points.append((now, done - self._there))
            while len(self._points) > 2 and now - self._points[1][0] >= _WINDOW_SECONDS:
                self._points.popleft()
            is_end = len(self._whole) == self._count
            if is_end or now - self._shown_at >= _SHOWN_EVERY:
                self._shown_at = now
                self._tell(self._step(done))

    def _step(self, done: int) -> Step:
        percent = done * 100 // max(self._total, 1)
        words = [size_of(done, self._total)]
        (first, before), (last, after) = self._points[0], self._points[-1]
        if last > first and after > before:
            rate = (after - before) / (last - first)
            words.append(f"{size(rate)}/s")
            if done < self._total:
                words.append(f"{_minutes((self._total - done) / rate)} left")
        message = f"{len(self._whole)} of {counted(self._count, 'file')}"
        return Step("upload", "running", message, percent, detail=", ".join(words))


def _minutes(seconds: float) -> str:
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    text = f"{rest // 60:02d}:{rest % 60:02d}"
    return f"{hours}:{text}" if hours else text.removeprefix("0")
