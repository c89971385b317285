"""Metrics of models: names, kinds, sharing, and who lets go last. The texts are those of a real Triton."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.core.errors import InferenceError
from serving_node.observability.families import MetricKind, to_text
from serving_node.observability.model_metrics import ModelMetrics

COUNTER, GAUGE, HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM
ONE = (("a", "1"),)


def shown(metrics: ModelMetrics) -> str:
    return to_text(metrics.families()).decode()


def test_two_holders_share_a_series_until_the_last_one_goes() -> None:
    metrics = ModelMetrics()
    first, second = metrics.open("c", "one", COUNTER), metrics.open("c", "two", COUNTER)
    first.hold(ONE, None)
    second.hold(ONE, None)
    second.hold((("a", "2"),), None)
    first.change(ONE, "increment", 1)
    second.change(ONE, "increment", 10.5)
    assert first.value(ONE) == second.value(ONE) == 11.5
    assert shown(metrics) == '# HELP c one\n# TYPE c counter\nc{a="1"} 11.5\nc{a="2"} 0\n'
    second.release()
    assert shown(metrics) == '# HELP c one\n# TYPE c counter\nc{a="1"} 11.5\n'
    first.release()
    assert metrics.families() == []


def test_histograms_have_the_buckets_of_whom_they_are_made_by() -> None:
    metrics = ModelMetrics()
    family = metrics.open("h", "d", HISTOGRAM)
    family.hold(ONE, [0.1, 1, math.inf])
    other = metrics.open("h", "d", HISTOGRAM)
    other.hold(ONE, [5])
    for value in (0.5, 1, -3, 99):
        other.change(ONE, "observe", value)
    rows = [line for line in shown(metrics).splitlines() if not line.startswith("#")]
    assert rows == [
        'h_count{a="1"} 4',
        'h_sum{a="1"} 97.5',
        'h_bucket{a="1",le="0.1"} 1',
        'h_bucket{a="1",le="1"} 3',
        'h_bucket{a="1",le="+Inf"} 4',
    ]


@pytest.mark.parametrize("name", ["", "bad name", "1c", "__c", "c-d", "c\n", "x" * 5000])
def test_names_that_no_metric_may_have(name: str) -> None:
    with pytest.raises(InferenceError, match=r"^Invalid metric name$"):
        ModelMetrics().open(name, "", COUNTER)


@pytest.mark.parametrize("name", ["nv_inference_count", "flotilla_request_duration_seconds"])
def test_names_of_the_node_are_reserved(name: str) -> None:
    with pytest.raises(InferenceError, match=f"^the name of metric '{name}' is reserved for the node's own$"):
        ModelMetrics().open(name, "", COUNTER)


@pytest.mark.parametrize("label", ["", "bad label", "__x", "1", "a:b"])
def test_names_that_no_label_may_have(label: str) -> None:
    family = ModelMetrics().open("c", "", COUNTER)
    with pytest.raises(InferenceError, match=r"^Invalid label name$"):
        family.hold(((label, "x"),), None)


@pytest.mark.parametrize("bounds", [[2, 1], [1, 1], [1, math.nan], [math.nan]])
def test_buckets_must_rise(bounds: list[float]) -> None:
    family = ModelMetrics().open("h", "", HISTOGRAM)
    with pytest.raises(InferenceError, match=r"^Bucket Boundaries must be strictly sorted$"):
        family.hold(ONE, bounds)


@pytest.mark.parametrize(
    ("kind", "verb", "value", "sentence"),
    [
        (COUNTER, "set", 1, "TRITONSERVER_METRIC_KIND_COUNTER does not support Set"),
        (COUNTER, "observe", 1, "TRITONSERVER_METRIC_KIND_COUNTER does not support Observe"),
        (COUNTER, "increment", -1, "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by"),
        (GAUGE, "observe", 1, "TRITONSERVER_METRIC_KIND_GAUGE does not support Observe"),
        (HISTOGRAM, "increment", 1, "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Increment"),
        (HISTOGRAM, "set", 1, "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Set"),
    ],
)
def test_what_a_kind_cannot_do(kind: MetricKind, verb: str, value: float, sentence: str) -> None:
    family = ModelMetrics().open("m", "", kind)
    family.hold(ONE, [])
    with pytest.raises(InferenceError, match=f"^{sentence}"):
        family.change(ONE, verb, value)


def test_a_name_has_one_kind_and_a_histogram_no_value() -> None:
    metrics = ModelMetrics()
    family = metrics.open("h", "", HISTOGRAM)
    family.hold(ONE, [1])
    with pytest.raises(InferenceError, match=r"^Family name already exists with different type$"):
        metrics.open("h", "", GAUGE)
    with pytest.raises(InferenceError, match=r"^TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Value$"):
        family.value(ONE)
    family.release()
    assert metrics.open("h", "", GAUGE) is not None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=30))
def test_what_is_shown_is_what_is_held(steps: list[tuple[int, int]]) -> None:
    """Holders take series and go, in any order; the page has the union of what the others hold."""
    metrics = ModelMetrics()
    holders = {number: metrics.open("g", "", GAUGE) for number in range(4)}
    held: dict[int, set[int]] = {number: set() for number in range(4)}
    for holder, label in steps:
        if holder not in holders:
            continue
        if label == 2 and held[holder]:
            holders.pop(holder).release()
            del held[holder]
        else:
            holders[holder].hold((("n", str(label)),), None)
            held[holder].add(label)
    names = {sample.labels[0][1] for family in metrics.families() for sample in family.samples}
    assert names == {str(label) for labels in held.values() for label in labels}
    assert bool(metrics.families()) == bool(held)
