from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.domain import histograms as h

values = st.lists(st.floats(min_value=1e-6, max_value=1e4, allow_nan=False), min_size=1, max_size=60)
counted = st.dictionaries(st.integers(-200, 200), st.integers(1, 10**9), max_size=20)


@given(values, st.floats(0, 1))
def test_quantile_is_within_one_bucket_of_the_true_one(data: list[float], q: float) -> None:
    found = h.quantile(h.of_values(data), q)
    assert found is not None
    rank = max(1, math.ceil(q * len(data)))
    true = sorted(data)[rank - 1]
    assert true / h.BASE * (1 - 1e-9) <= found <= true * h.BASE * (1 + 1e-9)


@given(values)
def test_quantiles_grow(data: list[float]) -> None:
    histogram = h.of_values(data)
    found = [h.quantile(histogram, q / 10) for q in range(11)]
    assert found == sorted(found)  # type: ignore[type-var]


@given(values, values)
def test_merging_equals_counting_together(first: list[float], second: list[float]) -> None:
    merged = h.merge([h.of_values(first), h.of_values(second)])
    together = h.of_values(first + second)
    assert (merged.counts, merged.zero) == (together.counts, together.zero)
    assert merged.total == pytest.approx(together.total)


@given(values, values)
def test_difference_undoes_merge(first: list[float], second: list[float]) -> None:
    older, added = h.of_values(first), h.of_values(second)
    found = h.difference(h.merge([older, added]), older)
    assert (found.counts, found.zero) == (added.counts, added.zero)


def test_difference_after_a_restart_is_the_new_reading() -> None:
    assert h.difference(h.of_values([1.0]), h.of_values([1.0, 2.0])) == h.of_values([1.0])


@given(counted, st.integers(0, 10**12), st.floats(0, 1e9))
def test_encoding_is_lossless(counts: dict[int, int], zero: int, total: float) -> None:
    histogram = h.Histogram(counts, zero, total if counts or zero else 0.0)
    assert h.decode(h.encode(histogram)) == histogram


@given(st.binary(max_size=40))
def test_decoding_garbage_raises_value_error_or_nothing(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        h.decode(data)


def test_nothing_is_nothing() -> None:
    assert h.encode(h.EMPTY) == b""
    assert h.decode(b"") == h.EMPTY
    assert h.quantile(h.EMPTY, 0.5) is None
    assert h.EMPTY.mean is None


def test_zeros_count() -> None:
    histogram = h.of_values([0.0, 0.0, 1.0])
    assert histogram.count == 3
    assert h.quantile(histogram, 0.5) == 0.0


def test_bounds_of_a_bucket() -> None:
    assert h.bucket_index(1.0) == 0
    assert h.bucket_index(2.0) == 8
    assert h.bucket_bound(8) == 2.0


def test_classic_buckets() -> None:
    histogram = h.of_classic({0.1: 5, 1.0: 9, math.inf: 10}, total=4.0)
    assert histogram.count == 10
    median, last = h.quantile(histogram, 0.5), h.quantile(histogram, 1.0)
    assert median is not None
    assert median == pytest.approx(0.1, rel=0.1)
    assert last == pytest.approx(1.0, rel=0.1)
