"""Two people at once, on real connections: the locks decide, and effects happen once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from registry.errors import Conflict, RegistryError, StaleWrite
from registry.models import ApprovalRequest, Deployment, ModelVersion, Rollout
from registry.selectors.desired import desired_state
from registry.services import approvals, deployments, models, versions
from serving_node.contract.signature import ModelSignature

pytestmark = pytest.mark.django_db(transaction=True)
FIRST = {"version": 1, "weight": 100}


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Run calls on threads of their own, started together, and return their results or RegistryErrors."""
    start, results = threading.Barrier(len(calls)), []

    def run(call: Callable[[], Any]) -> None:
        try:
            start.wait(30)
            results.append(call())
        except RegistryError as error:
            results.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == len(calls)
    return results


def test_two_approvers_apply_once(transactional_db: None, world: Any) -> None:
    model = world.model("mlp")
    world.ready(model)
    approval = world.deploy(model, world.production, world.spec(FIRST)).approval

    def approve(user: Any) -> Any:
        return approvals.approval_review(
            approval=ApprovalRequest.objects.get(pk=approval.pk),
            decision="approve",
            plan_digest=approval.plan_digest,
            actor=world.actor(user),
        )

    results = at_once(lambda: approve(world.bob), lambda: approve(world.alice))
    assert sum(isinstance(result, RegistryError) for result in results) == 1
    assert Rollout.objects.count() == 1
    approval.refresh_from_db()
    assert approval.state == "applied"


def test_two_deployers_leave_one_active_rollout(transactional_db: None, world: Any) -> None:
    node = world.node()
    model = world.model("mlp")
    world.ready(model)
    world.ready(model)
    before = node.desired_generation

    def deploy(version: int) -> Any:
        spec = world.spec({"version": version, "weight": 100})
        return deployments.deployment_change(
            model=model, fleet=world.development, spec=spec, actor=world.actor(world.carol)
        )

    results = at_once(lambda: deploy(1), lambda: deploy(2))
    assert not any(isinstance(result, RegistryError) for result in results)
    assert sorted(Rollout.objects.values_list("phase", flat=True)) == ["progressing", "superseded"]
    desired = desired_state(node)
    assert desired.generation == before + 2
    active = Rollout.objects.get(phase="progressing")
    assert [unit.version for unit in desired.models[0].units] == [active.spec_to["routes"][0]["version"]]


def test_two_accepted_versions_get_two_numbers(transactional_db: None, world: Any) -> None:
    model = world.model("mlp")
    signature = ModelSignature.from_json(world.ready(world.model("other-model")).signature)
    made = [versions.version_create(model=model, actor=world.actor(world.carol)) for _number in range(2)]
    ModelVersion.objects.filter(model=model).update(state="validating")

    def accept(version: ModelVersion) -> int:
        return versions.version_accept(
            version=ModelVersion.objects.get(pk=version.pk),
            signature=signature,
            format="onnx",
            manifest_digest=str(version.pk),
            size=1,
        )

    assert sorted(at_once(lambda: accept(made[0]), lambda: accept(made[1]))) == [1, 2]
    assert model.configs.count() == 1


def test_one_name_is_given_once(transactional_db: None, world: Any) -> None:
    actor = world.actor(world.carol)

    def create() -> Any:
        return models.model_create(project=world.project, slug="mlp", actor=actor)

    results = at_once(create, create)
    assert sum(isinstance(result, Conflict) for result in results) == 1


def test_two_who_roll_back_at_once_go_back_one_step(transactional_db: None, world: Any) -> None:
    model = world.model("mlp")
    for number in (1, 2, 3):
        world.ready(model)
        outcome = world.deploy(model, world.development, world.spec({"version": number, "weight": 100}))
    seen = Deployment.objects.get(pk=outcome.deployment.pk)

    def roll_back() -> Any:
        return deployments.deployment_rollback(
            deployment=seen, generation=seen.generation, actor=world.actor(world.alice)
        )

    results = at_once(roll_back, roll_back, roll_back)
    assert sum(isinstance(result, StaleWrite) for result in results) == 2
    assert Deployment.objects.get(pk=seen.pk).generation == seen.generation + 1
