"""Code in versions: approvals that name it, and permissions that are withdrawn."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from registry.errors import Conflict, PermissionDenied, ValidationFailed
from registry.models import AuditEvent, ModelVersion, Project, RegisteredModel
from registry.selectors.approvals import approval_detail
from registry.selectors.code import code_effects, versions_permitted, versions_running_code
from registry.selectors.desired import desired_state
from registry.services import configs
from registry.services.code import code_permit_again, code_withdraw, code_withdraw_all
from registry.services.measurements import measurement_start
from tests.registry.conftest import World
from tests.registry.services.test_approvals import FIRST, SPLIT, review

BODY = {
    "backend": "python",
    "max_batch_size": 4,
    "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [16]}],
    "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [4]}],
}


def policy(world: World, value: str) -> None:
    Project.objects.filter(pk=world.project.pk).update(code_formats=value)


def python_version(world: World, model: RegisteredModel) -> ModelVersion:
    version = world.ready(model)
    ModelVersion.objects.filter(pk=version.pk).update(format="python")
    version.files.update(path="model.py")
    if not model.configs.filter(body__backend="python").exists():
        configs.config_create(model=model, body=BODY, actor=world.actor(world.carol))
    version.refresh_from_db()
    return version


def deploy(world: World, model: RegisteredModel, *routes: dict[str, Any]) -> Any:
    return world.deploy(model, world.development, world.spec(*(routes or (FIRST,))))


def is_permitted(world: World, node: Any) -> bool:
    return desired_state(node).models[0].units[0].code_permitted


def test_where_approvals_name_code_it_waits_for_one_even_in_development(world: World) -> None:
    policy(world, "approve")
    node, model = world.node(), world.model()
    version = python_version(world, model)
    outcome = deploy(world, model)
    assert outcome.rollout is None and version.code_permitted_at is None
    approval = outcome.approval
    assert approval.plan["code"] == [{"version": version.manifest_digest, "path": "model.py", "kind": "python"}]
    detail = approval_detail(world.actor(world.bob), approval)
    assert detail.required == 1 and [one.files()[0]["path"] for one in detail.code] == ["model.py"]
    assert world.bob in detail.still_asked
    with pytest.raises(PermissionDenied):
        review(world, approval, world.carol)
    review(world, approval, world.bob, decision="request_changes")
    approval.refresh_from_db()
    assert approval.state == "open"
    review(world, approval, world.bob)
    approval.refresh_from_db()
    version.refresh_from_db()
    assert (approval.state, version.code_permitted_by) == ("applied", world.bob)
    assert is_permitted(world, node)
    # What was approved once needs no second approval where the environment asks for none.
    again = deploy(world, model)
    assert again.approval is None


def test_other_code_needs_an_approval_of_its_own(world: World) -> None:
    policy(world, "approve")
    model = world.model()
    python_version(world, model)
    review(world, deploy(world, model).approval, world.bob)
    python_version(world, model)
    second = deploy(world, model, *SPLIT)
    assert second.approval is not None
    assert len(second.approval.plan["code"]) == 2
    assert [one.is_permitted for one in approval_detail(world.actor(world.bob), second.approval).code] == [True, False]


def test_a_request_is_void_when_its_code_or_the_policy_changes(world: World) -> None:
    policy(world, "approve")
    model = world.model()
    version = python_version(world, model)
    approval = deploy(world, model).approval
    version.files.create(path="helper.py", blob=version.files.get().blob)
    with pytest.raises(Conflict, match="has changed"):
        review(world, approval, world.bob)
    approval.refresh_from_db()
    assert approval.state == "voided"
    approval = deploy(world, model).approval
    assert [part["path"] for part in approval.plan["code"]] == ["helper.py", "model.py"]
    policy(world, "allow")
    with pytest.raises(Conflict, match="has changed"):
        review(world, approval, world.bob)


def test_data_needs_no_approval_and_no_measurement_runs_unapproved_code(world: World) -> None:
    policy(world, "approve")
    node, data, model = world.node(), world.model(), world.model()
    world.ready(data)
    assert deploy(world, data).approval is None
    version = python_version(world, model)
    with pytest.raises(ValidationFailed, match="once an approval has named it"):
        measurement_start(version=version, node=node, actor=world.actor(world.alice))


def test_withdrawing_takes_the_permission_from_the_nodes(world: World, topics: list[str]) -> None:
    node, model = world.node(), world.model()
    version = python_version(world, model)
    outcome = deploy(world, model)
    version.refresh_from_db()
    before = desired_state(node)
    assert is_permitted(world, node) and list(versions_running_code(world.project)) == [version]
    [effect] = code_effects([version], timezone.now())
    assert (effect.deployment, effect.weight, effect.rest, effect.nodes) == (outcome.deployment, 100, 0, ("node-1",))
    with pytest.raises(PermissionDenied):
        code_withdraw(version=version, reason="leak", actor=world.actor(world.bob))
    with pytest.raises(ValidationFailed, match="Say why"):
        code_withdraw(version=version, reason=" ", actor=world.actor(world.alice))
    code_withdraw(version=version, reason="It phones home.", actor=world.actor(world.alice))
    after = desired_state(node)
    assert after.generation == before.generation + 1 and not is_permitted(world, node)
    assert not versions_permitted(world.project).exists()
    event = AuditEvent.objects.get(action="version.withdraw_code")
    assert event.after == {"reason": "It phones home."} and event.before["files"][0]["path"] == "model.py"
    with pytest.raises(Conflict):
        code_withdraw(version=version, reason="again", actor=world.actor(world.alice))
    world.deploy(model, world.development, world.spec())
    with pytest.raises(ValidationFailed, match="withdrawn by alice: It phones home"):
        deploy(world, model)


def test_a_withdrawn_permission_comes_back_by_an_administrator_only(world: World) -> None:
    node, model = world.node(), world.model()
    version = python_version(world, model)
    deploy(world, model)
    version.refresh_from_db()
    with pytest.raises(Conflict, match="not withdrawn"):
        code_permit_again(version=version, actor=world.actor(world.alice))
    code_withdraw(version=version, reason="Wait.", actor=world.actor(world.alice))
    with pytest.raises(PermissionDenied):
        code_permit_again(version=version, actor=world.actor(world.bob))
    policy(world, "forbid")
    version = ModelVersion.objects.select_related("model__project").get(pk=version.pk)
    with pytest.raises(ValidationFailed, match="does not allow code"):
        code_permit_again(version=version, actor=world.actor(world.alice))
    policy(world, "approve")
    version = ModelVersion.objects.select_related("model__project").get(pk=version.pk)
    generation = desired_state(node).generation
    code_permit_again(version=version, actor=world.actor(world.alice))
    assert is_permitted(world, node) and desired_state(node).generation == generation + 1
    assert (version.code_permitted_by, version.code_withdrawn_at) == (world.alice, None)


def test_an_approval_does_not_bring_a_withdrawn_permission_back(world: World) -> None:
    policy(world, "approve")
    model = world.model()
    version = python_version(world, model)
    review(world, deploy(world, model).approval, world.bob)
    version.refresh_from_db()
    world.deploy(model, world.development, world.spec())
    waiting = world.deploy(model, world.production, world.spec(FIRST)).approval
    code_withdraw(version=version, reason="leak", actor=world.actor(world.alice))
    with pytest.raises(Conflict, match="withdrawn by alice"):
        review(world, waiting, world.bob)


def test_all_permissions_of_a_project_are_withdrawn_at_once(world: World) -> None:
    node, models = world.node(), [world.model(), world.model()]
    for model in models:
        python_version(world, model)
        deploy(world, model)
    generation = desired_state(node).generation
    with pytest.raises(PermissionDenied):
        code_withdraw_all(project=world.project, reason="leak", actor=world.actor(world.bob))
    assert code_withdraw_all(project=world.project, reason="leak", actor=world.actor(world.alice)) == 2
    desired = desired_state(node)
    assert desired.generation == generation + 1
    assert not any(unit.code_permitted for model in desired.models for unit in model.units)
    assert code_withdraw_all(project=world.project, reason="leak", actor=world.actor(world.alice)) == 0
