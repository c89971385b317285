from __future__ import annotations

from collections.abc import Hashable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest
from serving_node.scheduling.batch import ReleaseOrder
from serving_node.scheduling.batcher import Batcher, DynamicBatcher, SingleBatcher
from serving_node.scheduling.policy import BatchPolicy, QueuePolicy, TimeoutAction

MS = 1_000_000


def make(
    identity: int, *, rows: int = 1, key: Hashable = None, priority: int = 0, timeout_us: int = 0
) -> InferenceRequest:
    request = InferenceRequest("m", "", [], lambda response: None, str(identity), priority=priority)
    request.timeout_us = timeout_us
    request.batch_size = rows
    request.batch_key = key
    return request


def policy(maximum: int, *preferred: int, delay_ms: float = 0, **rules: object) -> BatchPolicy:
    return BatchPolicy(
        max_batch_size=maximum,
        preferred_sizes=frozenset(preferred or (maximum,)),
        max_queue_delay_ns=int(delay_ms * MS),
        **rules,  # type: ignore[arg-type]
    )


def sizes(batcher: Batcher, arrivals: list[tuple[int, InferenceRequest]], busy_until: int, step: int) -> list[int]:
    """Simulate one instance: busy from its first batch for ``busy_until``, polled at each arrival and each ``step``."""
    found: list[int] = []
    free_at, now, waiting = 0, 0, list(arrivals)
    while waiting or batcher.pending:
        while waiting and waiting[0][0] <= now:
            batcher.push(waiting.pop(0)[1], now)
        poll = batcher.poll(now, 1 if now >= free_at else 0)
        if poll.batches:
            found.append(poll.batches[0].rows)
            free_at = now + busy_until
        now += step
    return found


class TestMeasuredOnTriton:
    """Batches that a live Triton formed: 1 s model, max_batch_size 4, one instance, requests 50 ms apart."""

    def arrivals(self, count: int) -> list[tuple[int, InferenceRequest]]:
        return [(index * 50 * MS, make(index)) for index in range(count)]

    def test_no_preference(self) -> None:
        assert sizes(DynamicBatcher(policy(4)), self.arrivals(6), 1000 * MS, 10 * MS) == [1, 4, 1]

    def test_preferred_size_caps_batches(self) -> None:
        assert sizes(DynamicBatcher(policy(4, 2)), self.arrivals(6), 1000 * MS, 10 * MS) == [1, 2, 2, 1]

    def test_preferred_size_with_delay(self) -> None:
        assert sizes(DynamicBatcher(policy(4, 2, delay_ms=500)), self.arrivals(3), 1000 * MS, 10 * MS) == [2, 1]

    def test_delay_ends_below_the_preferred_size(self) -> None:
        batcher = DynamicBatcher(policy(4, 4, delay_ms=500))
        assert sizes(batcher, self.arrivals(3), 1000 * MS, 10 * MS) == [3]


def test_delay_waits_until_the_oldest_has_waited_it() -> None:
    batcher = DynamicBatcher(policy(8, delay_ms=5))
    batcher.push(make(1), 0)
    batcher.push(make(2), 2 * MS)

    waiting = batcher.poll(2 * MS, 1)
    assert waiting.batches == []
    assert waiting.wake_at_ns == 5 * MS
    assert [batch.rows for batch in batcher.poll(5 * MS, 1).batches] == [2]


def test_full_batch_does_not_wait_for_the_delay() -> None:
    batcher = DynamicBatcher(policy(2, delay_ms=1000))
    batcher.push(make(1), 0)
    batcher.push(make(2), 0)
    assert [batch.rows for batch in batcher.poll(0, 1).batches] == [2]


def test_larger_preferred_size_wins_and_requests_are_never_split() -> None:
    batcher = DynamicBatcher(policy(8, 2, 4))
    for index, rows in enumerate((1, 1, 2, 3, 3)):
        batcher.push(make(index, rows=rows), 0)
    assert [batch.rows for batch in batcher.poll(0, 3).batches] == [4, 3, 3]


def test_other_shape_closes_a_batch_even_with_a_delay() -> None:
    batcher = DynamicBatcher(policy(8, delay_ms=1000))
    for index, key in enumerate(("a", "a", "b")):
        batcher.push(make(index, key=key), 0)
    assert [[request.id for request in batch.requests] for batch in batcher.poll(0, 3).batches] == [["0", "1"]]


def test_priority_levels_may_share_a_batch() -> None:
    batcher = DynamicBatcher(policy(4, levels=(QueuePolicy(), QueuePolicy()), default_level=2))
    batcher.push(make(1), 0)
    batcher.push(make(2, priority=1), 0)
    assert [[request.id for request in batch.requests] for batch in batcher.poll(0, 1).batches] == [["2", "1"]]


def test_rejection_wakes_although_no_slot_is_free() -> None:
    batcher = DynamicBatcher(policy(4, levels=(QueuePolicy(default_timeout_ns=3 * MS),)))
    batcher.push(make(1), 0)
    assert batcher.poll(0, 0).wake_at_ns == 3 * MS
    assert [request.id for request in batcher.poll(3 * MS, 1).rejected] == ["1"]
    assert batcher.pending == 0


def test_default_scheduler_ignores_priority_and_timeouts() -> None:
    batcher = SingleBatcher()
    batcher.push(make(1, priority=2, timeout_us=1), 0)
    batcher.push(make(2, priority=1, rows=4), 0)
    poll = batcher.poll(10**12, 5)
    assert [[request.id for request in batch.requests] for batch in poll.batches] == [["1"], ["2"]]
    assert poll.rejected == []


def test_default_scheduler_drops_work_whose_caller_has_stopped_waiting() -> None:
    batcher = SingleBatcher()
    late, patient = make(1), make(2)
    late.deadline_ns, patient.deadline_ns = 100, 900
    batcher.push(late, 0)
    batcher.push(patient, 0)

    poll = batcher.poll(100, 1)

    assert poll.rejected == [late]
    assert [batch.requests for batch in poll.batches] == [[patient]]
    assert batcher.pending == 0


def test_release_order_holds_back_what_finished_early() -> None:
    order: ReleaseOrder[str] = ReleaseOrder()
    assert order.finish(1, "b") == []
    assert order.finish(2, "c") == []
    assert order.finish(0, "a") == ["a", "b", "c"]


# What can happen to a batcher: a push, a poll, the cancellation of some earlier request, time passing.
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(1, 8), st.sampled_from("ab"), st.integers(0, 4), st.integers(0, 40)),
        st.tuples(st.just("poll"), st.integers(0, 3)),
        st.tuples(st.just("cancel"), st.integers(0, 1000)),
        st.tuples(st.just("wait"), st.integers(0, 30)),
    ),
    max_size=120,
)
LEVELS = st.lists(
    st.builds(
        QueuePolicy,
        timeout_action=st.sampled_from(TimeoutAction),
        default_timeout_ns=st.sampled_from((0, 10, 25)),
        allow_timeout_override=st.booleans(),
        max_queue_size=st.sampled_from((0, 0, 3)),
    ),
    min_size=1,
    max_size=3,
).map(tuple)
POLICIES = st.builds(
    BatchPolicy,
    max_batch_size=st.just(8),
    preferred_sizes=st.sets(st.integers(1, 8), min_size=1).map(frozenset),
    max_queue_delay_ns=st.sampled_from((0, 5, 20)),
    levels=LEVELS,
)


class _History:
    """Plays events against a batcher and keeps who left how."""

    def __init__(self, batcher: Batcher, maximum: int) -> None:
        self.batcher = batcher
        self.maximum = maximum
        self.now = 0
        self.pushed: list[InferenceRequest] = []
        self.left: dict[str, str] = {}
        self.executed: list[InferenceRequest] = []

    def leave(self, request: InferenceRequest, how: str) -> None:
        assert request.id not in self.left, "answered twice"
        self.left[request.id] = how

    def play(self, event: tuple[object, ...]) -> None:
        match event:
            case ("push", int(rows), str(key), int(priority), int(timeout)):
                request = make(len(self.pushed), rows=rows, key=key, priority=priority, timeout_us=timeout)
                self.pushed.append(request)
                try:
                    self.batcher.push(request, self.now)
                except InferenceError:
                    self.leave(request, "full")
            case ("poll", int(slots)):
                self.poll(slots)
            case ("cancel", int(number)) if self.pushed:
                request = self.pushed[number % len(self.pushed)]
                before = self.batcher.pending
                if self.batcher.cancel(request):
                    self.leave(request, "cancelled")
                    assert self.batcher.pending == before - 1
                else:
                    assert request.id in self.left
                    assert self.batcher.pending == before
            case ("wait", int(duration)):
                self.now += duration

    def poll(self, slots: int) -> None:
        poll = self.batcher.poll(self.now, slots)
        assert len(poll.batches) <= slots
        for batch in poll.batches:
            assert batch.requests
            assert batch.rows == sum(request.batch_size for request in batch.requests) <= self.maximum
            assert len({request.batch_key for request in batch.requests}) == 1
            for request in batch.requests:
                self.leave(request, "executed")
                self.executed.append(request)
        for request in poll.rejected:
            self.leave(request, "rejected")
        assert poll.wake_at_ns is None or poll.wake_at_ns > self.now or slots == 0 or len(poll.batches) == slots

    def finish(self) -> None:
        for _ in range(len(self.pushed) + 1):
            self.now += 1000
            self.poll(2)
        assert self.batcher.pending == 0
        assert set(self.left) == {request.id for request in self.pushed}, "lost"


@given(rules=POLICIES, events=EVENTS)
@settings(max_examples=150, deadline=None)
def test_dynamic_batcher_loses_nobody_and_answers_nobody_twice(
    rules: BatchPolicy, events: list[tuple[object, ...]]
) -> None:
    history = _History(DynamicBatcher(rules), rules.max_batch_size)
    for event in events:
        history.play(event)
    history.finish()


@given(rules=POLICIES, events=EVENTS)
@settings(max_examples=60, deadline=None)
def test_requests_of_one_level_without_timeouts_run_in_order_of_arrival(
    rules: BatchPolicy, events: list[tuple[object, ...]]
) -> None:
    levels = tuple(QueuePolicy(max_queue_size=level.max_queue_size) for level in rules.levels)
    calm = BatchPolicy(rules.max_batch_size, rules.preferred_sizes, rules.max_queue_delay_ns, levels=levels)
    history = _History(DynamicBatcher(calm), calm.max_batch_size)
    for event in events:
        history.play(event)
    history.finish()
    for index in range(len(levels)):
        order = [int(request.id) for request in history.executed if calm.level_index(request.priority) == index]
        assert order == sorted(order)


@given(events=EVENTS)
@settings(max_examples=60, deadline=None)
def test_default_scheduler_runs_each_request_alone_in_order(events: list[tuple[object, ...]]) -> None:
    history = _History(SingleBatcher(), 8)
    for event in events:
        history.play(event)
    history.finish()
    order = [int(request.id) for request in history.executed]
    assert order == sorted(order)


@given(rules=POLICIES, events=EVENTS, victim=st.integers(0, 30))
@settings(max_examples=80, deadline=None)
def test_cancelling_one_leaves_its_siblings_alone(
    rules: BatchPolicy, events: list[tuple[object, ...]], victim: int
) -> None:
    """With room for all and no time-outs, everybody but the cancelled is executed."""
    calm = BatchPolicy(rules.max_batch_size, rules.preferred_sizes, rules.max_queue_delay_ns)
    history = _History(DynamicBatcher(calm), calm.max_batch_size)
    for event in events:
        if event[0] != "cancel":
            history.play(event)
    if history.pushed:
        history.play(("cancel", victim))
    history.finish()
    cancelled = [identity for identity, how in history.left.items() if how == "cancelled"]
    assert len(cancelled) <= 1
    assert all(how in ("executed", "cancelled") for how in history.left.values())


@pytest.mark.parametrize("count", [0, 1, 5])
def test_take_all_empties_the_batcher(count: int) -> None:
    for batcher in (SingleBatcher(), DynamicBatcher(policy(4))):
        requests = [make(index) for index in range(count)]
        for request in requests:
            batcher.push(request, 0)
        if requests:
            batcher.cancel(requests[0])
        assert batcher.take_all() == requests[1:]
        assert batcher.pending == 0
