"""A measurement against a node in memory: figures kept, failures told, and no copy left behind."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import pytest

from registry.domain.actors import Actor
from registry.domain.measurements import Cell, Grid
from registry.models import Operation, ScratchUnit, VersionMeasurement
from registry.selectors.desired import desired_state
from registry.services.measurements import measurement_start
from registry.services.operations import operation_cancel
from serving_node.contract.control import Observed, Reason
from tests.workers import factories
from workers.locks.leases import Lease, LeaseLost
from workers.node_client.client import NodeAddress
from workers.node_client.errors import NodeClientError, NodeErrorCode
from workers.node_client.fake import FakeNode, FakeNodeClient
from workers.reconcile import reconcile_node
from workers.tasks import measuring
from workers.tasks.measuring import bench_model
from workers.tasks.operations import work_on

pytestmark = pytest.mark.django_db(transaction=True)

GRID = Grid((1, 4), (1, 2), 0.1)


class PromptClient(FakeNodeClient):
    """Answers at once: the node moves when it is looked at."""

    async def observed(self, *, after: int | None, timeout_seconds: float) -> Observed:
        return await super().observed(after=None, timeout_seconds=timeout_seconds)


class ObedientNode(FakeNode):
    """Goes one step further each time it is looked at. ``most`` is the largest instance count that it can load."""

    most = 99

    def connect(self, address: NodeAddress) -> PromptClient:
        return PromptClient(self)

    def observed(self) -> Observed:
        for unit in self.states:
            if unit.startswith("measure-") and int(unit.rpartition("-")[2]) > self.most:
                self.failing[unit] = Reason("load_failed", "out of memory")
        self.advance()
        seen = super().observed()
        units = tuple(dataclasses.replace(unit, load_seconds=0.25, memory_bytes=4096) for unit in seen.models)
        return dataclasses.replace(seen, models=units)


class World:
    def __init__(self) -> None:
        self.version = factories.make_ready_version()
        self.owner = self.version.model.owner
        factories.make_fleet()
        self.node = factories.make_node()
        self.fake = ObedientNode("n1")
        reconcile_node(self.node.pk, connect=self.fake.connect)

    def start(self, grid: Grid = GRID) -> Operation:
        return measurement_start(
            version=self.version,
            node=self.node,
            batch=grid.batch,
            instances=grid.instances,
            seconds=grid.seconds,
            actor=Actor.person(self.owner),
        )

    def work(self, operation: Operation) -> Operation:
        work_on(operation.pk, {"bench_model": partial(bench_model, connect=self.fake.connect)})
        operation.refresh_from_db()
        return operation

    def nothing_left(self) -> bool:
        self.node.refresh_from_db()
        return not ScratchUnit.objects.exists() and desired_state(self.node).models == () and not self.fake.states


@pytest.fixture
def world(hints: list[tuple[str, str]]) -> World:
    return World()


def test_every_combination_is_measured_and_the_copy_goes(world: World) -> None:
    operation = world.work(world.start())
    assert operation.state == "succeeded", operation.error
    measurement = VersionMeasurement.objects.get()
    assert operation.result == {"measurement": str(measurement.pk), "cells": 4, "failed": 0}
    cells = measurement.cells
    assert [(cell["instances"], cell["batch"], cell["in_flight"]) for cell in cells] == [
        (1, 1, 2),
        (1, 4, 2),
        (2, 1, 4),
        (2, 4, 4),
    ]
    for cell in cells:
        assert cell["requests"] > 0 and cell["error"] == ""
        assert (cell["load_seconds"], cell["memory_bytes"]) == (0.25, 4096)
        assert (cell["compute_ms"], cell["queue_ms"]) == (0.04, 0.01)
        assert cell["rows_per_second"] == pytest.approx(cell["batch"] * cell["requests_per_second"], rel=1e-3)
    assert (measurement.node_name, measurement.config_number, measurement.created_by) == ("n1", 1, world.owner)
    assert world.nothing_left()


def test_requests_carry_the_batch_to_the_copy(world: World) -> None:
    world.work(world.start(Grid((4,), (1,), 0.1)))
    name, target, request = world.fake.measured[0]
    assert name.startswith("~") and target.unit.startswith("measure-")
    assert b'"shape":[4,4]' in request.body[: request.head_bytes]
    assert len(request.body) - request.head_bytes == 4 * 4 * 4


def test_what_does_not_fit_is_said_and_the_rest_is_kept(world: World) -> None:
    world.fake.most = 1
    operation = world.work(world.start(Grid((1,), (1, 2, 4), 0.1)))
    assert operation.result is not None and (operation.result["cells"], operation.result["failed"]) == (3, 2)
    first, second, third = VersionMeasurement.objects.get().cells
    assert first["error"] == "" and "instance count 2 on n1: out of memory" in second["error"]
    assert third["error"] == second["error"], "what did not fit is not tried with more"
    assert not any(unit.unit.endswith("-4") for push in world.fake.pushes for m in push.models for unit in m.units)
    assert world.nothing_left()


def test_a_version_that_does_not_load_at_all_fails_with_the_reason(world: World) -> None:
    world.fake.most = 0
    operation = world.work(world.start())
    assert (operation.state, VersionMeasurement.objects.count()) == ("failed", 0)
    assert operation.error is not None and "out of memory" in operation.error["message"]
    assert world.nothing_left()


def test_requests_that_are_refused_are_told(world: World) -> None:
    world.fake.answers.append(NodeClientError(NodeErrorCode.INVALID, "unexpected shape"))
    operation = world.work(world.start(Grid((1,), (1,), 0.1)))
    assert operation.error == {"code": "node_node_failed", "message": "unexpected shape"}
    assert world.nothing_left()


def test_a_node_that_goes_away_ends_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    operation = world.start()
    real = world.fake.observed

    def leave() -> Observed:
        world.fake.refuse_requests = 99
        return real()

    monkeypatch.setattr(world.fake, "observed", leave)
    world.work(operation)
    assert operation.error is not None and operation.error["code"] == "node_unreachable"
    assert operation.error["message"].startswith("Node n1 is gone, and the measurement with it")
    # it is told as soon as it is back
    world.fake.refuse_requests = 0
    monkeypatch.undo()
    reconcile_node(world.node.pk, connect=world.fake.connect)
    assert world.nothing_left()


def test_cancelling_takes_the_copy_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    operation = world.start()
    real = Lease.check
    seen: list[int] = []

    def check(self: Lease) -> None:
        # the node holds the copy by now
        if ScratchUnit.objects.exists() and not seen:
            seen.append(len(world.fake.states))
            operation_cancel(operation=operation, actor=Actor.person(world.owner))
            self._lost.set()
        real(self)

    monkeypatch.setattr(Lease, "check", check)
    world.work(operation)
    assert seen == [1]
    assert world.nothing_left()
    assert VersionMeasurement.objects.count() == 0


def test_after_a_killed_worker_the_next_one_does_it_all(world: World) -> None:
    operation = world.start(Grid((1,), (1,), 0.1))

    class Killed(BaseException):
        pass

    def die(operation: Operation, lease: Lease) -> Any:
        from registry.services.measurements import scratch_place

        scratch_place(
            operation=operation,
            owner=lease.owner,
            version=world.version,
            config=world.version.model.configs.get(),
            instances=1,
        )
        raise Killed

    with pytest.raises(Killed):
        work_on(operation.pk, {"bench_model": die})
    Operation.objects.filter(pk=operation.pk).update(lease_until=operation.created_at)
    world.work(operation)
    assert (operation.state, operation.attempts) == ("succeeded", 2)
    assert world.nothing_left()


def test_lease_lost_is_not_an_outcome(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    operation = world.start()

    def lost(self: Lease, *_arguments: Any, **_more: Any) -> None:
        raise LeaseLost

    monkeypatch.setattr(Lease, "report", lost)
    world.work(operation)
    assert operation.state == "running", "whoever has the lease now says how it ends"


def test_what_takes_too_long_is_left_out_and_the_rest_is_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    operation = world.start(Grid((1, 2), (1,), 0.1))
    bench: list[Any] = []
    real = measuring._Bench._measure

    def measure(self: Any, scratch: ScratchUnit, cell: Cell) -> Cell:
        if bench:
            self._end = 0.0
        bench.append(self)
        return real(self, scratch, cell)

    monkeypatch.setattr(measuring._Bench, "_measure", measure)
    world.work(operation)
    assert operation.state == "succeeded"
    first, second = VersionMeasurement.objects.get().cells
    assert first["requests"] > 0 and "more than 12 minutes" in second["error"]
    assert world.nothing_left()


def test_a_node_that_does_not_load_in_time_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "LOAD_SECONDS", -1.0)
    operation = world.work(world.start(Grid((1,), (1,), 0.1)))
    assert operation.error is not None and "did not load the version within" in operation.error["message"]
    assert world.nothing_left()
