"""Which time buckets become coarser ones, and which go."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

KEEP: dict[int, timedelta] = {10: timedelta(hours=24), 60: timedelta(days=14), 3600: timedelta(days=400)}
STEPS: tuple[tuple[int, int], ...] = ((10, 60), (60, 3600))
LATENESS = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Window:
    """Buckets of ``source`` seconds in [start, end) are to be summed into one bucket of ``target`` seconds."""

    source: int
    target: int
    start: datetime
    end: datetime


def bucket_of(at: datetime, seconds: int) -> datetime:
    """Return the start of the bucket of that width in which ``at`` lies (UTC)."""
    raise NotImplementedError


def windows_due(
    now: datetime, *, newest: dict[int, datetime | None], oldest: dict[int, datetime | None]
) -> list[Window]:
    """Return the complete windows that have not been rolled up.

    ``newest[target]`` is the newest bucket that exists at that resolution, ``oldest[source]`` the oldest source bucket.
    """
    raise NotImplementedError


def resolution_for(span: timedelta, *, age: timedelta) -> int:
    """Return the finest kept resolution (seconds) that a chart of this span, starting this long ago, may use."""
    raise NotImplementedError
