"""Sparse mergeable histograms with exponential buckets: percentiles that can be added up and rolled up.

Bucket ``i`` counts values in ``(base**(i-1), base**i]`` with base = 2 ** (2 ** -schema); schema 3 gives 8 buckets a
doubling, so a quantile is off by at most 9 %. Source: Prometheus native histograms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

SCHEMA = 3
_BUCKETS_PER_DOUBLING = 8  # 2 ** SCHEMA
BASE = 2.0 ** (1.0 / _BUCKETS_PER_DOUBLING)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts by bucket index, of seconds. ``zero`` counts values too small for a bucket; ``total`` is their sum."""

    counts: Mapping[int, int] = field(default_factory=dict)
    zero: int = 0
    total: float = 0.0

    @property
    def count(self) -> int:
        """How many values there are."""
        return self.zero + sum(self.counts.values())

    @property
    def mean(self) -> float | None:
        """Mean of the values in seconds; None when there are none."""
        count = self.count
        return self.total / count if count else None


EMPTY = Histogram()


def bucket_index(value: float) -> int:
    """Return the bucket of a positive value."""
    return math.ceil(math.log2(value) * _BUCKETS_PER_DOUBLING)


def bucket_bound(index: int) -> float:
    """Return the upper bound of a bucket."""
    return float(2.0 ** (index / _BUCKETS_PER_DOUBLING))


def of_values(values: Iterable[float]) -> Histogram:
    """Return the histogram of some values in seconds; values of zero or less count as zero."""
    raise NotImplementedError


def of_classic(bounds: Mapping[float, int], total: float) -> Histogram:
    """Return the histogram of classic buckets: upper bound -> cumulative count (``inf`` included).

    A classic bucket's values are put at its upper bound (at the last finite bound for the open bucket).
    """
    raise NotImplementedError


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """Return the sum of histograms; the order does not matter."""
    raise NotImplementedError


def difference(newer: Histogram, older: Histogram) -> Histogram:
    """Return what was added between two readings of a counter; ``newer`` itself when the counter was reset."""
    raise NotImplementedError


def quantile(histogram: Histogram, q: float) -> float | None:
    """Return the value (seconds) below which a share ``q`` (0..1) of the values lies; None for an empty histogram."""
    raise NotImplementedError


def encode(histogram: Histogram) -> bytes:
    """Return the compact form for a ``bytea`` column; empty bytes for an empty histogram."""
    raise NotImplementedError


def decode(data: bytes | memoryview) -> Histogram:
    """Read the compact form.

    Raises:
        ValueError: the bytes are not an encoded histogram.
    """
    raise NotImplementedError
