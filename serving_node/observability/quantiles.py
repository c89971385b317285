"""Quantiles of the last minute: what Prometheus' clients call a summary.

Counts sit in buckets whose bounds grow by 2 %, so that a quantile is off by at most 1 % of its value whatever the rank;
a minute is five slots, of which the oldest is forgotten every twelve seconds. Memory is bounded by the buckets between
a microsecond and an hour, about 1100 for each slot. (Prometheus' C++ client bounds the error of the rank instead.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_GROWTH = math.log(1.02)
# The middle of a bucket, as a factor of its upper bound: half a growth below it.
_MIDDLE = 2 / (1 + 1.02)
_SLOTS = 5
_SLOT_NS = 12_000_000_000
_FOLD_AT = 1024
_ZERO_BUCKET = -(2**31)


@dataclass(frozen=True, slots=True)
class _Slot:
    """What was observed in one slot of time: counts by bucket, the smallest and the largest value."""

    number: int
    counts: dict[int, int]
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class SummarySnapshot:
    """``count`` and ``total`` are of everything ever observed; ``quantiles`` are (quantile, value) of the window."""

    count: int
    total: float
    quantiles: tuple[tuple[float, float], ...]


class SlidingQuantiles:
    """Values of one kind. Concurrency: written on the event loop; ``snapshot`` on any thread."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        pending: list[int] = []
        # slots, count, total, the slot of what is pending, pending; replaced in one step, pending only appended to
        self._state: tuple[tuple[_Slot, ...], int, int, int, list[int]] = ((), 0, 0, 0, pending)

    def observe_all(self, values: Sequence[int], now_ns: int) -> None:
        """Count values, in whole units, at a monotonic time."""
        slots, count, total, number, pending = self._state
        current = now_ns // _SLOT_NS
        if pending and (current != number or len(pending) >= _FOLD_AT):
            slots = _folded(slots, number, pending)
            pending = []
        pending.extend(values)
        self._state = (slots, count + len(values), total + sum(values), current, pending)

    def snapshot(self, quantiles: Sequence[float], now_ns: int) -> SummarySnapshot:
        """Return counts and quantiles; NaN for quantiles of a window without values."""
        slots, count, total, number, pending = self._state
        if pending:
            slots = _folded(slots, number, pending[:])
        oldest = now_ns // _SLOT_NS - _SLOTS
        window = [slot for slot in slots if slot.number > oldest]
        return SummarySnapshot(count, total, tuple((q, _quantile(window, q)) for q in quantiles))


class LatencySummaries:
    """The latencies of a model, in microseconds, as Triton's summaries have them."""

    __slots__ = ("cache_hit", "cache_miss", "compute_infer", "compute_input", "compute_output", "queue", "request")

    def __init__(self) -> None:
        self.request = SlidingQuantiles()
        self.queue = SlidingQuantiles()
        self.compute_input = SlidingQuantiles()
        self.compute_infer = SlidingQuantiles()
        self.compute_output = SlidingQuantiles()
        self.cache_hit = SlidingQuantiles()
        self.cache_miss = SlidingQuantiles()

    def record(
        self, request_ns: Sequence[int], queue_ns: Sequence[int], compute_ns: tuple[int, int, int], now_ns: int
    ) -> None:
        """Count the requests of one batch, which computed together: input, inference, output.

        ``request_ns`` has those that were answered with it; the others are counted when they are.
        """
        amount = len(queue_ns)
        self.request.observe_all([duration // 1000 for duration in request_ns], now_ns)
        self.queue.observe_all([duration // 1000 for duration in queue_ns], now_ns)
        self.compute_input.observe_all([compute_ns[0] // 1000] * amount, now_ns)
        self.compute_infer.observe_all([compute_ns[1] // 1000] * amount, now_ns)
        self.compute_output.observe_all([compute_ns[2] // 1000] * amount, now_ns)


def _folded(slots: tuple[_Slot, ...], number: int, values: list[int]) -> tuple[_Slot, ...]:
    """Return the slots with values added to the newest, and without what nobody will ask for."""
    array = np.array(values, dtype=np.float64)
    indexes = np.full(len(array), _ZERO_BUCKET, dtype=np.int64)
    positive = array > 0
    indexes[positive] = np.ceil(np.log(array[positive]) / _GROWTH).astype(np.int64)
    found, amounts = np.unique(indexes, return_counts=True)
    least, most = float(array.min()), float(array.max())
    kept = [slot for slot in slots if slot.number > number - _SLOTS]
    counts: dict[int, int] = {}
    if kept and kept[-1].number == number:
        last = kept.pop()
        counts, least, most = dict(last.counts), min(least, last.least), max(most, last.most)
    for index, amount in zip(found.tolist(), amounts.tolist(), strict=True):
        counts[index] = counts.get(index, 0) + amount
    return (*kept, _Slot(number, counts, least, most))


def _quantile(window: list[_Slot], quantile: float) -> float:
    counts: dict[int, int] = {}
    for slot in window:
        for index, amount in slot.counts.items():
            counts[index] = counts.get(index, 0) + amount
    if not counts:
        return math.nan
    rank = max(math.ceil(quantile * sum(counts.values())), 1)
    for index in sorted(counts):
        rank -= counts[index]
        if rank <= 0:
            break
    value = 0.0 if index == _ZERO_BUCKET else math.exp(index * _GROWTH) * _MIDDLE
    return min(max(value, min(slot.least for slot in window)), max(slot.most for slot in window))
