"""Try it: one answer with its latency in parts, and two of the same request beside each other."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from console.web.answers import Latency, compared, latency_of, outputs_of
from registry.domain.plans import DeploymentSpec, RouteSpec
from registry.models import Operation, Route
from registry.services import configs, deployments
from registry.services.operations import operation_claim, operation_fail, operation_succeed
from tests.console.web.conftest import Browse, Served

FORM = {"shape-0": "1, 4", "fill-0": "ones", "data-0": ""}
NUMBERS = st.one_of(st.integers(-1000, 1000), st.floats(allow_nan=True, allow_infinity=True))


def output(data: list[Any], name: str = "y", shape: tuple[int, ...] | None = None) -> dict[str, Any]:
    return {"name": name, "datatype": "FP32", "shape": list(shape or (len(data),)), "data": data}


def answered(data: list[Any], *, milliseconds: float = 2.0, version: str = "1") -> dict[str, Any]:
    timing = {"queue_us": 100, "compute_us": 900}
    response = {"model_version": version, "outputs": [output(data)], "timing": timing}
    return {"node": "node-1", "response": response, "milliseconds": milliseconds}


@given(st.lists(NUMBERS, max_size=20))
def test_an_answer_is_the_same_as_itself(data: list[Any]) -> None:
    (found,) = compared([output(data)], [output(list(data))])
    assert found.is_same and found.differences == ()


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20), st.data())
def test_every_value_that_differs_is_found_where_it_is(data: list[float], chosen: Any) -> None:
    places = chosen.draw(st.sets(st.integers(0, len(data) - 1)))
    other = [value + 1.0 if index in places else value for index, value in enumerate(data)]
    (found,) = compared([output(data)], [output(other)])
    assert {one.index for one in found.differences} == places
    assert found.differing == len(places)
    assert found.largest is not None and math.isclose(found.largest, 1.0 if places else 0.0, abs_tol=1e-9)


def test_the_last_digit_of_a_sum_is_no_difference_but_texts_and_truths_are_exact() -> None:
    (close,) = compared([output([0.1234567])], [output([0.1234568])])
    assert close.is_same and close.largest is not None and close.largest > 0
    (words,) = compared([output(["cat", True, math.nan])], [output(["dog", 1, 0.0])])
    assert [one.index for one in words.differences] == [0, 2]


def test_other_shapes_and_missing_outputs_are_differences() -> None:
    first, gone, new = compared([output([1, 2]), output([1], "gone")], [output([1, 2, 3]), output([1], "new")])
    assert (first.left_form, first.right_form) == ("FP32 [2]", "FP32 [3]")
    assert first.differences[0].left is None
    assert (gone.right_form, new.left_form) == ("", "")
    assert not any(one.is_same for one in (first, gone, new))


def test_long_outputs_show_the_first_differences_and_count_them_all() -> None:
    (found,) = compared([output([0.0] * 1000)], [output([1.0] * 1000)])
    assert (found.differing, len(found.differences), found.count) == (1000, 100, 1000)


def test_nested_data_is_read_in_its_order() -> None:
    (found,) = outputs_of({"response": {"outputs": [output([[1, 2], [3, [4]]])]}})
    assert found["data"] == [1, 2, 3, 4]


def test_the_network_is_what_the_node_did_not_see() -> None:
    assert latency_of(answered([])) == Latency(0.002, 0.001, 0.0001, 0.0009)
    assert latency_of({"milliseconds": 1.0, "response": {}}) == Latency(0.001, None, None, None)
    assert latency_of({}).parts() == []


def two_units(served: Served) -> list[Route]:
    """Let a second config take part of the traffic."""
    alice = served.cast.actor("alice")
    config = configs.config_create(model=served.version.model, body={"max_batch_size": 4}, actor=alice)
    spec = DeploymentSpec(routes=(RouteSpec(1, 1, "live", 90), RouteSpec(1, config.number, "canary", 10)))
    deployments.deployment_change(model=served.version.model, fleet=served.dev, spec=spec, actor=alice)
    return list(Route.objects.filter(deployment=served.deployment).order_by("-weight"))


def ask(served: Served, browse: Browse, **form: str) -> Any:
    path = f"/p/wren/deployments/{served.deployment.pk}/try/"
    return browse("bob").post(path, {**FORM, **form}, headers={"HX-Request": "true"})


def answer(operation: Operation, result: dict[str, Any]) -> None:
    assert operation_claim(operation.pk, "worker") is not None
    assert operation_succeed(operation.pk, "worker", result)


def test_two_configs_answer_the_same_request_side_by_side(served: Served, browse: Browse) -> None:
    live, canary = two_units(served)
    shown = ask(served, browse, unit=live.unit, beside=canary.unit)
    assert 'data-state="waiting"' in shown.text
    left, right = shown.context["left"], shown.context["right"]
    assert left.params["body"] == right.params["body"]
    assert [left.params["unit"], right.params["unit"]] == [live.unit, canary.unit]
    answer(left, answered([1.0, 2.0]))
    path = f"/try/{left.pk}/{right.pk}/"
    assert 'data-state="waiting"' in browse("bob").get(path).text
    answer(right, answered([1.0, 2.5], milliseconds=3.0))
    final = browse("bob").get(path)
    assert 'data-state="final"' in final.text and "hx-get" not in final.text
    assert "1 of 2 values differs." in final.text
    assert "<mark>≠ 2.5</mark>" in final.text
    assert "v1, config 2 (Canary)" in final.text
    assert "+50.0 %" in final.text
    # Strangers see neither.
    assert browse("charlie").get(path).status_code == 404


def test_one_that_fails_is_told_beside_the_answer_of_the_other(served: Served, browse: Browse) -> None:
    live, canary = two_units(served)
    shown = ask(served, browse, unit=live.unit, beside=canary.unit)
    left, right = shown.context["left"], shown.context["right"]
    answer(left, answered([1.0]))
    assert operation_claim(right.pk, "worker") is not None
    operation_fail(right.pk, "worker", code="UNAVAILABLE", message="No node has this version ready.")
    text = browse("bob").get(f"/try/{left.pk}/{right.pk}/").text
    assert 'data-state="final"' in text
    assert "No node has this version ready." in text
    assert "The whole answer of A" in text and "The whole answer of B" not in text


def test_what_is_compared_are_two(served: Served, browse: Browse) -> None:
    live, canary = two_units(served)
    assert "Choose the version that is compared." in ask(served, browse, beside=canary.unit).text
    assert "Choose two that are not the same." in ask(served, browse, unit=live.unit, beside=live.unit).text
    assert not Operation.objects.filter(kind="infer").exists()
    page = browse("bob").get(f"/p/wren/models/finch/try/?unit={live.unit}&beside={canary.unit}").text
    assert page.count("selected") >= 2
