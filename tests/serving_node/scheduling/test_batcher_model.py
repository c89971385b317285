"""The batchers against a model of what they promise: random arrivals, cancellations, time-outs, deadlines, instances.

The model knows who waits and since when, and says after each step what may and what must have happened.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest
from serving_node.scheduling.batcher import Batcher, DynamicBatcher, SingleBatcher
from serving_node.scheduling.policy import BatchPolicy, QueuePolicy, TimeoutAction

MAXIMUM = 6
POLICIES = st.builds(
    BatchPolicy,
    max_batch_size=st.just(MAXIMUM),
    preferred_sizes=st.sets(st.integers(1, MAXIMUM), min_size=1).map(frozenset),
    max_queue_delay_ns=st.sampled_from((0, 7, 30)),
    default_level=st.just(1),
    levels=st.lists(
        st.builds(
            QueuePolicy,
            timeout_action=st.sampled_from(TimeoutAction),
            default_timeout_ns=st.sampled_from((0, 0, 0, 10_000, 25_000)),
            allow_timeout_override=st.booleans(),
            max_queue_size=st.sampled_from((0, 0, 0, 4)),
        ),
        min_size=1,
        max_size=3,
    ).map(tuple),
)


class BatcherMachine(RuleBasedStateMachine):
    """Time is in nanoseconds; a request's own time-outs are in microseconds, and so are some of the steps."""

    @initialize(policy=st.one_of(st.none(), POLICIES, POLICIES, POLICIES), instances=st.integers(0, 2))
    def start(self, policy: BatchPolicy | None, instances: int) -> None:
        self.policy = policy
        self.batcher: Batcher = SingleBatcher() if policy is None else DynamicBatcher(policy)
        self.now = 0
        self.free = instances
        self.waiting: dict[str, InferenceRequest] = {}
        self.gone: dict[str, str] = {}
        self.started: list[InferenceRequest] = []
        self.tickets: list[int] = []
        self.wake: int | None = None

    def level(self, request: InferenceRequest) -> int:
        return 0 if self.policy is None else self.policy.level_index(request.priority)

    def leaves(self, request: InferenceRequest, how: str) -> None:
        assert request.id not in self.gone, f"{how}, after it was {self.gone[request.id]}"
        del self.waiting[request.id]
        self.gone[request.id] = how

    @rule(
        rows=st.integers(0, MAXIMUM),
        key=st.sampled_from("aab"),
        priority=st.integers(0, 4),
        timeout_us=st.sampled_from((0, 3, 12, 60)),
        patience=st.sampled_from((0, 0, 0, 5, 20_000)),
    )
    def arrives(self, rows: int, key: str, priority: int, timeout_us: int, patience: int) -> None:
        number = len(self.waiting) + len(self.gone)
        request = InferenceRequest("m", "", [], lambda response: None, str(number), priority=priority)
        request.timeout_us, request.batch_size, request.batch_key = timeout_us, rows, key
        request.deadline_ns = self.now + patience if patience else 0
        self.waiting[request.id] = request
        level = self.level(request)
        before = sum(self.level(one) == level for one in self.waiting.values()) - 1
        limit = 0 if self.policy is None else self.policy.levels[level].max_queue_size
        try:
            self.batcher.push(request, self.now)
        except InferenceError:
            self.leaves(request, "refused")
            assert limit and before >= limit, "refused although there was room"
        else:
            assert not limit or before < limit, "taken although its level was full"
            self.poll()

    @rule(keys=st.text("ab", min_size=2, max_size=9), priority=st.integers(0, 3), shortened=st.booleans())
    def several_arrive(self, keys: str, priority: int, shortened: bool) -> None:
        for place, key in enumerate(keys):
            self.arrives(1, key, priority, 3 * place if shortened else 0, 0)

    @rule(step=st.sampled_from((1, 3, 8, 40, 4000, 30_000)))
    def time_goes_on(self, step: int) -> None:
        until = self.now + step
        while self.wake is not None and self.wake <= until:
            self.now = self.wake  # the timer is on time
            self.poll()
        self.now = until

    @rule()
    def an_instance_is_done(self) -> None:
        self.free += 1
        self.poll()

    @precondition(lambda self: self.free > 0)
    @rule()
    def an_instance_dies(self) -> None:
        self.free -= 1

    @rule(number=st.integers(0, 200))
    def somebody_cancels(self, number: int) -> None:
        everybody = sorted([*self.waiting, *self.gone], key=int)
        if not everybody:
            return
        request = self.waiting.get(everybody[number % len(everybody)])
        if request is not None:
            assert self.batcher.cancel(request)
            self.leaves(request, "cancelled")
            assert not self.batcher.cancel(request), "cancelled twice"
            self.poll()

    def poll(self) -> None:
        poll = self.batcher.poll(self.now, self.free)
        assert len(poll.batches) <= self.free
        self.free -= len(poll.batches)
        for request in poll.rejected:
            assert self.is_due(request), "rejected too early"
            self.leaves(request, "rejected")
        for batch in poll.batches:
            self.check(batch.requests, batch.rows)
            self.tickets.append(batch.ticket)
            for request in batch.requests:
                self.leaves(request, "started")
                self.started.append(request)
        assert not any(self.is_due(request) for request in self.waiting.values()), "a time-out is late"
        self.wake = poll.wake_at_ns
        assert self.wake is None or self.wake > self.now
        self.nobody_waits_without_reason()

    def check(self, requests: list[InferenceRequest], rows: int) -> None:
        assert requests
        assert rows == sum(request.batch_size or 1 for request in requests) or len(requests) == 1
        assert sum(request.batch_size for request in requests) <= MAXIMUM or len(requests) == 1
        assert len({request.batch_key for request in requests}) == 1, "different keys in one batch"
        if self.policy is None:
            assert len(requests) == 1
            return
        levels = [self.level(request) for request in requests]
        assert levels == sorted(levels), "a less urgent request came first"
        ahead = [one for one in self.waiting.values() if one not in requests and self.level(one) < levels[0]]
        assert not ahead, "a more urgent request was passed over"

    def nobody_waits_without_reason(self) -> None:
        if not self.free or not self.waiting:
            return
        assert self.policy is not None, "the default scheduler runs what waits"
        delay = self.policy.max_queue_delay_ns
        assert delay, "work waits although an instance is free and no delay is asked for"
        assert self.wake is not None, "nobody would look again"
        assert all(self.now - one.queued_ns < delay for one in self.waiting.values()), "it waited longer than the delay"

        if any(level.default_timeout_ns for level in self.policy.levels):
            return  # who is out of time stands elsewhere
        order = sorted(self.waiting.values(), key=lambda one: (self.level(one), int(one.id)))
        assert len({one.batch_key for one in order}) == 1, "a batch that cannot grow waits for more"
        assert sum(one.batch_size or 1 for one in order) < max(self.policy.preferred_sizes), "enough wait"

    def timeout_ns(self, request: InferenceRequest) -> int:
        return 0 if self.policy is None else self.policy.levels[self.level(request)].timeout_ns(request.timeout_us)

    def is_due(self, request: InferenceRequest) -> bool:
        if request.deadline_ns and request.deadline_ns <= self.now:
            return True
        rules = self.policy.levels[self.level(request)] if self.policy is not None else QueuePolicy()
        timeout = self.timeout_ns(request)
        return rules.timeout_action is TimeoutAction.REJECT and 0 < timeout <= self.now - request.queued_ns

    @invariant()
    def counts_agree(self) -> None:
        if hasattr(self, "batcher"):
            assert self.batcher.pending == len(self.waiting)
            assert self.tickets == list(range(len(self.tickets))), "tickets count batches in order"

    @invariant()
    def order_of_arrival_holds_inside_a_level_without_timeouts(self) -> None:
        if not hasattr(self, "batcher"):
            return
        levels = range(1 if self.policy is None else len(self.policy.levels))
        for level in levels:
            if self.policy is not None and self.policy.levels[level].default_timeout_ns:
                continue
            order = [int(request.id) for request in self.started if self.level(request) == level]
            assert order == sorted(order)

    def teardown(self) -> None:
        if not hasattr(self, "batcher"):
            return
        for _ in range(len(self.waiting) + 1):
            self.now += 10**6
            self.free = 3
            self.poll()
        assert not self.waiting, "left behind"
        assert self.batcher.take_all() == []


TestBatchers = BatcherMachine.TestCase
TestBatchers.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
