"""The heat map: what each cell says, for whom, and which fifth of the scale it is in."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from console.web.heat import legend, step_of, top_of
from registry.domain.histograms import of_values
from registry.domain.rollups import bucket_of
from registry.models import NodeObservation, ServingNode
from registry.selectors.heat import hardware_heat, model_heat, states_of
from registry.services import fleet
from registry.services.samples import NodeSampleRow, SampleRow, samples_write
from serving_node.contract.control import Observed, ObservedUnit
from serving_node.contract.states import UnitState
from tests.console.conftest import join_node
from tests.console.web.conftest import Browse, Served


def observe(node: ServingNode, *units: tuple[str, UnitState]) -> None:
    """Let a node say in which state each unit is; its model's name is the first part."""
    models = tuple(ObservedUnit(name, f"u{number}", 1, state) for number, (name, state) in enumerate(units))
    observed = Observed(node=str(node.pk), epoch=1, generation_seen=1, generation_applied=1, models=models)
    fleet.node_observe(node=node, observed=observed, now=timezone.now())


def measure(node: ServingNode, name: str, *, requests: int, failures: int = 0, seconds: float = 0.01) -> None:
    """Let a node have served so much in a bucket of the last minute."""
    bucket = bucket_of(timezone.now(), 10) - timedelta(seconds=20)
    histogram = of_values([seconds] * requests)
    row = SampleRow(
        bucket=bucket,
        node_id=node.pk,
        model=name,
        version="1",
        requests=requests,
        failures=failures,
        request_histogram=histogram,
    )
    gpus = [{"uuid": str(n), "utilization": n / 10, "memory_used": 5 * n, "memory_total": 10} for n in (1, 2)]
    gauges = NodeSampleRow(
        bucket=bucket,
        node_id=node.pk,
        cpu_utilization=0.5,
        memory_used_bytes=3,
        memory_total_bytes=4,
        gpus=gpus,
    )
    samples_write([row], [gauges])


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_larger_value_is_never_in_a_lower_step(one: float, other: float) -> None:
    top = max(one, other)
    assert (step_of(min(one, other), top), step_of(top, top)) == tuple(sorted((step_of(one, top), step_of(other, top))))
    assert 1 <= step_of(one, top) <= 5


def test_steps_divide_what_is_shown() -> None:
    assert [step_of(value, 1.0) for value in (None, 0.0, 0.19, 0.2, 0.99, 1.0, 7.0)] == [0, 1, 1, 2, 5, 5, 5]
    assert top_of([None, 3.0, 2.0], is_share=False) == 3.0
    assert top_of([0.1], is_share=True) == 1.0
    assert top_of([None], is_share=False) == 0.0
    assert legend(0.0, str) == []
    assert legend(10.0, "{:.0f}".format)[0] == (1, "0 … 2")


def test_the_last_minute_of_each_pair(served: Served) -> None:
    now, node = timezone.now(), served.node
    measure(node, "finch", requests=60, failures=15, seconds=0.02)
    rate = model_heat("request_rate", [node.pk], ["finch"], now)
    assert rate == {(node.pk, "finch"): 1.0}
    assert model_heat("failures", [node.pk], ["finch"], now) == {(node.pk, "finch"): 0.25}
    p99 = model_heat("latency_p99", [node.pk], ["finch"], now)[node.pk, "finch"]
    assert p99 is not None and abs(p99 - 0.02) < 0.004
    assert model_heat("request_rate", [node.pk], ["finch"], now + timedelta(minutes=2)) == {}
    assert hardware_heat([node.pk], now) == {
        (node.pk, "cpu"): 0.5,
        (node.pk, "memory"): 0.75,
        (node.pk, "gpu"): 0.2,
        (node.pk, "gpu_memory"): 1.0,
    }


def test_a_pair_shows_its_worst_unit(served: Served) -> None:
    observe(served.node, ("finch", UnitState.READY), ("finch", UnitState.FAILED), ("wren", UnitState.READY))
    seen = list(NodeObservation.objects.all())
    assert states_of(seen, {"finch"}) == {(served.node.pk, "finch"): "failed"}


def cells(answer: Any) -> dict[tuple[str, str], Any]:
    """Return the cells of a page by node and column."""
    columns = [str(one) for one in answer.context["columns"]]
    return {
        (row.node.name, column): cell
        for row, found in answer.context["rows"]
        for column, cell in zip(columns, found, strict=True)
    }


def test_states_and_what_is_not_there_yet(served: Served, browse: Browse) -> None:
    observe(served.node, ("finch", UnitState.LOADING))
    join_node(served.cast, "node-2", environment="dev")
    join_node(served.cast, "node-3", environment="elsewhere")
    found = cells(browse("vera").get("/fleet/heat/"))
    assert [found[name, "finch"].state for name in ("node-1", "node-2", "node-3")] == ["loading", "absent", ""]
    assert found["node-1", "finch"].address == f"/p/wren/deployments/{served.deployment.pk}/"
    assert found["node-3", "finch"].address == ""
    assert [*cells(browse("vera").get("/fleet/heat/?fleet=dev"))] == [("node-1", "finch"), ("node-2", "finch")]
    assert browse("vera").get("/fleet/heat/?q=ostrich").context["columns"] == []


def test_a_figure_is_text_and_step(served: Served, browse: Browse) -> None:
    join_node(served.cast, "node-2", environment="dev")
    measure(served.node, "finch", requests=600, seconds=0.1)

    found = cells(browse("bob").get("/fleet/heat/?show=request_rate"))
    assert (found["node-1", "finch"].text, found["node-1", "finch"].step) == ("10/s", 5)
    assert found["node-2", "finch"].step == 0
    hardware = browse("bob").get("/fleet/heat/?show=hardware")
    assert cells(hardware)["node-1", "Memory"].text == "75 %"
    assert "80 % … 100 %" in hardware.text


def test_models_of_other_projects_are_no_columns(served: Served, browse: Browse) -> None:
    measure(served.node, "finch", requests=60)
    observe(served.node, ("finch", UnitState.READY))
    for show in ("state", "request_rate", "latency_p99"):
        answer = browse("charlie").get(f"/fleet/heat/?show={show}")
        assert answer.status_code == 200 and "finch" not in answer.text
