from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from serving_node.observability.histogram import CLASSIC_BOUNDS, LatencyHistogram

DURATIONS = st.lists(st.integers(0, 200 * 10**9), max_size=50)


def filled(durations: list[int]) -> LatencyHistogram:
    histogram = LatencyHistogram()
    for duration in durations:
        histogram.observe(duration)
    return histogram


@given(st.integers(1, 10**15))
def test_bucket_holds_the_duration_within_its_bounds(duration_ns: int) -> None:
    (index,) = filled([duration_ns]).snapshot().buckets
    upper = 2.0 ** (index / 8)
    assert upper / 2 ** (1 / 8) * (1 - 1e-9) < duration_ns * 1e-9 <= upper * (1 + 1e-9)


@given(DURATIONS)
def test_classic_buckets_are_exact(durations: list[int]) -> None:
    rows = filled(durations).snapshot().classic()
    for bound, count in rows:
        assert count == sum(duration * 1e-9 <= bound for duration in durations)
    assert len(rows) == len(CLASSIC_BOUNDS)


@given(DURATIONS, DURATIONS)
def test_merging_equals_observing_together(first: list[int], second: list[int]) -> None:
    merged = filled(first).snapshot().plus(filled(second).snapshot())
    together = filled(first + second).snapshot()
    assert (merged.buckets, merged.zeros, merged.count) == (together.buckets, together.zeros, together.count)
    assert math.isclose(merged.sum_seconds, together.sum_seconds, abs_tol=1e-9)


@given(DURATIONS)
def test_spans_and_deltas_give_the_buckets_back(durations: list[int]) -> None:
    snapshot = filled(durations).snapshot()
    spans, deltas = snapshot.spans()
    found: dict[int, int] = {}
    index = count = position = 0
    for number, (offset, length) in enumerate(spans):
        index = offset if number == 0 else index + offset
        for _ in range(length):
            count += deltas[position]
            position += 1
            found[index] = count
            index += 1
    assert found == snapshot.buckets
    assert position == len(deltas)


def test_many_at_once_count_like_one_by_one() -> None:
    histogram = LatencyHistogram()
    histogram.observe_all([1000, 1000, 1000])
    assert histogram.snapshot().buckets == filled([1000] * 3).snapshot().buckets
