"""An ensemble is deployed only beside the models that it calls, and its approval is bound to what they are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from registry.domain.plans import DeploymentSpec
from registry.errors import Conflict, ValidationFailed
from registry.models import Fleet, RegisteredModel
from registry.services import configs
from registry.services.plans import deployment_plan
from tests.registry.services.test_approvals import FIRST, review

X = {"name": "x", "data_type": "TYPE_FP32", "dims": [16]}
Y = {"name": "y", "data_type": "TYPE_FP32", "dims": [4]}


def step(model: str, version: int = -1) -> dict[str, Any]:
    return {"model_name": model, "model_version": version, "input_map": {"x": "x"}, "output_map": {"y": "y"}}


def ensemble(world: Any, slug: str, *steps: dict[str, Any]) -> RegisteredModel:
    """A model with a ready version whose newest config is an ensemble."""
    model: RegisteredModel = world.model(slug)
    world.ready(model)
    body = {
        "name": slug,
        "platform": "ensemble",
        "max_batch_size": 8,
        "input": [X],
        "output": [Y],
        "ensemble_scheduling": {"step": list(steps)},
    }
    configs.config_create(model=model, body=body, actor=world.actor(world.carol))
    return model


@contextlib.contextmanager
def protected(fleet: Fleet) -> Iterator[None]:
    fleet.environment.requires_approval = True
    fleet.environment.save()
    yield
    fleet.environment.requires_approval = False
    fleet.environment.save()


def plan(world: Any, model: RegisteredModel, fleet: Any) -> Any:
    return deployment_plan(model=model, fleet=fleet, spec=world.spec(FIRST), actor=world.actor(world.carol))


def test_an_ensemble_that_calls_itself_is_not_stored(world: Any) -> None:
    with pytest.raises(ValidationFailed) as caught:
        ensemble(world, "outer", step("outer"))
    assert [*caught.value.errors] == [
        {"field": "ensemble_scheduling.step[0].model_name", "message": "The ensemble calls itself: outer."}
    ]


def test_an_ensemble_needs_its_models_on_the_fleet(world: Any) -> None:
    inner = world.model("inner")
    world.ready(inner)
    outer = ensemble(world, "outer", step("inner"))
    with pytest.raises(ValidationFailed, match="calls “inner”, which is not deployed on fleet development") as caught:
        plan(world, outer, world.development)
    assert caught.value.errors[0]["field"] == "routes[0].config"
    world.deploy(inner, world.development, world.spec(FIRST))
    assert list(plan(world, outer, world.development).plan["called"]) == ["inner"]
    world.deploy(outer, world.development, world.spec(FIRST))
    with pytest.raises(ValidationFailed, match="not deployed on fleet production"):
        plan(world, outer, world.production)


def test_the_version_that_it_calls_must_be_there(world: Any) -> None:
    inner = world.model("inner")
    world.ready(inner)
    world.deploy(inner, world.development, world.spec(FIRST))
    assert plan(world, ensemble(world, "first", step("inner", 1)), world.development)
    with pytest.raises(ValidationFailed, match="calls version 2 of “inner”"):
        plan(world, ensemble(world, "second", step("inner", 2)), world.development)


def test_what_was_taken_away_is_not_deployed(world: Any) -> None:
    inner = world.model("inner")
    world.ready(inner)
    world.deploy(inner, world.development, world.spec(FIRST))
    world.deploy(inner, world.development, DeploymentSpec())
    with pytest.raises(ValidationFailed, match="is not deployed"):
        plan(world, ensemble(world, "outer", step("inner")), world.development)


def test_the_digest_changes_with_what_is_called_however_far(world: Any) -> None:
    inner = world.model("inner")
    world.ready(inner)
    world.deploy(inner, world.development, world.spec(FIRST))
    middle = ensemble(world, "middle", step("inner"))
    world.deploy(middle, world.development, world.spec(FIRST))
    outer = ensemble(world, "outer", step("middle"))
    before = plan(world, outer, world.development).plan_digest
    assert plan(world, outer, world.development).plan_digest == before
    world.ready(inner)
    world.deploy(inner, world.development, world.spec({"version": 2, "weight": 100}))
    assert plan(world, outer, world.development).plan_digest != before


def test_a_request_is_void_when_a_model_that_it_calls_has_changed(world: Any) -> None:
    inner = world.model("inner")
    world.ready(inner)
    world.deploy(inner, world.development, world.spec(FIRST))
    outer = ensemble(world, "outer", step("inner"))
    with protected(world.development):
        approval = world.deploy(outer, world.development, world.spec(FIRST)).approval
    assert approval.plan["called"].keys() == {"inner"}
    world.ready(inner)
    world.deploy(inner, world.development, world.spec({"version": 2, "weight": 100}))
    with pytest.raises(Conflict, match="has changed, so the request is void"):
        review(world, approval, world.bob)
    approval.refresh_from_db()
    assert approval.state == "voided"


def test_an_ensemble_that_calls_itself_is_refused(world: Any) -> None:
    first = world.model("a")
    world.ready(first)
    world.deploy(first, world.development, world.spec(FIRST))
    second = ensemble(world, "b", step("a"))
    world.deploy(second, world.development, world.spec(FIRST))
    body = {
        "name": "a",
        "platform": "ensemble",
        "max_batch_size": 8,
        "input": [X],
        "output": [Y],
        "ensemble_scheduling": {"step": [step("b")]},
    }
    configs.config_create(model=first, body=body, actor=world.actor(world.carol))
    with pytest.raises(ValidationFailed, match="calls itself, by way of “b”"):
        plan(world, first, world.development)


def test_other_models_keep_their_digest(world: Any) -> None:
    model = world.model()
    world.ready(model)
    assert "called" not in plan(world, model, world.development).plan
