"""Approval of plans by people who did not make them."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from registry import telemetry
from registry.domain.actors import Actor
from registry.domain.plans import DeploymentSpec
from registry.domain.states import APPROVAL, require_move
from registry.errors import Conflict, PermissionDenied, RegistryError, StaleWrite, ValidationFailed
from registry.models import ApprovalRequest, ApprovalState, Deployment, Review, ReviewDecision
from registry.selectors.approvals import approvals_given, may_review
from registry.selectors.permissions import Denied
from registry.services import audit
from registry.services.permissions import require
from registry.services.plans import plan_of, spec_resolve
from registry.services.rollouts import spec_apply
from registry.services.transition import move
from serving_node.contract.digests import plan_digest as digest_of


def approval_review(
    *, approval: ApprovalRequest, decision: str, comment: str = "", plan_digest: str, actor: Actor
) -> Review:
    """Decide about a request: approve, request_changes or reject. ``plan_digest`` is what the reviewer read.

    With enough approvals (and nobody asking for changes) the request is approved and applied in the same transaction.

    Raises:
        PermissionDenied: the reviewer made a part of the plan, asked for it, is a service account, or lacks the role.
        StaleWrite: the reviewer read another plan.
        Conflict: what the plan is bound to has changed; the request is void.
        InvalidTransition: the request is not open.
        ValidationFailed: no such decision, or a refusal without a comment.
    """
    if decision not in ReviewDecision.values:
        raise ValidationFailed(_("There is no such decision."), errors=[{"field": "decision", "message": decision}])
    with transaction.atomic():
        approval = _locked(approval)
        allowed = may_review(actor, approval)
        if isinstance(allowed, Denied) or actor.user_id is None:
            raise PermissionDenied(allowed.reason if isinstance(allowed, Denied) else _("Only people approve."))
        require_move(APPROVAL, approval.state, ApprovalState.APPROVED, noun=_("This request"))
        if plan_digest != approval.plan_digest:
            raise StaleWrite(_("The plan changed since you opened it; read it again."))
        if approval.expires_at <= timezone.now():
            void = _("The request has expired.")
            move(approval, "state", ApprovalState.EXPIRED, cause=void, actor=actor, state_reason=void)
        else:
            void = _void_if_changed(approval, actor)
        if not void:
            return _decide(approval, decision, comment, actor, approval.deployment)
    # Raised after the commit, so that the request stays void.
    raise Conflict(void)


def approval_withdraw(*, approval: ApprovalRequest, actor: Actor) -> None:
    """Take a request back: by its requester or a project administrator.

    Raises:
        InvalidTransition: the request is not open.
    """
    if actor.user_id != approval.requester_id or not actor.has_scope("write"):
        require(actor, "approval.withdraw", approval)
    reason = _("Withdrawn by %(name)s.") % {"name": actor.name}
    with transaction.atomic():
        move(approval, "state", ApprovalState.WITHDRAWN, cause=reason, actor=actor, state_reason=reason)
        audit.record(actor=actor, action="approval.withdraw", obj=approval)
        _publish(approval)


def approvals_expire(now: datetime) -> int:
    """Expire requests past their time and return how many."""
    actor = Actor.system("expiry")
    waiting = [ApprovalState.OPEN, ApprovalState.APPROVED]
    expired = 0
    for approval in ApprovalRequest.objects.filter(state__in=waiting, expires_at__lt=now)[:500]:
        try:
            with transaction.atomic():
                reason = _("Nobody decided in time.")
                move(approval, "state", ApprovalState.EXPIRED, cause=reason, actor=actor, state_reason=reason)
                audit.record(actor=actor, action="approval.expire", obj=approval)
                _publish(approval)
        except RegistryError:
            continue  # decided in between
        expired += 1
    return expired


def _locked(approval: ApprovalRequest) -> ApprovalRequest:
    """Return the request under its own and its deployment's lock, always taken in this order: deployment first."""
    Deployment.objects.select_for_update().get(pk=approval.deployment_id)
    return (
        ApprovalRequest.objects.select_for_update(of=("self",))
        .select_related("deployment__model", "deployment__fleet__environment", "deployment__project", "environment")
        .get(pk=approval.pk)
    )


def _void_if_changed(approval: ApprovalRequest, actor: Actor) -> str:
    """Void the request when what it is bound to has changed, and return why; empty when it still holds."""
    deployment = approval.deployment
    why = ""
    try:
        resolved = spec_resolve(
            model=deployment.model, spec=DeploymentSpec.from_json(approval.spec), deployment=deployment
        )
        if digest_of(plan_of(fleet=deployment.fleet, resolved=resolved)) != approval.plan_digest:
            why = _("What this plan is bound to has changed, so the request is void; ask again.")
    except RegistryError as error:
        why = _("This plan is no longer possible, so the request is void: %(why)s") % {"why": error.message}
    if why:
        move(approval, "state", ApprovalState.VOIDED, cause=why, actor=actor, state_reason=why)
        audit.record(actor=actor, action="approval.void", obj=approval, after={"reason": why})
        _publish(approval)
    return why


def _decide(approval: ApprovalRequest, decision: str, comment: str, actor: Actor, deployment: Deployment) -> Review:
    assert actor.user_id is not None
    review = Review.objects.create(
        request=approval,
        reviewer_id=actor.user_id,
        decision=decision,
        comment=comment,
        plan_digest=approval.plan_digest,
    )
    audit.record(
        actor=actor,
        action=f"approval.{decision}",
        obj=approval,
        after={"plan_digest": approval.plan_digest, "comment": comment},
    )
    _publish(approval)
    if decision == ReviewDecision.REJECT:
        reason = comment or _("Rejected by %(name)s.") % {"name": actor.name}
        move(approval, "state", ApprovalState.REJECTED, cause=reason, actor=actor, state_reason=reason)
        return review
    given, changes = approvals_given(approval)
    if given >= max(1, approval.environment.required_approvals) and not changes:
        move(approval, "state", ApprovalState.APPROVED, cause=f"approved by {actor.name}", actor=actor)
        spec_apply(
            deployment=deployment,
            spec=DeploymentSpec.from_json(approval.spec),
            kind="deploy",
            approval=approval,
            actor=actor,
        )
        move(approval, "state", ApprovalState.APPLIED, cause="applied", actor=actor, applied_at=timezone.now())
    return review


def _publish(approval: ApprovalRequest) -> None:
    project = approval.project_id
    telemetry.publish_on_commit(f"approval:{approval.id}", project=project)
    telemetry.publish_on_commit(f"deployment:{approval.deployment_id}", project=project)
    telemetry.publish_on_commit(f"project:{project}", project=project)
