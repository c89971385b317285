"""Instances that the event loop drives: batches given ahead, responses apart from their batch, instances that die."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.core.backend import InstanceEvents, LoopInstance
from serving_node.core.errors import InferenceError
from serving_node.core.execution import Execution
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.core.tensor import Tensor
from serving_node.observability.statistics import FailureReason, ModelStatistics
from serving_node.scheduling.instances import LoopRunner
from serving_node.scheduling.policy import BatchPolicy
from serving_node.scheduling.scheduler import STOPPED, Scheduler
from tests.serving_node.scheduling.played import PlayedLoop, play_time


class Played:
    """An instance whose part the test plays."""

    def __init__(self, depth: int = 1) -> None:
        self.ahead = depth
        self.running: list[Execution] = []
        self.owed = 0
        self.lives = True
        self.reason: InferenceError | None = None
        self.says_ready = True
        self.detached = self.closed = False
        self.messages: list[int] = []
        self.events = InstanceEvents(print, print, print)

    def execute(self, execution: Execution) -> None:
        raise AssertionError("only for warm-up")

    def attach(self, events: InstanceEvents) -> None:
        self.events = events

    def begin(self, executions: Sequence[Execution]) -> None:
        self.messages.append(len(executions))
        self.running += executions

    def depth(self) -> int:
        return self.ahead

    def usable(self) -> bool:
        return self.lives

    def busy(self) -> bool:
        return bool(self.running or self.owed)

    def gone(self) -> InferenceError | None:
        return self.reason

    def ready(self) -> bool:
        return self.lives and self.says_ready

    def detach(self) -> None:
        self.detached = True
        self.fail(InferenceError(ErrorCode.INTERNAL, "ended"))

    def close(self) -> None:
        self.closed = True

    def finish(self, *, apart: bool = False) -> Execution:
        execution = self.running.pop(0)
        execution.results = [None if apart else list(request.inputs) for request in execution.requests]
        self.events.done(execution)
        return execution

    def fail(self, error: InferenceError) -> None:
        running, self.running = self.running, []
        for execution in running:
            execution.results = [error] * len(execution.requests)
            self.events.done(execution)

    def die(self, error: InferenceError | None = None) -> None:
        """End the process; with an error none will be back soon."""
        self.lives, self.reason = False, error
        self.fail(InferenceError(ErrorCode.INTERNAL, "it died"))
        self.events.changed()

    def come_back(self) -> None:
        self.lives, self.reason = True, None
        self.events.changed()


class Client:
    def __init__(self) -> None:
        self.responses: list[InferenceResponse] = []

    def request(self, identity: str) -> InferenceRequest:
        return InferenceRequest("m", "1", [Tensor("x", "INT8", (1,), b"1")], self.responses.append, identity)

    @property
    def ids(self) -> list[str]:
        return [response.id for response in self.responses]


def make(*instances: Played, policy: BatchPolicy | None = None) -> tuple[Scheduler, ModelStatistics]:
    statistics = ModelStatistics()
    runners = [LoopRunner(f"m_0_{number}", instance) for number, instance in enumerate(instances)]
    return Scheduler(name="m", version=1, policy=policy, instances=runners, statistics=statistics), statistics


def submit(scheduler: Scheduler, client: Client, *identities: str) -> list[InferenceRequest]:
    requests = [client.request(identity) for identity in identities]
    for request in requests:
        scheduler.submit(request)
    return requests


async def test_the_played_instance_is_one() -> None:
    assert isinstance(Played(), LoopInstance)


async def test_batches_run_one_after_the_other() -> None:
    instance, client = Played(), Client()
    scheduler, statistics = make(instance)
    submit(scheduler, client, "a", "b")
    assert instance.messages == [1]
    instance.finish()
    assert client.ids == ["a"] and instance.messages == [1, 1]
    instance.finish()
    assert client.ids == ["a", "b"] and scheduler.inflight_count() == 0
    assert statistics.success.count == 2 and statistics.execution_count == 2


async def test_the_only_instance_is_given_short_batches_ahead_and_several_at_once() -> None:
    instance, client = Played(depth=4), Client()
    scheduler, _ = make(instance)
    submit(scheduler, client, *"abcdefgh")
    assert instance.messages == [1, 1, 1]  # more than half would still run: no message for one batch
    instance.finish()
    assert instance.messages == [1, 1, 1, 2]
    while instance.running:
        instance.finish()
    assert client.ids == list("abcdefgh")


async def test_one_of_several_instances_is_given_nothing_ahead() -> None:
    first, second, client = Played(depth=4), Played(depth=4), Client()
    scheduler, _ = make(first, second)
    submit(scheduler, client, "a", "b", "c")
    assert len(first.running) == len(second.running) == 1
    second.finish()
    assert len(second.running) == 1


async def test_dynamic_batches_are_not_given_ahead() -> None:
    instance, client = Played(depth=4), Client()
    scheduler, _ = make(instance, policy=BatchPolicy(8))
    submit(scheduler, client, "a")
    await asyncio.sleep(0)
    submit(scheduler, client, "b", "c")
    await asyncio.sleep(0)
    assert [len(execution.requests) for execution in instance.running] == [1]
    instance.finish()
    assert [len(execution.requests) for execution in instance.running] == [2]


async def test_responses_apart_from_their_batch_may_come_after_the_next_batch_began() -> None:
    instance, client = Played(), Client()
    scheduler, statistics = make(instance)
    first, second = submit(scheduler, client, "a", "b")
    instance.finish(apart=True)
    assert not client.responses and scheduler.inflight_count() == 2
    assert [execution.requests for execution in instance.running] == [[second]]
    instance.events.responded(first, InferenceResponse("", "", final=False))
    instance.finish()
    instance.events.responded(first, InferenceResponse("", "", flag_only=True))
    assert [(response.id, response.final) for response in client.responses] == [("a", False), ("b", True), ("a", True)]
    assert client.responses[0].model_name == "m" and client.responses[0].model_version == "1"
    assert scheduler.inflight_count() == 0
    assert statistics.success.count == 2 and statistics.inference_count == 2


async def test_an_error_apart_from_its_batch_counts_as_a_failure() -> None:
    instance, client = Played(), Client()
    scheduler, statistics = make(instance)
    (request,) = submit(scheduler, client, "a")
    instance.finish(apart=True)
    error = InferenceError(ErrorCode.NOT_FOUND, "nothing there")
    instance.events.responded(request, InferenceResponse("", "", error=error))
    assert client.responses[0].error is error
    assert statistics.failures[FailureReason.BACKEND] == 1 and statistics.success.count == 0


async def test_response_parameters_reach_the_response() -> None:
    instance, client = Played(), Client()
    scheduler, _ = make(instance, policy=BatchPolicy(8))
    submit(scheduler, client, "a", "b")
    await asyncio.sleep(0)
    instance.running[0].parameters = {1: {"seen": True}}
    instance.finish()
    assert [response.parameters for response in client.responses] == [{}, {"seen": True}]


async def test_unloading_waits_for_responses_that_come_apart() -> None:
    instance, client = Played(), Client()
    scheduler, _ = make(instance)
    (request,) = submit(scheduler, client, "a")
    instance.finish(apart=True)
    draining = asyncio.ensure_future(scheduler.drain(5))
    await asyncio.sleep(0)
    assert not draining.done()
    with pytest.raises(InferenceError, match="has stopped accepting"):
        scheduler.submit(client.request("b"))
    instance.events.responded(request, InferenceResponse("", "", flag_only=True))
    assert await draining
    await scheduler.close(5)
    assert instance.detached and instance.closed
    assert STOPPED


async def test_closing_ends_what_does_not_end_by_itself() -> None:
    instance, client = Played(), Client()
    scheduler, _ = make(instance)
    submit(scheduler, client, "a")
    await scheduler.close(0.05)
    assert client.responses[0].error is not None and instance.closed
    assert scheduler.inflight_count() == 0


async def test_requests_wait_for_an_instance_that_is_being_replaced() -> None:
    instance, client = Played(), Client()
    scheduler, _ = make(instance)
    submit(scheduler, client, "a", "b")
    assert scheduler.ready()
    instance.die()
    assert client.ids == ["a"] and client.responses[0].error is not None
    assert not scheduler.ready() and not instance.running
    instance.come_back()
    assert scheduler.ready()
    instance.finish()
    assert client.ids == ["a", "b"] and client.responses[1].error is None


async def test_nobody_waits_for_an_instance_that_will_not_be_back_soon() -> None:
    instance, client = Played(), Client()
    scheduler, _ = make(instance)
    submit(scheduler, client, "a", "b")
    instance.die(InferenceError(ErrorCode.INTERNAL, "gone for a while"))
    assert client.ids == ["a", "b"]
    with pytest.raises(InferenceError, match="gone for a while"):
        scheduler.submit(client.request("c"))
    instance.come_back()
    submit(scheduler, client, "d")
    instance.finish()
    assert client.ids == ["a", "b", "d"]


async def test_the_other_instance_takes_over() -> None:
    first, second, client = Played(), Played(), Client()
    scheduler, _ = make(first, second)
    first.die(InferenceError(ErrorCode.INTERNAL, "gone for a while"))
    submit(scheduler, client, "a", "b")
    second.finish()
    second.finish()
    assert client.ids == ["a", "b"] and all(response.error is None for response in client.responses)


async def test_a_model_that_says_no_is_not_ready_but_answers() -> None:
    instance, client = Played(), Client()
    scheduler, _ = make(instance)
    instance.says_ready = False
    assert not scheduler.ready()
    submit(scheduler, client, "a")
    instance.finish()
    assert client.ids == ["a"]


async def test_a_queued_request_that_is_cancelled_is_answered_without_running() -> None:
    instance, client = Played(), Client()
    scheduler, statistics = make(instance)
    _, queued = submit(scheduler, client, "a", "b")
    queued.cancel()
    await asyncio.sleep(0)
    assert client.ids == ["b"] and client.responses[0].error is not None
    assert client.responses[0].error.code is ErrorCode.CANCELLED
    instance.finish()
    assert client.ids == ["b", "a"] and not instance.running
    assert statistics.failures[FailureReason.CANCELED] == 1


async def test_instance_that_leaves_answers_what_it_owes_first() -> None:
    old, new, client = Played(), Played(), Client()
    runner = LoopRunner("m_0_0", old)
    scheduler = Scheduler(name="m", version=1, policy=None, instances=[runner], statistics=ModelStatistics())
    (request,) = submit(scheduler, client, "a")
    old.owed = 1
    old.finish(apart=True)
    scheduler.set_instances([LoopRunner("m_0_1", new)], [runner])
    submit(scheduler, client, "b")
    new.finish()
    assert client.ids == ["b"] and not old.detached, "a has no response yet"
    old.events.responded(request, InferenceResponse("", "", flag_only=True))
    old.owed = 0
    await asyncio.sleep(0)
    assert client.ids == ["b", "a"] and old.detached
    await scheduler.close(5.0)
    assert old.closed and new.closed


async def test_instance_that_is_added_takes_what_the_busy_one_cannot() -> None:
    first, second, client = Played(), Played(), Client()
    runner = LoopRunner("m_0_0", first)
    scheduler = Scheduler(name="m", version=1, policy=None, instances=[runner], statistics=ModelStatistics())
    submit(scheduler, client, "a")
    scheduler.set_instances([LoopRunner("m_0_1", second)], [])
    submit(scheduler, client, "b", "c")
    assert len(first.running) == len(second.running) == 1
    second.finish()
    first.finish()
    second.finish()
    assert client.ids == ["b", "a", "c"]
    submit(scheduler, client, "d", "e")
    assert len(first.running) == len(second.running) == 1
    for instance in (first, second):
        instance.finish()
    await scheduler.close(5.0)


async def test_instance_that_is_being_replaced_leaves_at_once() -> None:
    old, new = Played(), Played()
    runner = LoopRunner("m_0_0", old)
    scheduler = Scheduler(name="m", version=1, policy=None, instances=[runner], statistics=ModelStatistics())
    old.die()
    scheduler.set_instances([LoopRunner("m_0_1", new)], [runner])
    assert old.detached and scheduler.ready()
    await scheduler.close(5.0)


@pytest.mark.parametrize("policy", [None, BatchPolicy(1)])
@pytest.mark.parametrize("depth", [1, 3])
def test_deadlines_of_callers_fire_while_the_only_instance_is_busy(
    monkeypatch: pytest.MonkeyPatch, policy: BatchPolicy | None, depth: int
) -> None:
    loop, client, instance = PlayedLoop(), Client(), Played(depth)
    play_time(monkeypatch, loop)
    requests = [client.request(identity) for identity in "abcdef"]
    for milliseconds, request in zip((0, 0, 0, 30, 10, 0), requests, strict=True):
        request.deadline_ns = round((loop.now + milliseconds / 1000) * 1e9) if milliseconds else 0

    async def begin() -> None:
        scheduler, _ = make(instance, policy=policy)
        for request in requests:
            scheduler.submit(request)

    loop.run_until_complete(begin())
    loop.advance(0.009)
    assert client.ids == []
    loop.advance(0.002)
    assert client.ids == ["e"]
    loop.advance(0.030)
    assert client.ids == ["e", "d"]
    assert {str(response.error) for response in client.responses} == {"Request timeout expired"}
    loop.close()
