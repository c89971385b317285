"""The adaptive delay: under its target where that is possible, within its bound always, and never in the way."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_node.contract.model_config import parse_pbtxt, problems
from serving_node.core.request import InferenceRequest
from serving_node.observability.delay_state import DelayReason, delay_families
from serving_node.observability.families import to_text
from serving_node.scheduling.adaptive_delay import AdaptiveDelay, DelayTarget, delay_target, percentile_99
from serving_node.scheduling.batcher import DynamicBatcher
from serving_node.scheduling.policy import BatchPolicy

MS = 1_000_000


def feed(controller: AdaptiveDelay, latency_ns: int, now_ns: int, count: int = 200) -> int:
    for _ in range(count):
        controller.observe(latency_ns)
    return controller.step(now_ns)


@given(
    windows=st.lists(st.lists(st.integers(0, 100 * MS), max_size=400), max_size=40),
    target=st.integers(1, 50 * MS),
    longest=st.integers(1, 50 * MS),
    start=st.integers(0, 100 * MS),
)
@settings(max_examples=60, deadline=None)
def test_the_bound_holds_whatever_is_measured(windows: list[list[int]], target: int, longest: int, start: int) -> None:
    controller = AdaptiveDelay(DelayTarget(target, longest), start)
    now = 0
    for window in windows:
        now += 1000 * MS
        for latency in window:
            controller.observe(latency)
        assert 0 <= controller.step(now) <= longest
        assert controller.state.p99_ns <= 100 * MS


@given(start=st.integers(0, 20 * MS), late=st.integers(10 * MS + 1, 10**12))
@settings(max_examples=40, deadline=None)
def test_a_target_that_cannot_be_met_ends_the_delay_and_says_so(start: int, late: int) -> None:
    controller = AdaptiveDelay(DelayTarget(10 * MS, 20 * MS), start)
    delays = [feed(controller, late, round_) for round_ in range(10)]
    assert delays == sorted(delays, reverse=True)
    assert delays[-1] == 0
    assert controller.state.reason is DelayReason.UNREACHABLE


def test_room_makes_it_grow_to_the_bound_and_back() -> None:
    controller = AdaptiveDelay(DelayTarget(10 * MS, 4 * MS))
    assert controller.step(0) == 0
    assert controller.state.reason is DelayReason.MEASURING
    grown = [feed(controller, 1 * MS, round_) for round_ in range(25)]
    assert grown == sorted(grown)
    assert grown[-1] == 4 * MS
    assert controller.state.reason is DelayReason.LONGEST
    assert feed(controller, 9 * MS, 30) == 4 * MS
    assert controller.state.reason is DelayReason.HOLDING
    assert feed(controller, 11 * MS, 31) == 2 * MS
    assert controller.state.reason is DelayReason.SHRINKING


def test_few_requests_count_only_after_a_while_and_very_few_never() -> None:
    controller = AdaptiveDelay(DelayTarget(10 * MS, 4 * MS), 4 * MS)
    controller.step(0)
    assert feed(controller, 99 * MS, 1000 * MS, count=50) == 4 * MS
    assert controller.step(6000 * MS) == 2 * MS
    assert feed(controller, 99 * MS, 7000 * MS, count=19) == 2 * MS
    assert controller.step(12_000 * MS) == 2 * MS
    assert feed(controller, 99 * MS, 12_500 * MS, count=19) == 2 * MS, "the old ones are forgotten"


@pytest.mark.parametrize(
    ("latencies", "expected"), [([5], 5), (list(range(1, 101)), 99), (list(range(200)), 197), ([1] * 99 + [9], 1)]
)
def test_percentile(latencies: list[int], expected: int) -> None:
    assert percentile_99(latencies) == expected


class Queueing:
    """One instance behind the real batcher, in simulated time: arrivals at random, batches that take their time."""

    def __init__(self, rate_per_second: float, fixed_ns: int, row_ns: int, target: DelayTarget) -> None:
        self.random = random.Random(7)
        self.gap_ns = 1e9 / rate_per_second
        self.fixed_ns, self.row_ns = fixed_ns, row_ns
        self.batcher = DynamicBatcher(BatchPolicy(32, frozenset((32,))))
        self.controller = AdaptiveDelay(target)
        self.busy_until, self.running = 0, list[InferenceRequest]()
        self.latencies: list[int] = []
        self.batches: list[int] = []

    def run(self, requests: int) -> None:
        now, arrival, wake = 0, 0.0, None
        while requests or self.running:
            times = [int(arrival) if requests else None, self.busy_until if self.running else None, wake]
            now = max(now, min(time for time in times if time is not None))
            if self.running and self.busy_until <= now:
                for request in self.running:
                    self.controller.observe(now - request.queued_ns)
                    self.latencies.append(now - request.queued_ns)
                self.running = []
                self.batcher.delay_ns = self.controller.step(now)
            if requests and int(arrival) <= now:
                self.batcher.push(InferenceRequest("m", "", [], lambda response: None), now)
                arrival += self.random.expovariate(1) * self.gap_ns
                requests -= 1
            poll = self.batcher.poll(now, 0 if self.running else 1)
            wake = None if self.running else poll.wake_at_ns
            for batch in poll.batches:
                self.running = batch.requests
                self.batches.append(batch.rows)
                self.busy_until = now + self.fixed_ns + self.row_ns * batch.rows


def test_in_a_queue_it_settles_below_the_target_with_larger_batches() -> None:
    queue = Queueing(2000, fixed_ns=400_000, row_ns=20_000, target=DelayTarget(12 * MS, 10 * MS))
    queue.run(40_000)
    settled = queue.latencies[20_000:]
    assert percentile_99(settled) <= 12 * MS
    assert queue.controller.state.delay_ns > 2 * MS
    first, last = queue.batches[:100], queue.batches[-100:]
    assert sum(last) / len(last) > 3 * sum(first) / len(first), "what waiting is for"


def test_in_a_queue_that_is_too_slow_it_stays_out_of_the_way() -> None:
    queue = Queueing(2000, fixed_ns=6 * MS, row_ns=20_000, target=DelayTarget(5 * MS, 4 * MS))
    queue.run(10_000)
    assert queue.controller.state.delay_ns == 0
    assert queue.controller.state.reason is DelayReason.UNREACHABLE


CONFIG = 'name: "m" backend: "b" max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 100 }'


def keys(**values: str) -> str:
    return "".join(
        f'parameters {{ key: "flotilla.{key}" value {{ string_value: "{value}" }} }}' for key, value in values.items()
    )


def test_a_config_names_target_and_bound() -> None:
    assert delay_target(parse_pbtxt(CONFIG)) is None
    assert delay_target(parse_pbtxt(CONFIG + keys(p99_target_microseconds="2000"))) == DelayTarget(2 * MS, MS)
    both = keys(p99_target_microseconds="2000", p99_max_delay_microseconds="300")
    assert delay_target(parse_pbtxt(CONFIG + both)) == DelayTarget(2 * MS, 300_000)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"p99_target_microseconds": "0"}, "p99_target_microseconds' must be at least 1, got 0"),
        ({"p99_target_microseconds": "soon"}, "p99_target_microseconds' must be a whole number, got 'soon'"),
        (
            {"p99_max_delay_microseconds": "5"},
            "p99_max_delay_microseconds' means nothing without 'flotilla.p99_target_microseconds'",
        ),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(values: dict[str, str], sentence: str) -> None:
    found = [one.message for one in problems(parse_pbtxt(CONFIG + keys(**values)), require_tensors=False)]
    assert found == [f"parameter 'flotilla.{sentence}"]


def test_metrics_tell_the_delay_and_why() -> None:
    controller = AdaptiveDelay(DelayTarget(10 * MS, 4 * MS), 3 * MS)
    feed(controller, 20 * MS, 0)
    text = to_text(delay_families({(("model", "m"),): controller.state})).decode()
    assert 'flotilla_adaptive_delay_seconds{model="m"} 0.0015' in text
    assert 'flotilla_adaptive_delay_target_seconds{model="m"} 0.01' in text
    assert 'flotilla_adaptive_delay_p99_seconds{model="m"} 0.02' in text
    assert 'flotilla_adaptive_delay_reason{model="m",reason="SHRINKING"} 1' in text
    assert text.count('reason="') == len(DelayReason)
