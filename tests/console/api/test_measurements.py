"""Measuring a version through the API: an operation to follow, measurements to read, refusals at their fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from registry.domain.measurements import Cell, Grid
from registry.models import ModelVersion, Operation, ServingNode, VersionMeasurement
from registry.services import fleet
from registry.services.measurements import measurement_record
from serving_node.contract.control import Observed
from tests.console.conftest import Cast, join_node

BASE = "/api/v1/projects/wren/models/finch/versions/1/measurements/"


@pytest.fixture
def node(cast: Cast) -> ServingNode:
    cast.environment("dev", approvals=0)
    node, _token = join_node(cast, environment="dev")
    seen = Observed(node=str(node.pk), epoch=1, generation_seen=0, generation_applied=0)
    fleet.node_observe(node=node, observed=seen, now=timezone.now())
    node.refresh_from_db()
    return node


@pytest.fixture
def version(cast: Cast) -> ModelVersion:
    return cast.ready_version()


def record(operation: Operation, version: ModelVersion) -> VersionMeasurement:
    config = version.model.configs.get()
    cells = [Cell(1, 1, 2, requests=10, rows_per_second=50.0)]
    return measurement_record(operation=operation, version=version, config=config, grid=Grid((1,)), cells=cells)


def test_it_answers_with_the_operation_and_later_with_the_figures(
    api: Callable[..., Any], version: ModelVersion, node: ServingNode
) -> None:
    bob = api("bob")
    answer = bob.post(BASE, {"node": node.name, "instances": [2, 1], "seconds": 0.5})
    assert answer.status_code == 202, answer.content
    operation = Operation.objects.get(pk=answer.json()["id"])
    assert answer.headers["Location"] == f"/api/v1/operations/{operation.pk}/"
    assert operation.kind == "bench_model"
    assert operation.params["grid"]["instances"] == [1, 2]

    made = record(operation, version)
    [listed] = bob.get(BASE).json()["results"]
    assert listed == bob.get(f"{BASE}{made.pk}/").json()
    assert (listed["node"], listed["version"], listed["cells"][0]["rows_per_second"]) == (node.name, 1, 50.0)
    assert api("vera").get(f"{BASE}{made.pk}/").status_code == 200
    assert api("charlie").get(f"{BASE}{made.pk}/").status_code == 404
    ModelVersion.objects.create(model=version.model, number=2, state="ready", author=version.author)
    assert bob.get(f"{BASE.replace('versions/1', 'versions/2')}{made.pk}/").status_code == 404


@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"node": "nowhere"}, 404, None),
        ({"config": 9}, 404, None),
        ({"batch": [100000]}, 400, "batch"),
        ({"seconds": 99}, 400, "seconds"),
        ({"shapes": {"z": [1]}}, 400, "shapes"),
        ({"batch": ["x"]}, 400, "batch.0"),
    ],
)
def test_refusals_name_the_field(
    api: Callable[..., Any],
    version: ModelVersion,
    node: ServingNode,
    change: dict[str, Any],
    status: int,
    field: str | None,
) -> None:
    answer = api("bob").post(BASE, {"node": node.name, **change})
    assert answer.status_code == status, answer.content
    if field:
        assert field.partition(".")[0] in str(answer.json()["errors"][0]["field"])
    assert not Operation.objects.filter(kind="bench_model").exists()


def test_viewers_may_not_and_one_at_a_time(api: Callable[..., Any], version: ModelVersion, node: ServingNode) -> None:
    assert api("vera").post(BASE, {"node": node.name}).status_code == 403
    assert api("bob").post(BASE, {"node": str(node.pk)}).status_code == 202
    again = api("bob").post(BASE, {"node": node.name})
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
