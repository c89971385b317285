from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from registry.errors import Conflict, InvalidTransition, PermissionDenied, StaleWrite, ValidationFailed
from registry.models import (
    ApprovalRequest,
    Deployment,
    Fleet,
    Membership,
    Rollout,
    Route,
    VersionState,
)
from registry.selectors.approvals import approval_detail, inbox, may_review
from registry.services import approvals, configs, tokens, uploads, versions

FIRST = {"version": 1, "weight": 100}
SPLIT = ({"version": 1, "weight": 90}, {"version": 2, "weight": 10, "role": "canary"})
MODES = {"weight_range": [0, 50]}


def weights(deployment: Deployment) -> dict[int, int]:
    return {route.version.number or 0: route.weight for route in deployment.routes.select_related("version")}


def request(world: Any, user: Any = None, spec: Any = None, model: Any = None) -> ApprovalRequest:
    if model is None:
        model = world.model("mlp")
        world.ready(model)
    outcome = world.deploy(model, world.production, spec or world.spec(FIRST), user=user)
    assert outcome.rollout is None
    assert outcome.approval is not None
    return outcome.approval


def review(world: Any, approval: ApprovalRequest, user: Any, decision: str = "approve", digest: str = "") -> Any:
    return approvals.approval_review(
        approval=approval,
        decision=decision,
        comment="read it",
        plan_digest=digest or approval.plan_digest,
        actor=world.actor(user),
    )


def test_production_waits_for_somebody_else(world: Any) -> None:
    approval = request(world)
    assert not Route.objects.exists()
    assert [one.id for one in inbox(world.actor(world.bob))] == [approval.id]
    assert not inbox(world.actor(world.carol)).exists()
    assert not inbox(world.actor(world.eve)).exists()
    review(world, approval, world.bob)
    approval.refresh_from_db()
    assert approval.state == "applied"
    assert weights(approval.deployment) == {1: 100}
    rollout = Rollout.objects.get()
    assert (rollout.approval, rollout.created_by, rollout.phase) == (approval, world.carol, "progressing")
    assert not inbox(world.actor(world.bob)).exists()
    with pytest.raises(InvalidTransition):
        review(world, approval, world.bob)


def make_approver(world: Any, user: Any) -> None:
    Membership.objects.filter(user=user).update(role="admin")


def test_the_requester_cannot_approve(world: Any) -> None:
    model = world.model("mlp", user=world.alice)
    world.ready(model)
    approval = request(world, user=world.bob, model=model)
    with pytest.raises(PermissionDenied, match="asked for this"):
        review(world, approval, world.bob)
    assert not approval.reviews.exists()


def test_the_uploader_cannot_approve(world: Any) -> None:
    model = world.model("mlp")
    world.ready(model, user=world.bob)
    configs_by(world, model, world.carol)
    approval = request(world, user=world.carol, model=model)
    with pytest.raises(PermissionDenied, match="uploaded a version"):
        review(world, approval, world.bob)


def configs_by(world: Any, model: Any, user: Any) -> Any:
    return configs.config_create(
        model=model, body={"max_batch_size": 32, "backend": "onnxruntime"}, actor=world.actor(user)
    )


def test_the_author_of_a_config_cannot_approve(world: Any) -> None:
    model = world.model("mlp")
    world.ready(model)
    configs_by(world, model, world.bob)
    approval = request(world, user=world.carol, model=model)
    with pytest.raises(PermissionDenied, match="wrote a config"):
        review(world, approval, world.bob)
    review(world, approval, world.alice)
    approval.refresh_from_db()
    assert approval.state == "applied"


def test_who_sent_a_file_of_the_version_cannot_approve(world: Any) -> None:
    model = world.model("mlp")
    version = versions.version_create(model=model, actor=world.actor(world.carol))
    uploads.upload_create(version=version, path="extra.txt", length=1, actor=world.actor(world.bob))
    type(version).objects.filter(pk=version.pk).update(state=VersionState.VALIDATING)
    version.refresh_from_db()
    from serving_node.contract.signature import ModelSignature

    signature = ModelSignature.from_json(world.ready(world.model("tmp")).signature)
    versions.version_accept(version=version, signature=signature, format="onnx", manifest_digest="0" * 64, size=1)
    approval = request(world, model=model)
    with pytest.raises(PermissionDenied, match="uploaded a version"):
        review(world, approval, world.bob)


def test_who_made_the_token_of_the_uploader_cannot_approve(world: Any) -> None:
    from registry.domain.actors import Actor

    token, _text = tokens.token_create(owner=world.robot, name="ci", scopes=["write"], actor=world.actor(world.alice))
    model = world.model("mlp")
    world.ready(model, actor=Actor.person(world.robot, token=token))
    approval = request(world, model=model)
    with pytest.raises(PermissionDenied, match="uploaded a version"):
        review(world, approval, world.alice)
    review(world, approval, world.bob)


def test_who_attached_a_known_file_to_the_version_cannot_approve(world: Any) -> None:
    model = world.model("mlp")
    world.ready(model, content=b"known")
    version = versions.version_create(model=model, actor=world.actor(world.carol))
    known = world.blob(b"known").sha256
    versions.version_attach_blob(version=version, path="model.onnx", sha256=known, actor=world.actor(world.bob))
    accept(version)
    approval = request(world, model=model, spec=world.spec({"version": 2, "weight": 100}))
    with pytest.raises(PermissionDenied, match="uploaded a version"):
        review(world, approval, world.bob)
    review(world, approval, world.alice)


def test_who_sent_files_of_a_folder_that_was_taken_apart_cannot_approve(world: Any) -> None:
    model = world.model("mlp")
    folder = versions.version_create(model=model, actor=world.actor(world.carol))
    uploads.upload_create(version=folder, path="mlp/1/model.onnx", length=1, actor=world.actor(world.bob))
    folder.refresh_from_db()
    made = versions.version_create(model=model, taken_from=folder, actor=world.actor(world.carol))
    versions.version_add_file(version=made, path="model.onnx", blob=world.blob(b"x"))
    accept(made)
    # Anybody who publishes may write these facts; they must not decide who takes part.
    versions.version_annotate(version=made, metadata={}, actor=world.actor(world.bob))
    approval = request(world, model=model)
    with pytest.raises(PermissionDenied, match="uploaded a version"):
        review(world, approval, world.bob)
    review(world, approval, world.alice)


def test_who_held_a_key_with_which_a_file_was_sent_cannot_approve(world: Any) -> None:
    from registry.domain.actors import Actor

    token, _text = tokens.token_create(owner=world.robot, name="ci", scopes=["write"], actor=world.actor(world.alice))
    version = versions.version_create(model=world.model("mlp"), actor=world.actor(world.carol))
    robot = Actor.person(world.robot, token=token)
    uploads.upload_create(version=version, path="extra.txt", length=1, actor=robot)
    accept(version)
    approval = request(world, model=version.model)
    with pytest.raises(PermissionDenied, match="uploaded a version"):
        review(world, approval, world.alice)
    review(world, approval, world.bob)


def test_who_renewed_the_key_of_the_uploader_cannot_approve(world: Any) -> None:
    from registry.domain.actors import Actor

    token, _text = tokens.token_create(owner=world.robot, name="ci", scopes=["write"], actor=world.actor(world.alice))
    world.bob.site_role = "admin"
    world.bob.save()
    token, _text = tokens.token_rotate(token=token, actor=world.actor(world.bob))
    model = world.model("mlp")
    world.ready(model, actor=Actor.person(world.robot, token=token))
    approval = request(world, model=model)
    for user in (world.alice, world.bob):
        with pytest.raises(PermissionDenied, match="uploaded a version"):
            review(world, approval, user)


def accept(version: Any) -> None:
    from tests.registry.conftest import SIGNATURE

    type(version).objects.filter(pk=version.pk).update(state=VersionState.VALIDATING)
    version.refresh_from_db()
    versions.version_accept(version=version, signature=SIGNATURE, format="onnx", manifest_digest="0" * 64, size=1)


def test_service_accounts_and_the_system_never_approve(world: Any) -> None:
    from registry.domain.actors import Actor

    approval = request(world)
    with pytest.raises(PermissionDenied, match="Service accounts"):
        review(world, approval, world.robot)
    assert not may_review(Actor.system("x"), approval)


def test_lower_roles_and_strangers_cannot_approve(world: Any) -> None:
    approval = request(world)
    for user in (world.dan, world.eve):
        with pytest.raises(PermissionDenied):
            review(world, approval, user)


def test_a_reviewer_decides_about_what_was_read(world: Any) -> None:
    approval = request(world)
    with pytest.raises(StaleWrite):
        review(world, approval, world.bob, digest="0" * 64)
    with pytest.raises(ValidationFailed):
        review(world, approval, world.bob, decision="shrug")


def test_rejection_ends_it(world: Any) -> None:
    approval = request(world)
    review(world, approval, world.bob, "reject")
    approval.refresh_from_db()
    assert (approval.state, approval.state_reason) == ("rejected", "read it")
    with pytest.raises(InvalidTransition):
        review(world, approval, world.alice)


def test_requested_changes_hold_it_up(world: Any) -> None:
    approval = request(world)
    review(world, approval, world.bob, "request_changes")
    review(world, approval, world.alice)
    approval.refresh_from_db()
    assert approval.state == "open"
    review(world, approval, world.bob)
    approval.refresh_from_db()
    assert approval.state == "applied"


def test_two_approvals_when_two_are_needed(world: Any) -> None:
    world.production.environment.required_approvals = 2
    world.production.environment.save()
    approval = request(world)
    review(world, approval, world.bob)
    review(world, approval, world.bob)
    approval.refresh_from_db()
    assert approval.state == "open"
    detail = approval_detail(world.actor(world.alice), approval)
    assert (detail.required, detail.approvals_given, bool(detail.may_review)) == (2, 1, True)
    assert [version.number for version in detail.versions] == [1]
    review(world, approval, world.alice)
    approval.refresh_from_db()
    assert approval.state == "applied"


def test_the_word_of_somebody_who_lost_the_role_does_not_count(world: Any) -> None:
    world.production.environment.required_approvals = 2
    world.production.environment.save()
    approval = request(world)
    review(world, approval, world.bob)
    Membership.objects.filter(user=world.bob).update(role="viewer")
    review(world, approval, world.alice)
    approval.refresh_from_db()
    assert approval.state == "open"


@pytest.mark.parametrize("what", ["check", "selector", "quarantine"])
def test_a_request_is_void_when_what_it_is_bound_to_changes(world: Any, what: str) -> None:
    approval = request(world)
    version = approval.deployment.model.versions.get()
    if what == "check":
        from registry.services.checks import check_start

        check_start(version=version, kind="smoke")
    elif what == "selector":
        Fleet.objects.filter(pk=world.production.pk).update(selector={"environment": "other"})
    else:
        versions.version_quarantine(version=version, reason="leaks", actor=world.actor(world.alice))
    with pytest.raises(Conflict, match="void"):
        review(world, approval, world.bob)
    approval.refresh_from_db()
    assert approval.state == "voided"
    assert not Route.objects.exists()


def test_a_newer_request_replaces_the_older(world: Any) -> None:
    model = world.model("mlp")
    world.ready(model)
    world.ready(model)
    older = request(world, model=model)
    newer = request(world, model=model, spec=world.spec({"version": 2, "weight": 100}))
    older.refresh_from_db()
    assert (older.state, newer.state) == ("voided", "open")
    same = request(world, model=model, spec=world.spec({"version": 2, "weight": 100}))
    assert same == newer


def test_withdrawing(world: Any) -> None:
    approval = request(world)
    with pytest.raises(PermissionDenied):
        approvals.approval_withdraw(approval=approval, actor=world.actor(world.bob))
    approvals.approval_withdraw(approval=approval, actor=world.actor(world.carol))
    assert approval.state == "withdrawn"


def test_requests_expire(world: Any) -> None:
    approval = request(world)
    assert approvals.approvals_expire(timezone.now()) == 0
    assert approvals.approvals_expire(timezone.now() + timedelta(days=8)) == 1
    approval.refresh_from_db()
    assert approval.state == "expired"
    late = request(world, model=approval.deployment.model)
    ApprovalRequest.objects.filter(pk=late.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(Conflict, match="expired"):
        review(world, late, world.bob)
    late.refresh_from_db()
    assert late.state == "expired"


def test_rules_are_not_bypassed_once_the_time_is_over(world: Any) -> None:
    world.production.environment.bypassers.add(world.bob)
    late = request(world)
    ApprovalRequest.objects.filter(pk=late.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(Conflict, match="expired"):
        approvals.approval_bypass(
            approval=late, reason="It burns.", plan_digest=late.plan_digest, actor=world.actor(world.bob)
        )
    late.refresh_from_db()
    assert late.state == "expired"
    assert not Route.objects.exists()
