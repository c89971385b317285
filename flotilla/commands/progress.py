"""What long commands say while they wait: one line a stage, rewritten on a terminal, appended in a log of CI."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from typing import IO

from flotilla.commands.terminal import visible
from flotilla.sdk.following import Step

# In a log, percents of the same message are said this often at most.
_LOG_SECONDS = 10.0
_MARKS = {"running": " ", "done": "+", "failed": "!"}


class Display:
    """Writes steps to ``stream``. ``kind``: ``terminal``, ``log``, ``json`` (JSON lines) or ``none``."""

    def __init__(self, stream: IO[str], kind: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._kind = kind
        self._clock = clock
        self._is_open = False
        self._last: tuple[str, str, str] | None = None
        self._said_at = 0.0
        self._links: set[str] = set()

    def tell(self, step: Step) -> None:
        """Show a step."""
        if self._kind == "json":
            document = {"event": "step", "stage": step.stage, "state": step.state, "message": step.message}
            document |= {"detail": step.detail} if step.detail else {}
            self._write(json.dumps({**document, "percent": step.percent, "link": step.link}) + "\n")
        elif self._kind == "terminal":
            self._rewrite(step)
        elif self._kind == "log":
            self._append(step)

    def close(self) -> None:
        """End a line that is still being rewritten."""
        if self._is_open:
            self._write("\n")
            self._is_open = False

    def _rewrite(self, step: Step) -> None:
        if self._is_open and self._last is not None and self._last[0] != step.stage:
            self.close()
        self._last = (step.stage, step.state, step.message)
        if step.link and step.link not in self._links:
            self._links.add(step.link)
            if self._is_open:
                self._write("\r\x1b[K")
            self._write(f"  {step.stage:<9} {step.link}\n")
        width = max(shutil.get_terminal_size().columns - 1, 20)
        self._write(f"\r\x1b[K{_line(step)[:width]}")
        self._is_open = True
        if step.state != "running":
            self.close()

    def _append(self, step: Step) -> None:
        now, key = self._clock(), (step.stage, step.state, step.message)
        if key == self._last and now - self._said_at < _LOG_SECONDS:
            return
        self._last, self._said_at = key, now
        link = ""
        if step.link and step.link not in self._links:
            self._links.add(step.link)
            link = f"  {step.link}"
        self._write(f"{_line(step)}{link}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _line(step: Step) -> str:
    percent = "" if step.percent is None or step.state != "running" else f"{step.percent:3d} %  "
    text = " ".join(f"{step.message}  {step.detail}".split())
    return visible(f"{_MARKS[step.state]} {step.stage:<9} {percent}{text}")
