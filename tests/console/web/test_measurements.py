"""The page that measures a version: form, warning, figures, comparison, and who may."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.utils import timezone

from registry.domain.measurements import Cell, Grid
from registry.models import ModelVersion, Operation, OperationState, ServingNode, VersionMeasurement
from registry.services import fleet
from registry.services.measurements import measurement_record, measurement_start
from serving_node.contract.control import Observed, ObservedUnit
from serving_node.contract.states import UnitState
from tests.console.web.conftest import Browse, Served

PATH = "/p/wren/models/finch/versions/{}/measurements/"


def let_answer(node: ServingNode, *, weight: int = 0) -> None:
    """Let the node be there, with a unit that serves so much."""
    unit = ObservedUnit("finch", "u1", 1, UnitState.READY, routed_weight=weight)
    observed = Observed(node=str(node.pk), epoch=1, generation_seen=1, generation_applied=1, models=(unit,))
    fleet.node_observe(node=node, observed=observed, now=timezone.now())


def add_measurement(served: Served, version: ModelVersion, rate: float, **more: Any) -> VersionMeasurement:
    operation = measurement_start(
        version=version, node=served.node, batch=(1,), seconds=0.5, actor=served.cast.actor("alice")
    )
    config = version.model.configs.first()
    assert config is not None
    cells = [
        Cell(1, 1, 2, 0.25, 4096, 100, 0, rate, rate, 1.5, 2.5, 1.0, 0.1),
        Cell(1, 2, 4, error="The version could not be loaded: out of memory"),
    ]
    measurement = measurement_record(
        operation=operation, version=version, config=config, grid=Grid((1,), (1, 2), 0.5), cells=cells
    )
    Operation.objects.filter(pk=operation.pk).update(state=OperationState.SUCCEEDED, **more)
    return measurement


def test_without_a_node_that_answers_there_is_nothing_to_choose(served: Served, browse: Browse) -> None:
    text = browse("bob").get(PATH.format(1)).content.decode()
    assert "No node answers" in text and "Not measured yet" in text


def test_the_form_asks_a_worker_and_says_the_same_for_a_terminal(served: Served, browse: Browse) -> None:
    let_answer(served.node)
    bob = browse("bob")
    page = bob.get(PATH.format(1)).content.decode()
    assert "flotilla bench-model finch 1 --node node-1" in page and "measurements/" in page
    given = {"node": str(served.node.pk), "config": "1", "batch": "1", "instances": "2, 1", "seconds": "0.5"}
    answer = bob.post(PATH.format(1), {**given, "shapes": ""}, follow=True)
    operation = Operation.objects.get(kind="bench_model")
    assert operation.params["grid"] == {"batch": [1], "instances": [1, 2], "seconds": 0.5, "shapes": {}}
    assert f"operation-live-{operation.pk}" in answer.content.decode()


@pytest.mark.parametrize(
    ("field", "text"), [("batch", "eight"), ("batch", "100000"), ("instances", ""), ("seconds", "99"), ("shapes", "x")]
)
def test_what_was_typed_stays_beside_the_error(served: Served, browse: Browse, field: str, text: str) -> None:
    let_answer(served.node)
    given = {"node": str(served.node.pk), "config": "1", "batch": "1", "instances": "1", "seconds": "1", "shapes": ""}
    answer = browse("bob").post(PATH.format(1), {**given, field: text})
    page = answer.content.decode()
    assert answer.status_code == 422 and not Operation.objects.filter(kind="bench_model").exists()
    assert f'id="id_{field}_error"' in page
    assert f'value="{text}"' in page or not text


def test_it_warns_where_the_node_serves(served: Served, browse: Browse) -> None:
    let_answer(served.node)
    assert "measure-busy" not in browse("bob").get(PATH.format(1)).content.decode()
    let_answer(served.node, weight=100)
    assert "node-1 serves requests now" in browse("bob").get(PATH.format(1)).content.decode()


def test_viewers_see_figures_and_why_they_may_not_measure(served: Served, browse: Browse) -> None:
    let_answer(served.node)
    add_measurement(served, served.version, 100.0)
    page = browse("vera").get(PATH.format(1)).content.decode()
    assert "2.5 ms" in page and "out of memory" in page
    assert re.search(r'data-testid="measure-start"\s+disabled', page) and "publisher" in page
    assert browse("vera").post(PATH.format(1), {}).status_code == 422
    assert browse("charlie").get(PATH.format(1)).status_code == 404


def test_figures_stand_beside_those_of_the_version_before(served: Served, browse: Browse) -> None:
    let_answer(served.node)
    second = served.cast.ready_version("finch", b"other weights")
    add_measurement(served, served.version, 100.0)
    add_measurement(served, second, 150.0)
    page = browse("bob").get(PATH.format(2)).content.decode()
    assert "Compared with version 1" in page and "+50.0 %" in page
    data = re.search(r'<script id="measurement-plot" type="application/json">(.*?)</script>', page)
    assert data is not None
    lines = json.loads(data[1])["lines"]
    assert [(line["label"], line["before"], line["rows_per_second"]) for line in lines] == [
        ("1 instance", False, [150.0]),
        ("1 instance, v1 (dashed)", True, [100.0]),
        ("2 instances", False, [None]),
    ]


def test_earlier_measurements_and_failed_ones_are_shown(served: Served, browse: Browse) -> None:
    let_answer(served.node)
    old = add_measurement(served, served.version, 100.0)
    add_measurement(served, served.version, 120.0)
    bob = browse("bob")
    page = bob.get(PATH.format(1)).content.decode()
    assert "Measured before" in page and f"?measurement={old.pk}" in page and "120" in page
    assert "100<" in bob.get(f"{PATH.format(1)}?measurement={old.pk}").content.decode()
    failed = measurement_start(version=served.version, node=served.node, actor=served.cast.actor("alice"))
    Operation.objects.filter(pk=failed.pk).update(
        state=OperationState.FAILED, error={"code": "node_unreachable", "message": "Node node-1 is gone."}
    )
    assert "Node node-1 is gone." in bob.get(PATH.format(1)).content.decode()


def test_the_page_of_the_node_names_a_copy_for_what_it_is(served: Served, browse: Browse) -> None:
    unit = ObservedUnit("~0123", "measure-0123-1-1", 1, UnitState.LOADING)
    observed = Observed(node=str(served.node.pk), epoch=1, generation_seen=1, generation_applied=1, models=(unit,))
    fleet.node_observe(node=served.node, observed=observed, now=timezone.now())
    page = browse("vera").get(f"/fleet/nodes/{served.node.pk}/").content.decode()
    assert "loaded to be measured" in page and "you are not in" not in page
