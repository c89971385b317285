"""The node's side of the process that cleans up after it when it is killed; see ``guard_program``."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

_PROGRAM = Path(__file__).parent / "guard_program.py"


class Guard:
    """One small process for all workers of this one, started with the first. Safe on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_gone = False

    def add(self, pid: int, folder: str) -> None:
        """Note a worker, the leader of its process group, and its temporary folder."""
        self._say(f"add {pid} {folder}\n")

    def drop(self, pid: int) -> None:
        """Forget a worker that has ended and is cleaned up."""
        self._say(f"drop {pid}\n")

    def _say(self, line: str) -> None:
        with self._lock:
            if self._is_gone:
                return
            try:
                if self._process is None:
                    self._process = self._started()
                assert self._process.stdin is not None
                self._process.stdin.write(line.encode())
            except OSError as error:  # workers run without it; only a node that is killed leaves more behind
                self._is_gone = True
                log.warning("python.guard_lost", reason=str(error))

    @staticmethod
    def _started() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
            env={},
        )


GUARD = Guard()
