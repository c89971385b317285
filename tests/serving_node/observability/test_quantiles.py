from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from serving_node.observability.quantiles import SlidingQuantiles

SECOND = 1_000_000_000


@given(
    st.lists(st.lists(st.integers(0, 10**9), min_size=1, max_size=50), min_size=1, max_size=60),
    st.floats(0, 1),
)
def test_quantiles_are_off_by_one_percent_at_most(batches: list[list[int]], quantile: float) -> None:
    values = SlidingQuantiles()
    for batch in batches:
        values.observe_all(batch, SECOND)
    everything = sorted(value for batch in batches for value in batch)
    snapshot = values.snapshot((quantile,), SECOND)
    exact = everything[max(math.ceil(quantile * len(everything)), 1) - 1]
    assert abs(snapshot.quantiles[0][1] - exact) <= exact * 0.01 + 1e-6
    assert (snapshot.count, snapshot.total) == (len(everything), sum(everything))


def test_window_forgets_and_the_count_does_not() -> None:
    values = SlidingQuantiles()
    for second in range(600):
        values.observe_all([1000 if second < 300 else 5], second * SECOND)
    assert values.snapshot((0.999,), 600 * SECOND).quantiles == ((0.999, 5.0),)
    assert len(values._state[0]) <= 5
    late = values.snapshot((0.5,), 900 * SECOND)
    assert math.isnan(late.quantiles[0][1])
    assert (late.count, late.total) == (600, 300 * 1005)


def test_one_value_is_itself() -> None:
    values = SlidingQuantiles()
    values.observe_all([35712], 0)
    assert values.snapshot((0.5, 0.999), 0).quantiles == ((0.5, 35712.0), (0.999, 35712.0))
