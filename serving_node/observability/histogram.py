"""A latency histogram that merges without loss: exponential buckets of Prometheus' native histograms, schema 3.

Bucket ``i`` holds durations in (2^((i-1)/8), 2^(i/8)] seconds, so a percentile is off by at most 9 %.
Source: Prometheus' native histograms (client_model, Histogram.schema).
"""

from __future__ import annotations

from bisect import bisect_left
from math import frexp

SCHEMA = 3
ZERO_THRESHOLD = 2.0**-128

_FRACTION_BOUNDS = tuple(2.0 ** (step / 8 - 1) for step in range(8))
_SECONDS_PER_NS = 1e-9

# Upper bounds for the text format, which has no native histograms. Powers of two are bounds of schema 3 as well, so
# both formats are made of the same counts: 61 microseconds to 64 seconds.
CLASSIC_BOUNDS = tuple((exponent * 8, 2.0**exponent) for exponent in range(-14, 7))


class LatencyHistogram:
    """Durations of one kind. Units: nanoseconds in, seconds out.

    Concurrency: written by the event loop only; ``snapshot`` may be called on any thread.
    """

    __slots__ = ("_buckets", "_count", "_sum_ns", "_zeros")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self._zeros = 0
        self._count = 0
        self._sum_ns = 0

    def observe(self, duration_ns: int, times: int = 1) -> None:
        """Count a duration ``times`` times."""
        self._count += times
        if duration_ns <= 0:
            self._zeros += times
            return
        self._sum_ns += duration_ns * times
        fraction, exponent = frexp(duration_ns * _SECONDS_PER_NS)
        index = bisect_left(_FRACTION_BOUNDS, fraction) + (exponent - 1) * 8
        buckets = self._buckets
        buckets[index] = buckets.get(index, 0) + times

    def snapshot(self) -> HistogramSnapshot:
        """Return a consistent copy."""
        buckets = dict(self._buckets)  # one step under the interpreter's lock
        return HistogramSnapshot(buckets, self._zeros, self._sum_ns * _SECONDS_PER_NS)


class HistogramSnapshot:
    """Counts at one moment. ``buckets`` maps the index of schema 3 to its own (not cumulative) count."""

    __slots__ = ("buckets", "count", "sum_seconds", "zeros")

    def __init__(self, buckets: dict[int, int], zeros: int, sum_seconds: float) -> None:
        self.buckets = buckets
        self.zeros = zeros
        self.count = zeros + sum(buckets.values())
        self.sum_seconds = sum_seconds

    def plus(self, other: HistogramSnapshot) -> HistogramSnapshot:
        """Return both together; exact, because all histograms have the same buckets."""
        buckets = dict(self.buckets)
        for index, count in other.buckets.items():
            buckets[index] = buckets.get(index, 0) + count
        return HistogramSnapshot(buckets, self.zeros + other.zeros, self.sum_seconds + other.sum_seconds)

    def classic(self) -> list[tuple[float, int]]:
        """Return (upper bound in seconds, cumulative count) for each classic bucket, without +Inf."""
        rows: list[tuple[float, int]] = []
        total = self.zeros
        remaining = sorted(self.buckets.items())
        position = 0
        for last_index, bound in CLASSIC_BOUNDS:
            while position < len(remaining) and remaining[position][0] <= last_index:
                total += remaining[position][1]
                position += 1
            rows.append((bound, total))
        return rows

    def spans(self) -> tuple[list[tuple[int, int]], list[int]]:
        """Return spans (offset, length) and deltas of the positive buckets, as the protobuf format wants them."""
        spans: list[tuple[int, int]] = []
        deltas: list[int] = []
        previous_index: int | None = None
        previous_count = 0
        for index, count in sorted(self.buckets.items()):
            if previous_index is None:
                spans.append((index, 1))
            elif index == previous_index + 1:
                spans[-1] = (spans[-1][0], spans[-1][1] + 1)
            else:
                spans.append((index - previous_index - 1, 1))
            deltas.append(count - previous_count)
            previous_index, previous_count = index, count
        return spans, deltas
