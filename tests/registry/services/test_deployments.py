from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from registry.domain.plans import DeploymentSpec
from registry.errors import Conflict, NotFound, PermissionDenied, ValidationFailed
from registry.models import (
    AuditEvent,
    Deployment,
    Fleet,
    ModelVersion,
    Operation,
    Project,
    Rollout,
)
from registry.selectors.approvals import approval_get, approvals_visible_to
from registry.selectors.deployments import (
    deployment_get,
    deployment_status,
    deployments_unsettled,
    deployments_visible_to,
)
from registry.selectors.desired import desired_state
from registry.services import configs, deployments, operations, versions
from registry.services.rollouts import rollout_progress
from tests.registry.conftest import World
from tests.registry.services.test_approvals import FIRST, MODES, SPLIT, request, review, weights


def test_development_applies_at_once(world: Any) -> None:
    node = world.node()
    model = world.model("mlp")
    world.ready(model)
    outcome = world.deploy(model, world.development, world.spec(FIRST))
    assert outcome.approval is None
    assert outcome.rollout.phase == "progressing"
    assert (outcome.operation.kind, outcome.operation.state) == ("deploy", "pending")
    assert weights(outcome.deployment) == {1: 100}
    world.settle(outcome.deployment, node)
    assert Rollout.objects.get().phase == "succeeded"
    assert Operation.objects.get(kind="deploy").state == "succeeded"
    assert (outcome.deployment.sync, outcome.deployment.health) == ("synced", "healthy")
    assert deployments_unsettled(timezone.now()) == []


def test_the_same_spec_again_changes_nothing(world: Any) -> None:
    model = world.model()
    world.ready(model)
    world.deploy(model, world.development, world.spec(FIRST))
    again = world.deploy(model, world.development, world.spec(FIRST))
    assert (again.rollout, again.approval) == (None, None)
    assert Rollout.objects.count() == 1


@pytest.mark.parametrize(
    ("routes", "field"),
    [
        ([{"version": 9, "weight": 100}], "routes[0].version"),
        ([{"version": 1, "weight": 100, "config": 9}], "routes[0].config"),
    ],
)
def test_plans_of_unknown_things_are_refused(world: Any, routes: list[dict[str, Any]], field: str) -> None:
    model = world.model()
    world.ready(model)
    with pytest.raises(ValidationFailed) as caught:
        world.deploy(model, world.development, world.spec(*routes))
    assert caught.value.errors[0]["field"] == field
    assert not Deployment.objects.exists()


@pytest.mark.parametrize("state", ["archived", "quarantined", "validating", "rejected"])
def test_only_ready_versions_are_deployed(world: Any, state: str) -> None:
    model = world.model()
    version = world.ready(model)
    type(version).objects.filter(pk=version.pk).update(state=state)
    with pytest.raises(ValidationFailed, match=state):
        world.deploy(model, world.development, world.spec(FIRST))


def test_a_config_that_contradicts_the_version_is_refused(world: Any) -> None:
    from registry.models import ModelVersion

    model = world.model()
    version = world.ready(model)
    signature = {**version.signature, "inputs": [{"name": "other", "datatype": "FP32", "shape": [-1, 16]}]}
    ModelVersion.objects.filter(pk=version.pk).update(signature=signature)
    with pytest.raises(ValidationFailed) as caught:
        world.deploy(model, world.development, world.spec(FIRST))
    assert caught.value.errors[0]["field"].startswith("routes[0].config")


def test_who_may_deploy(world: Any) -> None:
    model = world.model()
    world.ready(model)
    for user in (world.dan, world.eve):
        with pytest.raises(PermissionDenied):
            world.deploy(model, world.development, world.spec(FIRST), user=user)


def test_a_served_name_belongs_to_one_deployment_of_a_node(world: Any) -> None:
    model, rival = world.model("mlp"), world.model("mlp", project=world.other)
    world.ready(model)
    world.ready(rival)
    world.deploy(model, world.development, world.spec(FIRST))
    with pytest.raises(Conflict):
        world.deploy(rival, world.development, world.spec(FIRST, served_name="mlp"), user=world.eve)
    assert world.deploy(rival, world.development, world.spec(FIRST), user=world.eve).deployment.served_name == (
        "mlp-development"
    )
    with pytest.raises(ValidationFailed):
        world.deploy(model, world.development, world.spec(FIRST, served_name="new"))


def test_two_fleets_that_share_a_node_do_not_share_a_name(world: Any) -> None:
    node = world.node()
    twin = Fleet.objects.create(
        slug="twin", name="twin", environment=world.development.environment, selector=node.labels
    )
    model = world.model("mlp")
    world.ready(model)
    world.deploy(model, world.development, world.spec(FIRST))
    assert world.deploy(model, twin, world.spec(FIRST)).deployment.served_name == "mlp-twin"
    assert [one.name for one in desired_state(node).models] == ["mlp", "mlp-twin"]


def test_a_plan_says_what_would_happen_and_stores_nothing(world: Any) -> None:
    node = world.node("a", "production")
    model = world.model("mlp")
    version = world.ready(model)
    plan = deployments.deployment_plan(
        model=model, fleet=world.production, spec=world.spec(FIRST), actor=world.actor(world.dan)
    )
    assert plan.needs_approval
    assert plan.required_approvals == 1
    (change,) = plan.nodes
    assert (change.name, change.is_reachable, change.bytes_to_fetch) == ("a", True, version.size_bytes)
    assert [one.split("-v")[0] for one in change.loads] == ["mlp"]
    assert [(one.version, one.weight_before, one.weight_after) for one in plan.routes] == [(1, None, 100)]
    assert plan.to_json()["plan_digest"] == plan.plan_digest
    assert not Deployment.objects.exists()
    assert node.desired_generation == type(node).objects.get().desired_generation
    empty = deployments.deployment_plan(
        model=model, fleet=world.development, spec=world.spec(FIRST), actor=world.actor(world.dan)
    )
    assert "No node" in empty.warnings[0]


def canary(world: Any) -> Deployment:
    """Production serves version 1 with ten percent for version 2, both approved, weights up to 50."""
    model = world.model("mlp")
    world.ready(model)
    world.ready(model)
    review(world, request(world, model=model), world.bob)
    approval = request(world, model=model, spec=world.spec(*SPLIT, **MODES))
    review(world, approval, world.bob)
    deployment: Deployment = approval.deployment
    deployment.refresh_from_db()
    return deployment


def test_moves_inside_the_range_need_no_approval(world: Any) -> None:
    deployment = canary(world)
    outcome = deployments.deployment_traffic(
        deployment=deployment, weights={1: 50, 2: 50}, actor=world.actor(world.alice)
    )
    assert outcome.approval is None
    assert outcome.rollout is not None
    assert outcome.rollout.kind == "traffic"
    assert weights(deployment) == {1: 50, 2: 50}


def test_moves_by_unit_id(world: Any) -> None:
    deployment = canary(world)
    units = {route.version.number: route.unit for route in deployment.routes.select_related("version")}
    deployments.deployment_traffic(
        deployment=deployment, weights={units[1]: 80, units[2]: 20}, actor=world.actor(world.alice)
    )
    assert weights(deployment) == {1: 80, 2: 20}


def test_moves_outside_the_range_are_refused_or_asked_for(world: Any) -> None:
    deployment = canary(world)
    alice = world.actor(world.alice)
    for bad in ({1: 40, 2: 60}, {1: 50, 2: 40}, {7: 100}, {1: 120, 2: -20}, {1: True, 2: 0}, {"9" * 6000: 100}):
        with pytest.raises(ValidationFailed):
            deployments.deployment_traffic(deployment=deployment, weights=bad, actor=alice)
    wider = world.deploy(
        deployment.model, world.production, world.spec(*SPLIT, weight_range=[0, 100]), user=world.alice
    )
    assert wider.approval is not None
    assert weights(deployment) == {1: 90, 2: 10}


def test_traffic_in_production_is_for_operators(world: Any) -> None:
    deployment = canary(world)
    with pytest.raises(PermissionDenied):
        deployments.deployment_traffic(deployment=deployment, weights={1: 50, 2: 50}, actor=world.actor(world.carol))
    with pytest.raises(PermissionDenied):
        deployments.deployment_rollback(deployment=deployment, actor=world.actor(world.carol))
    with pytest.raises(PermissionDenied):
        world.deploy(
            deployment.model,
            world.production,
            world.spec({"version": 1, "weight": 80}, {"version": 2, "weight": 20, "role": "canary"}, **MODES),
        )


def test_rolling_back_needs_no_approval(world: Any) -> None:
    deployment = canary(world)
    deployments.deployment_traffic(deployment=deployment, weights={1: 50, 2: 50}, actor=world.actor(world.alice))
    assert deployment_status(deployment).previous_label == "v1"
    outcome = deployments.deployment_rollback(deployment=deployment, actor=world.actor(world.alice))
    assert outcome.approval is None
    assert outcome.rollout is not None
    assert outcome.rollout.kind == "rollback"
    assert weights(deployment) == {1: 100}
    with pytest.raises(Conflict):
        deployments.deployment_rollback(deployment=deployment, actor=world.actor(world.alice))


def test_rolling_back_to_a_quarantined_version_is_refused(world: Any) -> None:
    deployment = canary(world)
    version = deployment.model.versions.get(number=1)
    versions.version_quarantine(version=version, reason="leaks", actor=world.actor(world.alice))
    with pytest.raises(ValidationFailed, match="quarantined"):
        deployments.deployment_rollback(deployment=deployment, actor=world.actor(world.alice))


def test_a_newer_change_supersedes_the_active_rollout(world: Any) -> None:
    model = world.model()
    world.ready(model)
    world.ready(model)
    first = world.deploy(model, world.development, world.spec(FIRST))
    second = world.deploy(model, world.development, world.spec({"version": 2, "weight": 100}))
    first.rollout.refresh_from_db()
    first.operation.refresh_from_db()
    assert (first.rollout.phase, first.operation.state) == ("superseded", "cancelled")
    assert second.rollout.phase == "progressing"


def test_a_version_that_fails_never_replaces_the_one_that_serves(world: Any) -> None:
    node = world.node()
    model = world.model("mlp")
    world.ready(model)
    world.ready(model)
    deployment = world.deploy(model, world.development, world.spec(FIRST)).deployment
    world.settle(deployment, node)
    bad = world.deploy(model, world.development, world.spec({"version": 2, "weight": 100}))
    unit = deployment.routes.get().unit
    world.observe(node, {unit: "failed"}, reason="opset 99 is not supported")
    generation = desired_state(node).generation
    rollout_progress(deployment_id=deployment.id, now=timezone.now())
    bad.rollout.refresh_from_db()
    assert bad.rollout.phase == "aborting"
    assert weights(deployment) == {1: 100}
    assert desired_state(node).generation > generation
    world.settle(deployment, node)
    bad.rollout.refresh_from_db()
    bad.operation.refresh_from_db()
    assert bad.rollout.phase == "rolled_back"
    assert bad.operation.state == "failed"
    assert bad.operation.error["message"] == "v2 failed on node node-1: opset 99 is not supported."
    status = deployment_status(deployment)
    assert "opset 99" in status.why_not_serving
    assert status.health == "healthy"
    assert status.previous_label == ""


def test_a_first_deployment_that_fails_keeps_showing_the_reason(world: Any) -> None:
    node = world.node()
    model = world.model("mlp")
    world.ready(model)
    outcome = world.deploy(model, world.development, world.spec(FIRST))
    unit = outcome.deployment.routes.get().unit
    for _pass in range(4):
        world.observe(node, {unit: "failed"}, reason="no such operator", now=timezone.now())
        rollout_progress(deployment_id=outcome.deployment.id, now=timezone.now())
    outcome.rollout.refresh_from_db()
    outcome.deployment.refresh_from_db()
    assert outcome.rollout.phase == "failed"
    assert outcome.deployment.health == "degraded"
    assert "no such operator" in deployment_status(outcome.deployment).why_not_serving
    assert deployment_status(outcome.deployment).nodes[0].units[0].state == "failed"
    assert weights(outcome.deployment) == {1: 100}


def test_progress_is_idempotent_and_pushes_nodes_that_are_behind(world: Any) -> None:
    node = world.node()
    model = world.model("mlp")
    world.ready(model)
    deployment = world.deploy(model, world.development, world.spec(FIRST)).deployment
    now = timezone.now()
    first = rollout_progress(deployment_id=deployment.id, now=now)
    assert first.push == (node.id,)
    assert first.changed
    again = rollout_progress(deployment_id=deployment.id, now=now)
    assert again.push == (node.id,)
    assert not again.changed
    assert deployments_unsettled(now) == [deployment.id]
    assert rollout_progress(deployment_id=node.id, now=now).push == ()


def test_without_nodes_it_waits_and_says_so(world: Any) -> None:
    model = world.model("mlp")
    world.ready(model)
    deployment = world.deploy(model, world.development, world.spec(FIRST)).deployment
    rollout_progress(deployment_id=deployment.id, now=timezone.now() + timedelta(days=1))
    status = deployment_status(deployment)
    assert status.rollout is not None
    assert status.health == "missing"
    assert "development" in status.why_not_serving


def test_the_status_page_tells_about_each_unit(world: Any) -> None:
    node = world.node()
    model = world.model("mlp")
    world.ready(model)
    deployment = world.deploy(model, world.development, world.spec(FIRST)).deployment
    status = deployment_status(deployment)
    assert [unit.state for unit in status.nodes[0].units] == ["pending"]
    world.observe(node, {deployment.routes.get().unit: "loading"}, now=timezone.now())
    (unit,) = deployment_status(deployment).nodes[0].units
    assert (unit.state, unit.version, unit.weight, unit.is_wanted) == ("loading", 1, 100, True)
    silent = deployment_status(deployment, timezone.now() + timedelta(minutes=3))
    assert not silent.nodes[0].is_reachable
    assert silent.health == "unknown"


def test_a_used_version_is_not_archived(world: Any) -> None:
    model = world.model()
    version = world.ready(model)
    world.deploy(model, world.development, world.spec(FIRST))
    with pytest.raises(Conflict):
        versions.version_archive(version=version, actor=world.actor(world.carol))


def test_trying_it(world: Any) -> None:
    model = world.model("mlp")
    world.ready(model)
    deployment = world.deploy(model, world.development, world.spec(FIRST)).deployment
    inputs = {"inputs": [{"name": "x", "shape": [1, 16], "datatype": "FP32", "data": [0.0] * 16}]}
    carol = world.actor(world.carol)
    operation = operations.try_it(deployment=deployment, inputs=inputs, version=1, actor=carol)
    assert (operation.kind, operation.queue) == ("infer", "interactive")
    assert operation.params["unit"] == deployment.routes.get().unit
    assert operation.params["body"] == inputs
    assert operation.expires_at is not None
    for bad in ({}, {"inputs": []}, {"inputs": "x"}, {"inputs": [{"data": "x" * 2_000_000}]}):
        with pytest.raises(ValidationFailed):
            operations.try_it(deployment=deployment, inputs=bad, actor=carol)
    with pytest.raises(ValidationFailed):
        operations.try_it(deployment=deployment, inputs=inputs, version=2, actor=carol)
    with pytest.raises(PermissionDenied):
        operations.try_it(deployment=deployment, inputs=inputs, actor=world.actor(world.dan))


def test_others_see_no_deployment_and_no_request(world: Any) -> None:
    approval = request(world)
    eve, dan = world.actor(world.eve), world.actor(world.dan)
    assert not deployments_visible_to(eve).exists()
    assert not approvals_visible_to(eve).exists()
    with pytest.raises(NotFound):
        approval_get(eve, approval.id)
    with pytest.raises(NotFound):
        deployment_get(eve, approval.deployment_id)
    assert deployment_get(dan, approval.deployment_id) == approval.deployment
    assert approval_get(dan, approval.id) == approval


def test_every_change_is_audited(world: Any) -> None:
    deployment = canary(world)
    deployments.deployment_rollback(deployment=deployment, actor=world.actor(world.alice))
    actions = list(AuditEvent.objects.filter(project_id=world.project.id).values_list("action", flat=True))
    for action in ("approval.request", "approval.approve", "deployment.deploy", "deployment.rollback"):
        assert action in actions
    event = AuditEvent.objects.get(action="deployment.rollback")
    assert DeploymentSpec.from_json(event.after["spec"]).routes[0].weight == 100
    assert event.before["spec"] != event.after["spec"]


def test_hints_and_events_leave_after_the_commit(
    world: Any, topics: list[str], django_capture_on_commit_callbacks: Any
) -> None:
    from registry import signals

    node = world.node()
    model = world.model()
    world.ready(model)
    heard: list[tuple[str, Any]] = []

    def nodes(sender: Any, **extra: Any) -> None:
        heard.append(("node", extra["node_id"]))

    def touched(sender: Any, **extra: Any) -> None:
        heard.append(("deployment", extra["deployment_id"]))

    signals.node_desired_changed.connect(nodes)
    signals.deployment_touched.connect(touched)
    try:
        with django_capture_on_commit_callbacks(execute=True):
            deployment = world.deploy(model, world.development, world.spec(FIRST)).deployment
    finally:
        signals.node_desired_changed.disconnect(nodes)
        signals.deployment_touched.disconnect(touched)
    assert ("node", node.id) in heard
    assert ("deployment", deployment.id) in heard
    assert f"deployment:{deployment.id}" in topics
    assert f"model:{model.id}" in topics


def test_code_is_deployed_where_the_project_allows_it_and_the_node_is_told(world: World) -> None:
    node = world.node()
    model = world.model()
    version = world.ready(model)
    ModelVersion.objects.filter(pk=version.pk).update(format="python")
    version.files.update(path="model.py")
    body = {
        "backend": "python",
        "max_batch_size": 4,
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [16]}],
        "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [4]}],
    }
    configs.config_create(model=model, body=body, actor=world.actor(world.carol))
    spec = world.spec({"version": 1, "role": "live", "weight": 100})
    Project.objects.filter(pk=world.project.pk).update(code_formats="forbid")
    with pytest.raises(ValidationFailed, match=r"does not allow code.*model\.py") as refused:
        world.deploy(model, world.development, spec)
    assert refused.value.errors[0]["field"] == "routes[0].version"
    Project.objects.filter(pk=world.project.pk).update(code_formats="allow")
    outcome = world.deploy(model, world.development, spec)
    [unit] = desired_state(node).models[0].units
    version.refresh_from_db()
    assert unit.code_permitted and version.code_permitted_by == world.carol
    assert [file["path"] for file in version.code_files] == ["model.py"]
    # what runs goes on, and its traffic may be moved
    Project.objects.filter(pk=world.project.pk).update(code_formats="forbid")
    deployments.deployment_traffic(deployment=outcome.deployment, weights={"1": 100}, actor=world.actor(world.alice))
    assert desired_state(node).models[0].units[0].code_permitted


def test_data_needs_no_permission(world: World) -> None:
    node = world.node()
    model = world.model()
    version = world.ready(model)
    Project.objects.filter(pk=world.project.pk).update(code_formats="forbid")
    world.deploy(model, world.development, world.spec({"version": 1, "role": "live", "weight": 100}))
    version.refresh_from_db()
    assert version.code_permitted_at is None and not desired_state(node).models[0].units[0].code_permitted
