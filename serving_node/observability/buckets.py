"""A histogram with the bounds that somebody asks for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BucketSnapshot:
    """``rows`` are (upper bound, cumulative count) without +Inf."""

    rows: tuple[tuple[float, int], ...]
    count: int
    total: float


class BucketHistogram:
    """Values in buckets. Written on the event loop; ``snapshot`` on any thread sees each count whole."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(sorted(set(bounds)))
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def snapshot(self) -> BucketSnapshot:
        """Return the counts."""
        counts, total = self._counts[:], self._total
        seen = 0
        rows: list[tuple[float, int]] = []
        for bound, count in zip(self._bounds, counts, strict=False):
            seen += count
            rows.append((bound, seen))
        return BucketSnapshot(tuple(rows), sum(counts), total)
