"""The scheduler as a whole under random arrivals, cancellations, failures, deaths, resizes, limits and time.

Nothing is lost, answered twice or reordered where order is promised, and nobody waits when work could run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.observability.statistics import ModelStatistics
from serving_node.scheduling.batch import Batch
from serving_node.scheduling.policy import BatchPolicy, QueuePolicy, TimeoutAction
from serving_node.scheduling.rate_limit import Limit, Need
from serving_node.scheduling.scheduler import Scheduler
from serving_node.scheduling.turns import Share, Turns
from tests.serving_node.scheduling.played import PlayedLoop, PlayedRunner, PlayedThread, play_time

MS = 1_000_000
POLICIES: dict[str, BatchPolicy | None] = {
    "default": None,
    "plain": BatchPolicy(4),
    "preferred": BatchPolicy(4, frozenset({2})),
    "delay": BatchPolicy(4, max_queue_delay_ns=20 * MS),
    "ordered": BatchPolicy(2, preserve_ordering=True),
    "full": BatchPolicy(2, levels=(QueuePolicy(max_queue_size=2),)),
    "timeout": BatchPolicy(4, levels=(QueuePolicy(default_timeout_ns=30 * MS, allow_timeout_override=True),)),
    "levels": BatchPolicy(
        4,
        default_level=2,
        levels=(QueuePolicy(), QueuePolicy(TimeoutAction.DELAY, 30 * MS), QueuePolicy(default_timeout_ns=30 * MS)),
    ),
}
IN_ORDER = ("default", "plain", "preferred", "delay", "ordered", "full", "timeout")


@dataclass
class Model:
    """One scheduler with its instances and clients."""

    policy: str
    scheduler: Scheduler
    needs: int
    instances: list[PlayedThread | PlayedRunner] = field(default_factory=list)
    leaving: list[PlayedThread | PlayedRunner] = field(default_factory=list)
    accepted: list[InferenceRequest] = field(default_factory=list)
    answers: dict[str, InferenceResponse] = field(default_factory=dict)
    begun: list[int] = field(default_factory=list)
    released: list[int] = field(default_factory=list)

    def began(self, batch: Batch) -> None:
        numbers = [int(request.id) for request in batch.requests]
        assert not set(numbers) & set(self.begun), "runs twice"
        assert not any(one.id in self.answers for one in batch.requests), "runs although it is answered"
        self.begun += numbers

    def answered(self, response: InferenceResponse) -> None:
        assert response.id not in self.answers, "answered twice"
        self.answers[response.id] = response
        if int(response.id) in self.begun:
            self.released.append(int(response.id))

    @property
    def running(self) -> list[InferenceRequest]:
        every = (*self.instances, *self.leaving)
        return [request for one in every for batch in one.running for request in batch.requests]

    @property
    def waiting(self) -> list[InferenceRequest]:
        busy = {request.id for request in self.running}
        begun = set(self.begun)
        return [
            one
            for one in self.accepted
            if one.id not in self.answers and one.id not in busy and int(one.id) not in begun
        ]


class SchedulerMachine(RuleBasedStateMachine):
    """Two models, which share what a rate limiter has if there is one."""

    patch: pytest.MonkeyPatch

    @initialize(
        policies=st.lists(st.sampled_from(["default", "default", *sorted(POLICIES)]), min_size=2, max_size=2),
        on_loop=st.booleans(),
        is_limited=st.booleans(),
        count=st.integers(1, 3),
        depth=st.integers(1, 3),
    )
    def start(self, policies: list[str], on_loop: bool, is_limited: bool, count: int, depth: int) -> None:
        self.loop = PlayedLoop()
        play_time(self.patch, self.loop)
        self.on_loop, self.depth = on_loop, depth
        self.turns = Turns([Limit("R", 3)]) if is_limited else None
        self.models: list[Model] = []
        self.numbers = 0
        self.refusals: set[tuple[str, str]] = set()
        for number, policy in enumerate(policies):
            model = Model(policy, None, number + 1)  # type: ignore[arg-type]
            model.instances = [self.instance(model) for _ in range(count)]

            async def make(model: Model = model) -> Scheduler:
                return Scheduler(
                    name="m",
                    version=1,
                    policy=POLICIES[model.policy],
                    instances=model.instances,
                    statistics=ModelStatistics(),
                    turns=self.turns,
                )

            model.scheduler = self.loop.run_until_complete(make())
            self.models.append(model)

    def instance(self, model: Model) -> PlayedThread | PlayedRunner:
        self.numbers += 1
        name = f"instance {self.numbers}"
        made = PlayedRunner(name, model.began, self.depth) if self.on_loop else PlayedThread(name, model.began)
        if self.turns is not None:
            self.turns.add({made: Share((Need("R", model.needs, 0),), model.needs)})
        return made

    def within(self, act: object) -> None:
        """Do something on the running loop, then whatever follows from it."""

        async def run() -> None:
            act()  # type: ignore[operator]

        self.loop.run_until_complete(run())
        self.loop.settle()

    # -- what happens

    @rule(
        which=st.integers(0, 1),
        rows=st.integers(1, 2),
        key=st.sampled_from("aaab"),
        priority=st.integers(0, 3),
        timeout_us=st.sampled_from([0, 10_000]),
        deadline_ms=st.sampled_from([0, 0, 15]),
        together=st.integers(1, 3),
    )
    def submit(
        self, which: int, rows: int, key: str, priority: int, timeout_us: int, deadline_ms: int, together: int
    ) -> None:
        model = self.models[which]

        def act() -> None:
            for _ in range(together):
                self.numbers += 1
                request = InferenceRequest("m", "1", [], model.answered, str(self.numbers))
                request.batch_size, request.batch_key = rows, key
                request.priority, request.timeout_us = priority, timeout_us
                request.deadline_ns = round(self.loop.now * 1e9) + deadline_ms * MS if deadline_ms else 0
                try:
                    model.scheduler.submit(request)
                except InferenceError as error:
                    self.refusals.add((model.policy, error.message.partition("] ")[2] or error.message))
                else:
                    model.accepted.append(request)

        self.within(act)

    def busy(self) -> list[PlayedThread | PlayedRunner]:
        return [one for model in self.models for one in (*model.instances, *model.leaving) if one.running]

    @precondition(lambda self: self.busy())
    @rule(data=st.data(), fails=st.booleans())
    def finish(self, data: st.DataObject, fails: bool) -> None:
        instance = data.draw(st.sampled_from(self.busy()))
        error = InferenceError(ErrorCode.INTERNAL, "engine broke") if fails else None
        self.within(lambda: instance.finish(error))

    @precondition(lambda self: any(model.waiting or model.running for model in self.models))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from([one for model in self.models for one in model.waiting + model.running]))
        is_waiting = any(request in model.waiting for model in self.models)
        self.within(request.cancel)
        if is_waiting:
            response = next(model.answers[request.id] for model in self.models if request.id in model.answers)
            assert response.error is not None and response.error.code is ErrorCode.CANCELLED

    @rule(milliseconds=st.sampled_from([1, 7, 20, 50]))
    def advance(self, milliseconds: int) -> None:
        self.loop.advance(milliseconds / 1000)

    @precondition(lambda self: self.on_loop)
    @rule(data=st.data(), for_long=st.booleans())
    def die_or_come_back(self, data: st.DataObject, for_long: bool) -> None:
        runner = data.draw(st.sampled_from([one for model in self.models for one in model.instances]))
        assert isinstance(runner, PlayedRunner)
        reason = InferenceError(ErrorCode.INTERNAL, "gone for a while") if for_long else None
        self.within(runner.come_back if not runner.lives else lambda: runner.die(reason))

    @rule(which=st.integers(0, 1), adds=st.booleans(), removes=st.booleans())
    def resize(self, which: int, adds: bool, removes: bool) -> None:
        model = self.models[which]
        if removes and len(model.instances) + adds < 2:
            return
        added = [self.instance(model)] if adds else []
        removed = model.instances[:1] if removes else []
        model.leaving += removed
        model.instances = [one for one in model.instances if one not in removed] + added
        self.within(lambda: model.scheduler.set_instances(added, removed))

    # -- what must hold

    @invariant()
    def every_request_is_somewhere(self) -> None:
        for model in self.models:
            scheduler = model.scheduler
            assert scheduler.pending_count() == len(model.waiting)
            assert scheduler.inflight_count() == len(model.accepted) - len(model.answers)

    @invariant()
    def nobody_is_refused_for_nothing(self) -> None:
        for policy, message in self.refusals:
            assert message == "gone for a while" or (policy, message) == ("full", "Exceeds maximum queue size")

    @invariant()
    def order_is_kept(self) -> None:
        for model in self.models:
            if model.policy in IN_ORDER:
                assert model.begun == sorted(model.begun)
            if model.policy == "ordered":
                assert model.released == model.begun[: len(model.released)]

    @invariant()
    def nobody_waits_when_work_could_run(self) -> None:
        asking = [model for model in self.models if any(one.lives and not one.running for one in model.instances)]
        asking = [model for model in asking if model.waiting]
        ready = [model for model in asking if model.policy != "delay" or self.is_late(model)]
        if self.turns is None:
            assert not ready, "an instance is free"
            return
        held = sum(model.needs for model in self.models for one in (*model.instances, *model.leaving) if one.running)
        assert held or not ready, "nothing runs"
        if ready and {model.needs for model in asking} == {1}:
            assert held == 3, "it would fit, and nobody waits in front of it"

    def is_late(self, model: Model) -> bool:
        now_ns = round(self.loop.now * 1e9)
        return any(now_ns - request.queued_ns >= 20 * MS for request in model.waiting)

    @invariant()
    def nothing_is_taken_twice(self) -> None:
        if self.turns is None:
            return
        running = {one for model in self.models for one in (*model.instances, *model.leaving) if one.running}
        assert self.turns._holding == running
        assert (
            sum(model.needs * len(running.intersection(model.instances + model.leaving)) for model in self.models) <= 3
        )

    @invariant()
    def time_outs_fire(self) -> None:
        now_ns = round(self.loop.now * 1e9)
        for model in self.models:
            for request in model.waiting:
                assert not request.deadline_ns or request.deadline_ns > now_ns - MS
                is_rejecting = model.policy == "timeout" or (model.policy == "levels" and request.priority == 3)
                if is_rejecting:
                    assert request.queue_deadline_ns > now_ns - MS

    def teardown(self) -> None:
        if not hasattr(self, "models"):
            return
        for model in self.models:
            for one in model.instances:
                if isinstance(one, PlayedRunner) and not one.lives:
                    self.within(one.come_back)
        for _ in range(500):
            for one in self.busy()[:1]:
                self.within(partial(one.finish, None))
            self.loop.advance(0.05)
            if not self.busy():
                break
        for model in self.models:
            assert len(model.answers) == len(model.accepted), "lost"
            closing = self.loop.create_task(model.scheduler.close(1.0))
            for _ in range(20):
                self.loop.advance(0.1)
            assert closing.done(), "does not end"
            assert all(one.stopped for one in (*model.instances, *model.leaving))
        if self.turns is not None:
            assert not self.turns._members
        self.loop.close()


def test_scheduler_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    SchedulerMachine.patch = monkeypatch
    run_state_machine_as_test(
        SchedulerMachine, settings=settings(max_examples=100, stateful_step_count=40, deadline=None)
    )
