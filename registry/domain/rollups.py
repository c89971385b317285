"""Which time buckets become coarser ones, and which go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

KEEP: dict[int, timedelta] = {10: timedelta(hours=24), 60: timedelta(days=14), 3600: timedelta(days=400)}
STEPS: tuple[tuple[int, int], ...] = ((10, 60), (60, 3600))
LATENESS = timedelta(seconds=30)


# The most source time that one pass reads at once.
_CHUNK = {60: timedelta(hours=2), 3600: timedelta(days=2)}


@dataclass(frozen=True, slots=True)
class Window:
    """Rows of ``source`` seconds in [start, end) are to be summed into buckets of ``target`` seconds."""

    source: int
    target: int
    start: datetime
    end: datetime


def bucket_of(at: datetime, seconds: int) -> datetime:
    """Return the start of the bucket of that width in which ``at`` lies (UTC)."""
    stamp = int(at.timestamp())
    return datetime.fromtimestamp(stamp - stamp % seconds, tz=UTC)


def windows_due(
    now: datetime, *, newest: Mapping[int, datetime | None], oldest: Mapping[int, datetime | None]
) -> list[Window]:
    """Return the complete windows that have not been rolled up, oldest first.

    ``newest[target]`` is the newest bucket that exists at that resolution, ``oldest[source]`` the oldest source bucket.
    Finer steps come first: a coarse one reads what they make.
    """
    windows = []
    for source, target in STEPS:
        first, done = oldest.get(source), newest.get(target)
        end = bucket_of(now - LATENESS, target)
        if first is None:
            continue
        start = bucket_of(first, target)
        if done is not None:
            start = max(start, done + timedelta(seconds=target))
        while start < end:
            stop = min(end, start + _CHUNK[target])
            windows.append(Window(source, target, start, stop))
            start = stop
    return windows


def resolution_for(span: timedelta, *, age: timedelta) -> int:
    """Return the finest kept resolution (seconds) that a chart of this span, starting this long ago, may use.

    More than two thousand buckets are never read for one line.
    """
    for seconds, kept in sorted(KEEP.items()):
        if age <= kept and span.total_seconds() / seconds <= 2000:
            return seconds
    return max(KEEP)
