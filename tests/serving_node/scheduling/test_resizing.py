"""Which instances stay when a config asks for others, and that requests flow meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from serving_node.contract.model_config import normalise, parse_pbtxt
from serving_node.core.backend import Device
from serving_node.observability.statistics import ModelStatistics
from serving_node.scheduling.instances import InstanceThread
from serving_node.scheduling.resizing import Placement, placements, steps
from serving_node.scheduling.scheduler import Scheduler

from .test_scheduler import DEADLINE, Client, Gate, finish


def placed(text: str) -> list[Placement]:
    return placements(normalise(parse_pbtxt('name: "m" backend: "identity" ' + text), gpu_count=0))


def test_placements_follow_the_groups() -> None:
    found = placed("instance_group { kind: KIND_CPU count: 2 } instance_group { name: 'x' kind: KIND_CPU }")
    assert [one.label for one in found] == ["m_0_0", "m_0_1", "x_0"]
    assert len({one.kind for one in found}) == 1, "name and count do not make another kind"
    assert placed("instance_group { kind: KIND_CPU passive: true }") == []


def test_steps_make_only_what_is_missing_and_end_only_what_is_too_much() -> None:
    one = placed("instance_group { kind: KIND_CPU count: 1 }")
    three = placed("instance_group { kind: KIND_CPU count: 3 }")
    assert [made.label for made in steps(one, three).make] == ["m_0_1", "m_0_2"]
    assert steps(one, three).end == ()
    assert steps(three, one).end == (1, 2)
    assert steps(three, three) == steps([], [])
    other = placed("instance_group { kind: KIND_CPU host_policy: 'p' }")
    assert (steps(one, other).end, len(steps(one, other).make)) == ((0,), 1)


kinds = st.lists(st.sampled_from("abc"), max_size=6)


@given(kinds, kinds)
def test_steps_lead_to_what_is_wanted(current: list[str], wanted: list[str]) -> None:
    before = [Placement(f"m_{n}", Device(), kind) for n, kind in enumerate(current)]
    after = [Placement(f"m_{n}", Device(), kind) for n, kind in enumerate(wanted)]
    plan = steps(before, after)
    kept = [one for n, one in enumerate(before) if n not in plan.end]
    result = [*kept, *plan.make]
    assert Counter(one.kind for one in result) == Counter(wanted)
    assert len({one.label for one in result}) == len(result), "names are unique"
    assert len(plan.make) <= max(len(after) - len(kept), 0)


async def test_new_instance_takes_what_waits() -> None:
    client, old, new = Client(), Gate(), Gate()
    first = InstanceThread("m_0", old)
    scheduler = Scheduler(name="m", version=1, policy=None, instances=[first], statistics=ModelStatistics())
    scheduler.submit(client.request("a"))
    await old.entered()
    scheduler.submit(client.request("b"))
    scheduler.set_instances([InstanceThread("m_1", new)], [])
    await new.entered()
    assert new.batches == [["b"]]
    await finish(scheduler, [old, new])
    assert sorted(client.responses) == ["a", "b"]


async def test_instance_that_leaves_ends_its_batch_and_takes_no_other() -> None:
    client, old, new = Client(), Gate(), Gate()
    first, second = InstanceThread("m_0", old), InstanceThread("m_1", new)
    scheduler = Scheduler(name="m", version=1, policy=None, instances=[first], statistics=ModelStatistics())
    scheduler.submit(client.request("a"))
    await old.entered()
    scheduler.set_instances([second], [first])
    scheduler.submit(client.request("b"))
    scheduler.submit(client.request("c"))
    await new.entered()
    old.let.release()
    await client.wait_for(1)
    assert client.order == ["a"]
    assert await asyncio.to_thread(first.join, DEADLINE)
    assert old.closed
    new.let.release(2)
    await client.wait_for(3)
    await finish(scheduler, [new])
    assert (old.batches, new.batches) == ([["a"]], [["b"], ["c"]])
    assert client.code("c") is None


async def test_idle_instance_that_leaves_is_freed_at_once() -> None:
    old, new = Gate(), Gate()
    freed: list[bool] = []
    threads = [InstanceThread("m_0", old), InstanceThread("m_1", new)]
    scheduler = Scheduler(
        name="m",
        version=1,
        policy=None,
        instances=threads,
        statistics=ModelStatistics(),
        on_closed=lambda: freed.append(True),
    )
    scheduler.set_instances([], threads[:1])
    assert await asyncio.to_thread(threads[0].join, DEADLINE)
    assert (old.closed, new.closed) == (True, False)
    await scheduler.close(DEADLINE)
    assert (new.closed, freed) == (True, [True])
