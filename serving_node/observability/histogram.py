"""A latency histogram that merges without loss: exponential buckets of Prometheus' native histograms, schema 3.

Bucket ``i`` holds durations in (2^((i-1)/8), 2^(i/8)] seconds, so a percentile is off by at most 9 %.
Source: Prometheus' native histograms (client_model, Histogram.schema).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

SCHEMA = 3
ZERO_THRESHOLD = 2.0**-128

_FRACTION_BOUNDS = np.array([2.0 ** (step / 8 - 1) for step in range(8)])
_SECONDS_PER_NS = 1e-9
# Durations are sorted into buckets this many at a time: one by one costs ten times as much for each request.
_FOLD_AT = 1024

# Upper bounds for the text format, which has no native histograms. Powers of two are bounds of schema 3 as well, so
# both formats are made of the same counts: 61 microseconds to 64 seconds.
CLASSIC_BOUNDS = tuple((exponent * 8, 2.0**exponent) for exponent in range(-14, 7))


class LatencyHistogram:
    """Durations of one kind. Units: nanoseconds in, seconds out.

    Concurrency: written by the event loop only; ``snapshot`` may be called on any thread. ``_state`` is what is sorted
    into buckets, never changed, and the list of what is not, only appended to; both are replaced in one step.
    """

    __slots__ = ("_state",)

    def __init__(self) -> None:
        pending: list[int] = []
        self._state = (HistogramSnapshot({}, 0, 0.0), pending)

    def observe(self, duration_ns: int) -> None:
        """Count a duration."""
        pending = self._state[1]
        pending.append(duration_ns)
        if len(pending) >= _FOLD_AT:
            self._fold()

    def observe_all(self, durations_ns: Sequence[int]) -> None:
        """Count each of the durations."""
        pending = self._state[1]
        pending.extend(durations_ns)
        if len(pending) >= _FOLD_AT:
            self._fold()

    def _fold(self) -> None:
        folded, pending = self._state
        self._state = (folded.plus(_sorted_into_buckets(pending)), [])

    def snapshot(self) -> HistogramSnapshot:
        """Return a consistent copy."""
        folded, pending = self._state
        return folded.plus(_sorted_into_buckets(pending[:]))


def _sorted_into_buckets(durations_ns: Sequence[int]) -> HistogramSnapshot:
    seconds = np.array(durations_ns, dtype=np.float64) * _SECONDS_PER_NS
    positive = seconds[seconds > 0]
    fractions, exponents = np.frexp(positive)
    indexes = np.searchsorted(_FRACTION_BOUNDS, fractions) + (exponents - 1) * 8
    found, counts = np.unique(indexes, return_counts=True)
    buckets = dict(zip(found.tolist(), counts.tolist(), strict=True))
    return HistogramSnapshot(buckets, len(seconds) - len(positive), float(positive.sum()))


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
