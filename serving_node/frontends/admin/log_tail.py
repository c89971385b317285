"""The last log lines of this process, for people who look through the control plane."""

from __future__ import annotations

import logging
from collections import deque


class LogTail(logging.Handler):
    """Keeps the newest ``capacity`` formatted lines in memory, each cut at ``line_limit`` characters."""

    def __init__(self, capacity: int = 2000, line_limit: int = 4000) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=capacity)
        self._line_limit = line_limit

    def emit(self, record: logging.LogRecord) -> None:
        """Called by logging, from any thread."""
        try:
            self._lines.append(self.format(record)[: self._line_limit])
        except Exception:
            self.handleError(record)

    def tail(self, count: int) -> list[str]:
        """Return the newest ``count`` lines, oldest first."""
        lines = list(self._lines)
        return lines[-count:] if count > 0 else []
