from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from registry.domain.histograms import Histogram, merge
from workers.observe.deltas import Totals, difference, host, totals
from workers.observe.exposition import Point

KEY = ("m", "1")
counter = st.integers(0, 10**9)
counts = st.dictionaries(st.integers(-50, 50), st.integers(1, 1000), max_size=8)


@st.composite
def totals_of_one(draw: st.DrawFn) -> Totals:
    return Totals(
        {"requests": draw(counter), "executions": draw(counter)},
        {"request": Histogram(draw(counts), draw(st.integers(0, 5)), 1.0)},
    )


def plus(a: Totals, b: Totals) -> Totals:
    return Totals(
        {name: value + b.counters[name] for name, value in a.counters.items()},
        {"request": merge([a.histograms["request"], b.histograms["request"]])},
    )


@given(totals_of_one(), totals_of_one())
def test_what_was_added_comes_out(before: Totals, added: Totals) -> None:
    change = difference({KEY: before}, {KEY: plus(before, added)})[KEY]
    assert change.counters == added.counters
    found = change.histograms["request"]
    assert {i: n for i, n in found.counts.items() if n} == dict(added.histograms["request"].counts)
    assert found.zero == added.histograms["request"].zero


def test_a_reset_counts_everything_since_the_restart() -> None:
    before = Totals({"requests": 100, "failures": 3}, {"request": Histogram({1: 100})})
    now = Totals({"requests": 7, "failures": 0}, {"request": Histogram({1: 7})})
    assert difference({KEY: before}, {KEY: now}) == {KEY: now}


def test_a_reset_is_seen_although_one_counter_grew() -> None:
    before = Totals({"requests": 5}, {"request": Histogram({1: 5})})
    now = Totals({"requests": 6}, {"request": Histogram({2: 6})})
    assert difference({KEY: before}, {KEY: now})[KEY].counters == {"requests": 6}


def test_a_new_unit_starts_from_zero_and_a_gone_one_is_left_out() -> None:
    now = {("new", "1"): Totals({"requests": 4})}
    assert difference({KEY: Totals({"requests": 9})}, now) == now


def test_scrape_is_summed_over_instances_and_reasons() -> None:
    labels = {"model": "m", "version": "1"}
    points = [
        Point("nv_inference_request_success", {**labels, "gpu_uuid": "a"}, 3),
        Point("nv_inference_request_success", {**labels, "gpu_uuid": "b"}, 4),
        Point("nv_inference_request_failure", {**labels, "reason": "OTHER"}, 1),
        Point("nv_inference_request_failure", {**labels, "reason": "REJECTED"}, 2),
        Point("nv_inference_queue_duration_us", labels, 1.5),
        Point("nv_inference_pending_request_count", labels, 2),
        Point("nv_gpu_utilization", {"gpu_uuid": "a"}, 0.5),
        Point("nv_gpu_power_usage", {"gpu_uuid": "a"}, 70.0),
        Point("nv_cpu_utilization", {}, 0.25),
        Point("nv_cpu_memory_used_bytes", {}, 1e9),
    ]
    found = totals(points)[KEY]
    assert found.counters == {"requests": 7, "failures": 3, "queue_ns": 1500}
    assert found.pending == 2
    gauges = host(points)
    assert gauges.gpus == {"a": {"utilization": 0.5, "power_watts": 70.0}}
    assert (gauges.cpu_utilization, gauges.memory_used_bytes) == (0.25, 10**9)


def test_points_without_a_model_belong_to_nobody() -> None:
    assert totals([Point("nv_inference_count", {}, 5)]) == {}
