"""Priorities, delays and order through the whole scheduler, with slow instances and played time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.observability.statistics import FailureReason, ModelStatistics
from serving_node.scheduling.batch import Batch
from serving_node.scheduling.policy import BatchPolicy, QueuePolicy, TimeoutAction
from serving_node.scheduling.scheduler import Scheduler
from tests.serving_node.scheduling.played import PlayedLoop, PlayedThread, play_time

MS = 1_000_000


class World:
    """A scheduler with threads that the test plays."""

    def __init__(self, loop: PlayedLoop, policy: BatchPolicy | None, count: int) -> None:
        self.loop = loop
        self.batches: list[str] = []
        self.answered: list[str] = []
        self.errors: dict[str, str] = {}
        self.threads = [PlayedThread(str(number), self._began) for number in range(count)]
        self.statistics = ModelStatistics()
        self.within(lambda: self._start(policy))

    def _start(self, policy: BatchPolicy | None) -> None:
        self.scheduler = Scheduler(
            name="m", version=1, policy=policy, instances=self.threads, statistics=self.statistics
        )

    def _began(self, batch: Batch) -> None:
        self.batches.append("".join(request.id for request in batch.requests))

    def _answered(self, response: InferenceResponse) -> None:
        self.answered.append(response.id)
        if response.error is not None:
            self.errors[response.id] = response.error.message

    def within(self, act: Callable[[], object]) -> None:
        async def run() -> None:
            act()

        self.loop.run_until_complete(run())
        self.loop.settle()

    def submit(self, identities: str, priority: int = 0, timeout_us: int = 0) -> None:
        def act() -> None:
            for identity in identities:
                request = InferenceRequest("m", "1", [], self._answered, identity, priority=priority)
                request.timeout_us = timeout_us
                self.scheduler.submit(request)

        self.within(act)

    def finish(self, thread: int = 0) -> None:
        self.within(lambda: self.threads[thread].finish(None))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., World]]:
    loop = PlayedLoop()
    play_time(monkeypatch, loop)
    yield lambda policy, count=1: World(loop, policy, count)
    loop.close()


def test_an_urgent_request_overtakes_all_that_has_not_begun(world: Callable[..., World]) -> None:
    levels = (QueuePolicy(), QueuePolicy(), QueuePolicy())
    played = world(BatchPolicy(2, default_level=2, levels=levels))
    played.submit("a", priority=3)
    played.submit("bcd", priority=3)
    played.submit("e")
    played.submit("fg", priority=1)
    for _ in range(4):
        played.finish()
    assert played.batches == ["a", "fg", "eb", "cd"]
    assert played.answered == list("afgebcd")


def test_delayed_requests_run_after_those_that_are_in_time(world: Callable[..., World]) -> None:
    levels = (QueuePolicy(TimeoutAction.DELAY, 10 * MS, allow_timeout_override=True),)
    played = world(BatchPolicy(2, levels=levels))
    played.submit("a")
    played.submit("bc")
    played.submit("d", timeout_us=2000)
    played.loop.advance(0.009)
    played.submit("e")
    played.loop.advance(0.009)
    assert played.answered == [], "nobody is rejected"
    played.submit("f")
    for _ in range(4):
        played.finish()
    assert played.batches == ["a", "ef", "db", "c"]
    assert not played.errors


def test_rejected_on_time_and_by_the_shorter_time_out(world: Callable[..., World]) -> None:
    levels = (QueuePolicy(TimeoutAction.REJECT, 30 * MS, allow_timeout_override=True),)
    played = world(BatchPolicy(2, levels=levels))
    played.submit("a")
    played.submit("b")
    played.submit("c", timeout_us=5000)
    played.submit("d", timeout_us=50_000)
    played.loop.advance(0.004)
    assert played.answered == []
    played.loop.advance(0.002)
    assert played.answered == ["c"]
    played.loop.advance(0.023)
    assert played.answered == ["c"]
    played.loop.advance(0.002)
    assert played.answered == ["c", "b", "d"]
    assert set(played.errors.values()) == {"Request timeout expired"}
    assert played.statistics.failures[FailureReason.REJECTED] == 3
    played.finish()
    assert played.batches == ["a"]


def test_order_is_preserved_whatever_instance_is_faster(world: Callable[..., World]) -> None:
    played = world(BatchPolicy(1, preserve_ordering=True), 3)
    played.submit("abcde")
    assert played.batches == ["a", "b", "c"]
    played.finish(2)
    played.finish(1)
    assert played.batches == ["a", "b", "c", "d", "e"] and played.answered == []
    played.finish(0)
    assert played.answered == ["a", "b", "c"]
    played.finish(1)
    assert played.answered == ["a", "b", "c"], "e is done before d"
    played.finish(2)
    assert played.answered == list("abcde")


def test_a_batch_grows_until_an_instance_takes_it(world: Callable[..., World]) -> None:
    played = world(BatchPolicy(4, max_queue_delay_ns=5 * MS))
    played.submit("a")
    played.loop.advance(0.005)
    played.submit("b")
    played.loop.advance(0.005)
    played.submit("c")
    played.loop.advance(1.0)
    played.submit("d")
    played.finish()
    assert played.batches == ["a", "bcd"]
