"""Sparse mergeable histograms with exponential buckets: percentiles that can be added up and rolled up.

Bucket ``i`` counts values in ``(base**(i-1), base**i]`` with base = 2 ** (2 ** -schema); schema 3 gives 8 buckets a
doubling, so a quantile is off by at most 9 %. Source: Prometheus native histograms.
"""

from __future__ import annotations

import math
import struct
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
_VERSION = 1
# Below a nanosecond nothing is measured.
_SMALLEST = 1e-9


def bucket_index(value: float) -> int:
    """Return the bucket of a positive value."""
    return math.ceil(math.log2(value) * _BUCKETS_PER_DOUBLING)


def bucket_bound(index: int) -> float:
    """Return the upper bound of a bucket."""
    return float(2.0 ** (index / _BUCKETS_PER_DOUBLING))


def of_values(values: Iterable[float]) -> Histogram:
    """Return the histogram of some values in seconds; values of zero or less count as zero."""
    counts: dict[int, int] = {}
    zero, total = 0, 0.0
    for value in values:
        total += max(value, 0.0)
        if value <= _SMALLEST:
            zero += 1
        else:
            index = bucket_index(value)
            counts[index] = counts.get(index, 0) + 1
    return Histogram(counts, zero, total)


def of_classic(bounds: Mapping[float, int], total: float) -> Histogram:
    """Return the histogram of classic buckets: upper bound -> cumulative count (``inf`` included).

    A classic bucket's values are put at its upper bound (at the last finite bound for the open bucket).
    """
    counts: dict[int, int] = {}
    zero, before, last = 0, 0, 0.0
    for bound in sorted(bounds):
        inside = bounds[bound] - before
        before = bounds[bound]
        place = last if math.isinf(bound) else bound
        last = place
        if inside <= 0:
            continue
        if place <= _SMALLEST:
            zero += inside
        else:
            index = bucket_index(place)
            counts[index] = counts.get(index, 0) + inside
    return Histogram(counts, zero, total)


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """Return the sum of histograms; the order does not matter."""
    counts: dict[int, int] = {}
    zero, total = 0, 0.0
    for histogram in histograms:
        zero += histogram.zero
        total += histogram.total
        for index, count in histogram.counts.items():
            counts[index] = counts.get(index, 0) + count
    return Histogram(counts, zero, total)


def difference(newer: Histogram, older: Histogram) -> Histogram:
    """Return what was added between two readings of a counter; ``newer`` itself when the counter was reset."""
    if newer.zero < older.zero or any(newer.counts.get(index, 0) < count for index, count in older.counts.items()):
        return newer
    counts = {index: count - older.counts.get(index, 0) for index, count in newer.counts.items()}
    return Histogram(
        {index: count for index, count in counts.items() if count},
        newer.zero - older.zero,
        max(0.0, newer.total - older.total),
    )


def quantile(histogram: Histogram, q: float) -> float | None:
    """Return the value (seconds) below which a share ``q`` (0..1) of the values lies; None for an empty histogram.

    Inside a bucket values are taken to lie evenly on the logarithmic scale. Source: Prometheus histogram_quantile.
    """
    if not 0.0 <= q <= 1.0:
        raise ValueError("a quantile lies between 0 and 1")
    count = histogram.count
    if not count:
        return None
    rank = q * count
    seen = float(histogram.zero)
    if rank <= seen and histogram.zero:
        return 0.0
    indexes = sorted(histogram.counts)
    for index in indexes:
        inside = histogram.counts[index]
        if seen + inside >= rank:
            share = max(0.0, rank - seen) / inside
            return float(bucket_bound(index - 1) * BASE**share)
        seen += inside
    return bucket_bound(indexes[-1])


def encode(histogram: Histogram) -> bytes:
    """Return the compact form for a ``bytea`` column; empty bytes for an empty histogram.

    A version byte, the sum (8 bytes), then variable-length numbers: zero count, then for each bucket in order the
    step from the index before (zigzag) and the count.
    """
    if not histogram.zero and not any(histogram.counts.values()):
        return b""
    out = bytearray([_VERSION])
    out += struct.pack("<d", histogram.total)
    _put(out, histogram.zero)
    before = 0
    for index in sorted(histogram.counts):
        if not histogram.counts[index]:
            continue
        step = index - before
        before = index
        _put(out, step * 2 if step >= 0 else -step * 2 - 1)
        _put(out, histogram.counts[index])
    return bytes(out)


def decode(data: bytes | memoryview) -> Histogram:
    """Read the compact form.

    Raises:
        ValueError: the bytes are not an encoded histogram.
    """
    data = bytes(data)
    if not data:
        return EMPTY
    if data[0] != _VERSION or len(data) < 10:
        raise ValueError("not an encoded histogram")
    (total,) = struct.unpack_from("<d", data, 1)
    zero, at = _take(data, 9)
    counts: dict[int, int] = {}
    index = 0
    while at < len(data):
        step, at = _take(data, at)
        count, at = _take(data, at)
        index += (step >> 1) ^ -(step & 1)
        counts[index] = count
    return Histogram(counts, zero, total)


def _put(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _take(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("not an encoded histogram")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
