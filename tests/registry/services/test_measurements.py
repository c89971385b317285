from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from registry.domain.measurements import Cell, Grid
from registry.errors import Conflict, NotFound, PermissionDenied, ValidationFailed
from registry.models import AuditEvent, ModelVersion, Operation, ScratchUnit, ServingNode, VersionMeasurement
from registry.selectors.blobs import node_may_read
from registry.selectors.configs import config_latest
from registry.selectors.desired import desired_state
from registry.selectors.measurements import measurement_compared, measurement_get, measurements_of, nodes_measurable
from registry.services import fleet, measurements
from registry.services.operations import operation_cancel, operation_claim, operation_succeed
from registry.services.versions import version_quarantine
from tests.registry.conftest import World

pytestmark = pytest.mark.django_db

GRID = Grid((1,), (1, 2), 0.1)


@pytest.fixture
def node(world: World) -> ServingNode:
    return world.node()


@pytest.fixture
def version(world: World) -> ModelVersion:
    return world.ready(world.model("lark"))


def start(world: World, version: ModelVersion, node: ServingNode, **more: Any) -> Operation:
    return measurements.measurement_start(
        version=version,
        node=node,
        actor=world.actor(more.pop("user", world.carol)),
        **{"batch": GRID.batch, "instances": GRID.instances, "seconds": GRID.seconds, **more},
    )


def place(operation: Operation, version: ModelVersion, owner: str = "w1", instances: int = 1) -> ScratchUnit:
    config = config_latest(version.model)
    assert config is not None
    return measurements.scratch_place(
        operation=operation, owner=owner, version=version, config=config, instances=instances
    )


def test_it_is_an_audited_operation_for_a_worker(world: World, version: ModelVersion, node: ServingNode) -> None:
    operation = start(world, version, node)
    assert (operation.kind, operation.queue, operation.subject_id) == ("bench_model", "jobs", version.id)
    assert Grid.from_json(operation.params["grid"]) == GRID
    event = AuditEvent.objects.get(action="version.measure")
    assert event.after == {"node": "node-1", "config": 1, "grid": GRID.to_json()}


def test_publishers_measure_where_no_approval_is_needed_operators_elsewhere(
    world: World, version: ModelVersion, node: ServingNode
) -> None:
    guarded = world.node("node-2", "production")
    with pytest.raises(PermissionDenied):
        start(world, version, node, user=world.dan)
    with pytest.raises(PermissionDenied, match="operator"):
        start(world, version, guarded)
    start(world, version, guarded, user=world.alice)
    start(world, version, node)


def test_a_node_is_measured_once_at_a_time(world: World, version: ModelVersion, node: ServingNode) -> None:
    operation = start(world, version, node)
    with pytest.raises(Conflict, match="under way"):
        start(world, version, node)
    operation_cancel(operation=operation, actor=world.actor(world.carol))
    start(world, version, node)


def test_a_node_that_is_away_or_leaving_is_refused(world: World, version: ModelVersion, node: ServingNode) -> None:
    assert nodes_measurable() == [node]
    ServingNode.objects.filter(pk=node.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    with pytest.raises(Conflict, match="does not answer"):
        start(world, version, node)
    assert nodes_measurable() == []
    world.observe(node)
    fleet.node_drain(node=node, actor=world.actor(world.alice))
    with pytest.raises(Conflict, match="draining"):
        start(world, version, node)


def test_only_ready_versions_and_grids_that_fit_are_measured(
    world: World, version: ModelVersion, node: ServingNode
) -> None:
    with pytest.raises(ValidationFailed) as refused:
        start(world, version, node, batch=(100_000,))
    assert refused.value.errors[0]["field"] == "batch"
    other = world.ready(world.model("wren"))
    with pytest.raises(ValidationFailed):
        start(world, version, node, config=config_latest(other.model))
    version_quarantine(version=version, reason="bad", actor=world.actor(world.alice))
    with pytest.raises(ValidationFailed, match="ready"):
        start(world, version, node)


def test_the_copy_is_wanted_without_any_route(world: World, version: ModelVersion, node: ServingNode) -> None:
    before = desired_state(node)
    operation = start(world, version, node)
    place(operation, version)
    wanted = desired_state(node)
    assert wanted.generation > before.generation
    [model] = [model for model in wanted.models if model.name.startswith("~")]
    [unit] = model.units
    assert (model.routes, unit.keep_warm, unit.version, unit.config["name"]) == ((), True, 1, model.name)
    assert unit.config["instance_group"][0]["count"] == 1
    assert unit.files and node_may_read(node, unit.files[0].sha256)

    place(operation, version, instances=2)
    again = desired_state(node)
    [model] = [model for model in again.models if model.name.startswith("~")]
    assert model.units[0].unit != unit.unit and again.generation > wanted.generation


def test_the_copy_goes_and_the_node_is_told(world: World, version: ModelVersion, node: ServingNode) -> None:
    operation = start(world, version, node)
    place(operation, version)
    generation = desired_state(node).generation
    measurements.scratch_remove(operation=operation, owner="w1")
    assert desired_state(node).models == () and desired_state(node).generation > generation
    measurements.scratch_remove(operation=operation, owner="w1")
    assert desired_state(node).generation == generation + 1
    assert not node_may_read(node, version.files.get().blob.sha256)


def test_a_worker_that_lost_the_operation_takes_nothing_away(
    world: World, version: ModelVersion, node: ServingNode
) -> None:
    operation = start(world, version, node)
    place(operation, version, "w1")
    place(operation, version, "w2")
    measurements.scratch_remove(operation=operation, owner="w1")
    assert ScratchUnit.objects.get().owner == "w2"


@pytest.mark.parametrize("end", ["succeeded", "cancelled", "lost"])
def test_no_copy_outlives_its_operation(world: World, version: ModelVersion, node: ServingNode, end: str) -> None:
    operation = start(world, version, node)
    assert operation_claim(operation.pk, "w1") is not None
    place(operation, version)
    assert measurements.scratch_sweep() == 0
    if end == "succeeded":
        operation_succeed(operation.pk, "w1")
    else:
        # the worker was killed: nobody renews its lease
        Operation.objects.filter(pk=operation.pk).update(
            lease_until=timezone.now() - timedelta(seconds=1), attempts=5, cancel_requested=end == "cancelled"
        )
        assert operation_claim(operation.pk, "w2") is None
    generation = desired_state(node).generation
    assert measurements.scratch_sweep() == 1
    assert desired_state(node).models == () and desired_state(node).generation == generation + 1


def measured(world: World, version: ModelVersion, node: ServingNode, rate: float) -> VersionMeasurement:
    operation = start(world, version, node)
    config = config_latest(version.model)
    assert config is not None
    cells = [Cell(1, count, 2 * count, requests=10, rows_per_second=rate * count) for count in (1, 2)]
    made = measurements.measurement_record(operation=operation, version=version, config=config, grid=GRID, cells=cells)
    again = measurements.measurement_record(operation=operation, version=version, config=config, grid=GRID, cells=[])
    assert again.pk == made.pk and len(again.cells) == 2
    operation_claim(operation.pk, "w1")
    operation_succeed(operation.pk, "w1")
    return made


def test_measurements_are_kept_and_compared_with_the_version_before(world: World, node: ServingNode) -> None:
    model = world.model("lark")
    first, second = world.ready(model), world.ready(model)
    ServingNode.objects.filter(pk=node.pk).update(inventory={"cpu_count": 2, "hostname": "h"})
    slow = measured(world, first, node, 100.0)
    fast = measured(world, second, node, 150.0)
    assert fast.hardware == {"cpu_count": 2}
    assert list(measurements_of(second)) == [fast]
    compared = measurement_compared(fast)
    assert compared.before == slow
    assert [cell.rows_change for cell in compared.cells] == [0.5, 0.5]
    assert measurement_compared(slow).before is None

    assert measurement_get(world.actor(world.dan), fast.pk) == fast
    with pytest.raises(NotFound):
        measurement_get(world.actor(world.eve), fast.pk)
