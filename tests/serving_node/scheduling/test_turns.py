"""Instances of several models that share resources, in the order in which the limiter lets them run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial

import pytest

from serving_node.contract.proto.model_config_pb2 import ModelInstanceGroup
from serving_node.core.backend import Device, DeviceKind
from serving_node.core.errors import InferenceError
from serving_node.core.execution import Execution
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.core.tensor import Tensor
from serving_node.observability.statistics import ModelStatistics
from serving_node.scheduling.batch import Batch
from serving_node.scheduling.instances import InstanceThread
from serving_node.scheduling.policy import BatchPolicy
from serving_node.scheduling.rate_limit import GLOBAL, Limit, Need
from serving_node.scheduling.scheduler import Scheduler
from serving_node.scheduling.turns import Share, Turns, share_of
from tests.serving_node.scheduling.played import PlayedLoop, PlayedRunner, PlayedThread, play_time

ONE = Share((Need("R", 1, 0),))


class Members:
    """Instances of one model; ``work`` is what they have to do."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.ran: list[str] = []
        self.work = 100

    def run(self, key: str) -> bool:
        if not self.work:
            return False
        self.work -= 1
        self.ran.append(key)
        return True


async def test_a_share_is_read_from_the_group() -> None:
    group = ModelInstanceGroup()
    group.rate_limiter.priority = 2
    group.rate_limiter.resources.add(name="A", count=3)
    group.rate_limiter.resources.add(name="B", count=1, **{"global": True})
    share = share_of(group, Device(DeviceKind.GPU, 5))
    assert share == Share((Need("A", 3, 5), Need("B", 1, GLOBAL)), 2)


async def test_the_next_one_runs_when_resources_come_free() -> None:
    turns = Turns([Limit("R", 1)])
    turns.add({"a": ONE, "b": ONE})
    members = Members(turns)
    turns.ask(["a"], members.run)
    turns.ask(["b"], members.run)
    assert members.ran == ["a"]
    turns.release("a")
    assert members.ran == ["a"], "the scheduler of a may ask again first"
    await asyncio.sleep(0)
    assert members.ran == ["a", "b"]


async def test_who_has_run_less_comes_first_though_it_asks_later() -> None:
    turns = Turns([Limit("R", 1)])
    turns.add({"a": ONE, "b": ONE})
    members = Members(turns)
    for _ in range(2):
        turns.ask(["a"], members.run)
        turns.release("a")
    turns.ask(["a"], members.run)
    turns.ask(["b"], members.run)
    turns.release("a")
    turns.ask(["a"], members.run)
    assert members.ran == ["a", "a", "a", "b"]


async def test_a_turn_that_is_not_used_goes_on_and_does_not_count() -> None:
    turns = Turns([Limit("R", 1)])
    turns.add({"a": ONE, "b": ONE})
    idle, busy = Members(turns), Members(turns)
    idle.work = 0
    turns.ask(["a"], idle.run)
    turns.ask(["b"], busy.run)
    assert busy.ran == ["b"] and not idle.ran
    idle.work = 1
    turns.ask(["a"], idle.run)
    turns.release("b")
    turns.ask(["b"], busy.run)
    assert idle.ran == ["a"], "it has run less"


async def test_a_fault_of_one_model_does_not_stop_the_others() -> None:
    turns = Turns([Limit("R", 1)])
    turns.add({"a": ONE, "b": ONE})
    members = Members(turns)

    def explode(key: str) -> bool:
        raise RuntimeError("bug")

    turns.ask(["a"], explode)
    turns.ask(["b"], members.run)
    assert members.ran == ["b"]


async def test_asking_twice_and_asking_for_strangers_changes_nothing() -> None:
    turns = Turns([Limit("R", 1)])
    turns.add({"a": ONE, "b": ONE})
    members = Members(turns)
    turns.ask(["a", "b", "stranger"], members.run)
    turns.ask(["a", "b"], members.run)
    turns.release("stranger")
    assert members.ran == ["a"]


async def test_who_leaves_makes_room() -> None:
    turns = Turns([Limit("R", 1)])
    turns.add({"a": ONE, "b": ONE})
    members = Members(turns)
    turns.ask(["a", "b"], members.run)
    turns.remove(["a"])
    await asyncio.sleep(0)
    assert members.ran == ["a", "b"]


async def test_instances_take_part_all_or_none() -> None:
    turns = Turns([Limit("R", 1)])
    with pytest.raises(InferenceError, match="minimum required count is 2"):
        turns.add({"a": ONE, "b": Share((Need("R", 2, 0),))})
    members = Members(turns)
    turns.ask(["a"], members.run)
    assert not members.ran


class Slow:
    """An engine on a thread that runs when it is let."""

    def __init__(self, alone: threading.Lock) -> None:
        self.alone = alone
        self.let = threading.Semaphore(0)
        self.sizes: list[int] = []

    def execute(self, execution: Execution) -> None:
        assert self.alone.acquire(blocking=False), "two run although there is one resource"
        self.sizes.append(len(execution.requests))
        assert self.let.acquire(timeout=30)
        self.alone.release()
        execution.results.extend(list(request.inputs) for request in execution.requests)

    def close(self) -> None:
        pass


async def test_threads_of_two_models_take_turns_and_batches_grow_meanwhile() -> None:
    turns, alone = Turns([Limit("R", 1)]), threading.Lock()
    engines = [Slow(alone), Slow(alone)]
    schedulers: list[Scheduler] = []
    answers: asyncio.Queue[InferenceResponse] = asyncio.Queue()
    for number, engine in enumerate(engines):
        thread = InstanceThread(f"{number}", engine)
        turns.add({thread: ONE})
        policy = BatchPolicy(4)
        name, statistics = f"m{number}", ModelStatistics()
        schedulers.append(
            Scheduler(name=name, version=1, policy=policy, instances=[thread], statistics=statistics, turns=turns)
        )

    def submit(which: int) -> None:
        schedulers[which].submit(
            InferenceRequest("m", "1", [Tensor("x", "INT8", (1,), b"1")], answers.put_nowait, str(which))
        )

    submit(0)
    await asyncio.sleep(0)
    for which in (0, 1, 1, 1, 0):
        submit(which)
    for engine in engines:
        for _ in range(10):
            engine.let.release()
    for _ in range(6):
        response = await asyncio.wait_for(answers.get(), 30)
        assert response.error is None
    assert engines[0].sizes == [1, 2]
    assert engines[1].sizes == [3], "what came while it waited for its turn is one batch"
    for scheduler in schedulers:
        await scheduler.close(10)
    assert not turns._members


async def test_priority_2_runs_half_as_often() -> None:
    turns = Turns([Limit("R", 1)])
    turns.add({"often": Share((Need("R", 1, 0),), 1), "seldom": Share((Need("R", 1, 0),), 2)})
    members = Members(turns)
    turns.ask(["often", "seldom"], members.run)
    for _ in range(99):
        key = members.ran[-1]
        turns.release(key)
        turns.ask([key], members.run)
    assert members.ran.count("often") in range(2 * members.ran.count("seldom") - 2, 2 * members.ran.count("seldom") + 3)


def test_an_instance_that_died_while_it_waits_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = PlayedLoop()
    play_time(monkeypatch, loop)
    began: list[str] = []
    turns = Turns([Limit("R", 3)])

    def note(batch: Batch) -> None:
        began.extend(request.id for request in batch.requests)

    threads = [PlayedThread("a0", note), PlayedThread("a1", note)]
    runner = PlayedRunner("b0", note)
    turns.add({threads[0]: ONE, threads[1]: ONE, runner: Share((Need("R", 3, 0),))})

    async def start(*instances: PlayedThread | PlayedRunner) -> Scheduler:
        statistics = ModelStatistics()
        return Scheduler(name="m", version=1, policy=None, instances=instances, statistics=statistics, turns=turns)

    async def submit(scheduler: Scheduler, identity: str) -> None:
        scheduler.submit(InferenceRequest("m", "1", [], lambda _: None, identity))

    async def change(act: Callable[[], None]) -> None:
        act()

    first, second = loop.run_until_complete(start(*threads)), loop.run_until_complete(start(runner))
    for identity in "123":
        loop.run_until_complete(submit(first, identity))
        if identity < "3":
            for thread in threads:
                if thread.running:
                    loop.run_until_complete(change(partial(thread.finish, None)))
    loop.settle()
    loop.run_until_complete(submit(second, "large"))
    loop.run_until_complete(submit(first, "4"))
    loop.settle()
    held_up = "4" not in began
    loop.run_until_complete(change(partial(runner.die, None)))
    loop.settle()
    assert "4" in began and "large" not in began
    for thread in threads:
        if thread.running:
            loop.run_until_complete(change(partial(thread.finish, None)))
    loop.run_until_complete(change(runner.come_back))
    loop.settle()
    assert began[-1] == "large", "it runs when its instance is back"
    assert held_up, "until it died it was the first in line"
    loop.close()
