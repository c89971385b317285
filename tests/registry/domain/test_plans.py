from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from registry.domain.plans import (
    Applied,
    DeploymentSpec,
    RouteSpec,
    calls_itself,
    inside_range,
    plan_document,
    rollback_target,
    spec_problems,
    unit_name,
)
from registry.errors import ValidationFailed


def route(version: int, weight: int, role: str = "live", config: int = 1) -> RouteSpec:
    return RouteSpec(version, config, role, weight, 0.0, f"v{version}", f"c{config}")


V1 = DeploymentSpec((route(1, 100),))
CANARY = DeploymentSpec((route(1, 90), route(2, 10, "canary")), weight_range=(0, 50))
V2 = DeploymentSpec((route(2, 100),))


def test_json_round_trip() -> None:
    assert DeploymentSpec.from_json(CANARY.to_json()) == CANARY
    assert DeploymentSpec.from_json({}) == DeploymentSpec()


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"routes": [{"version": 1, "weight": 90}]}, "routes"),
        ({"routes": [{"version": 1, "weight": 100, "role": "king"}]}, "routes[0].role"),
        (
            {"routes": [{"version": 1, "weight": 100}, {"version": 2, "role": "shadow", "weight": 5}]},
            "routes[1].weight",
        ),
        ({"routes": [{"version": 1, "weight": 100, "colour": "red"}]}, "routes[0].colour"),
        ({"routes": [{"weight": 100}]}, "routes[0].version"),
        ({"routes": [{"version": 1, "weight": "100"}]}, "routes[0].weight"),
        ({"routes": [{"version": 1, "weight": True}]}, "routes[0].weight"),
        ({"routes": [{"version": 1, "weight": 100}, {"version": 1, "weight": 0}]}, "routes[1]"),
        ({"routes": [{"version": 1, "weight": 100, "role": "canary"}]}, "routes"),
        ({"weight_range": [50, 10]}, "weight_range"),
        ({"surprise": 1}, "surprise"),
        (
            {
                "routes": [{"version": 1, "weight": 40}, {"version": 2, "weight": 60, "role": "canary"}],
                "weight_range": [0, 50],
            },
            "routes[1].weight",
        ),
    ],
)
def test_bad_specs_name_the_field(document: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationFailed) as caught:
        DeploymentSpec.from_json(document)
    assert field in [error["field"] for error in caught.value.errors]


def test_moves_of_weights_inside_the_range_are_inside() -> None:
    moved = replace(CANARY, routes=(route(1, 50), route(2, 50, "canary")))
    assert inside_range(CANARY, moved)
    assert spec_problems(moved) == []


@pytest.mark.parametrize(
    "wanted",
    [
        replace(CANARY, routes=(route(1, 40), route(2, 60, "canary"))),
        replace(CANARY, weight_range=(0, 100)),
        replace(CANARY, sticky="user"),
        replace(CANARY, routes=(route(1, 90), route(3, 10, "canary"))),
        replace(CANARY, routes=(route(1, 10, "canary"), route(2, 90))),
        V2,
    ],
)
def test_everything_else_is_outside(wanted: DeploymentSpec) -> None:
    assert not inside_range(CANARY, wanted)


def test_more_requests_for_a_shadow_are_outside() -> None:
    applied = DeploymentSpec(routes=(route(1, 100), replace(route(2, 0, "shadow"), sample_percent=1.0)))
    assert inside_range(applied, applied)
    assert not inside_range(
        applied, replace(applied, routes=(applied.routes[0], replace(applied.routes[1], sample_percent=100.0)))
    )


def test_nothing_is_inside_an_empty_spec() -> None:
    assert not inside_range(DeploymentSpec(), DeploymentSpec())


def document(spec: DeploymentSpec, **changes: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "manifest_digests": {one.version_id: f"m{one.version}" for one in spec.routes},
        "config_digests": {one.config_id: f"d{one.config}" for one in spec.routes},
        "check_ids": ["k1"],
        "fleet_id": "f",
        "selector": {"environment": "production"},
    }
    return plan_document(spec=spec, **{**facts, **changes})


def test_a_plan_is_bound_to_everything_but_the_weights() -> None:
    moved = replace(CANARY, routes=(route(1, 50), route(2, 50, "canary")))
    assert document(moved) == document(CANARY)
    assert document(CANARY, check_ids=["k2"]) != document(CANARY)
    assert document(CANARY, selector={}) != document(CANARY)
    assert document(CANARY, fleet_id="g") != document(CANARY)
    assert document(replace(CANARY, weight_range=(0, 60))) != document(CANARY)
    assert document(CANARY, config_digests={"c1": "other"}) != document(CANARY)
    assert document(CANARY, manifest_digests={"v1": "m1", "v2": "other"}) != document(CANARY)


def test_unit_names_are_stable() -> None:
    assert unit_name("mlp", 3, "abcdef0123456789") == "mlp-v3-abcdef01"


def history(*steps: tuple[str, DeploymentSpec]) -> list[Applied]:
    applied, before = [], DeploymentSpec()
    for kind, spec in steps:
        applied.append(Applied(kind, before, spec))
        before = spec
    return applied


def test_roll_back_of_a_first_deployment_goes_nowhere() -> None:
    assert rollback_target([]) is None
    assert rollback_target(history(("deploy", V1))) is None


def test_roll_back_ignores_moves_of_weights() -> None:
    moved = replace(CANARY, routes=(route(1, 50), route(2, 50, "canary")))
    assert rollback_target(history(("deploy", V1), ("deploy", CANARY), ("traffic", moved))) == V1


def test_roll_back_after_promotion_goes_to_the_last_stable_state() -> None:
    assert rollback_target(history(("deploy", V1), ("deploy", CANARY), ("deploy", V2))) == V1


def test_roll_back_twice_never_goes_forth() -> None:
    v3 = DeploymentSpec((route(3, 100),))
    steps = history(("deploy", V1), ("deploy", V2), ("deploy", v3), ("rollback", V2))
    assert rollback_target(steps) == V1
    assert rollback_target(history(("deploy", V1), ("deploy", V2), ("rollback", V1))) is None


def test_an_ensemble_that_calls_itself_is_named_by_its_step() -> None:
    body = {"ensemble_scheduling": {"step": [{"model_name": "other"}, {"model_name": "me"}]}}
    assert calls_itself(body, "me") == [
        {"field": "ensemble_scheduling.step[1].model_name", "message": "The ensemble calls itself: me."}
    ]
    assert calls_itself(body, "third") == [] and calls_itself({}, "me") == []
