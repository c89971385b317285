"""What a server's processes spend of the processors."""

from __future__ import annotations

import contextlib
import json
import urllib.request
from dataclasses import dataclass, field

import psutil


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and of all its children that live, user and system, in seconds."""
    total = 0.0
    process = psutil.Process(pid)
    for one in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total += times.user + times.system
    return total


@dataclass
class CpuMeter:
    """CPU microseconds per request of the server at HTTP ``port`` since the meter was made.

    Requests are those that the server itself counts for ``model``, so everything a load generator sends is in.
    """

    pid: int
    port: int
    model: str
    _seconds: float = field(init=False)
    _requests: int = field(init=False)

    def __post_init__(self) -> None:
        self._seconds, self._requests = cpu_seconds(self.pid), self._count()

    def microseconds_per_request(self) -> float:
        """Return the mean since the start; not a number when nothing was asked."""
        requests = self._count() - self._requests
        return (cpu_seconds(self.pid) - self._seconds) * 1e6 / requests if requests else float("nan")

    def _count(self) -> int:
        url = f"http://127.0.0.1:{self.port}/v2/models/{self.model}/stats"
        with urllib.request.urlopen(url, timeout=10) as response:
            rows = json.load(response)["model_stats"]
        return sum(int(row["inference_stats"]["success"]["count"]) for row in rows)
