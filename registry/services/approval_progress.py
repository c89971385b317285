"""How a request moves by itself: approved as soon as its environment's rules let it, applied when their time has come.

Level-triggered: every pass judges the facts of the moment under the request's lock, with the time of the database.
"""

from __future__ import annotations

import logging
import uuid
from datetime import datetime, timedelta

from django.db import transaction
from django.utils.translation import gettext as _

from registry import telemetry
from registry.domain.actors import Actor
from registry.domain.plans import DeploymentSpec
from registry.domain.protection import Verdict
from registry.errors import RegistryError
from registry.models import ApprovalRequest, ApprovalState, Deployment, Rollout
from registry.selectors import clock
from registry.selectors.approvals import approval_verdict
from registry.selectors.protection import WAITING
from registry.services import audit
from registry.services.plans import plan_of, spec_resolve
from registry.services.rollouts import spec_apply
from registry.services.transition import move
from serving_node.contract.digests import plan_digest as digest_of

_log = logging.getLogger(__name__)

# Nobody tells a request that a check has ended; it looks again by itself.
_LOOK_AGAIN = timedelta(seconds=30)
_AFTER_FAILURE = timedelta(minutes=1)
_FAR = timedelta(hours=1)


def approval_locked(approval_id: uuid.UUID, deployment_id: uuid.UUID) -> ApprovalRequest:
    """Return the request under its own and its deployment's lock, always taken in this order: deployment first."""
    Deployment.objects.select_for_update().get(pk=deployment_id)
    return (
        ApprovalRequest.objects.select_for_update(of=("self",))
        .select_related(
            "project", "deployment__model", "deployment__fleet__environment", "deployment__project", "environment"
        )
        .get(pk=approval_id)
    )


def approval_void_if_changed(approval: ApprovalRequest, actor: Actor) -> str:
    """Void a locked request when what it is bound to has changed, and return why; empty when it still holds."""
    why = _what_changed(approval)
    if why:
        approval_void(approval, why, actor)
    return why


def _what_changed(approval: ApprovalRequest) -> str:
    """Return why the plan of a request is no longer what would happen; empty when it is."""
    deployment = approval.deployment
    try:
        spec = DeploymentSpec.from_json(approval.spec)
        resolved = spec_resolve(model=deployment.model, spec=spec, deployment=deployment)
        plan = plan_of(model=deployment.model, fleet=deployment.fleet, resolved=resolved)
    except RegistryError as error:
        return _("This plan is no longer possible, so the request is void: %(why)s") % {"why": error.message}
    if digest_of(plan) != approval.plan_digest:
        return _("What this plan is bound to has changed, so the request is void; ask again.")
    return ""


def approval_void(approval: ApprovalRequest, why: str, actor: Actor) -> None:
    """Void a locked request that is open or waits."""
    move(approval, "state", ApprovalState.VOIDED, cause=why, actor=actor, state_reason=why, due_at=None)
    audit.record(actor=actor, action="approval.void", obj=approval, after={"reason": why})
    approval_publish(approval)


def approval_advance(approval: ApprovalRequest, now: datetime, actor: Actor) -> None:
    """Move a locked request whose plan still holds as far as the rules allow: open, approved, applied."""
    verdict = approval_verdict(approval, now)
    if approval.state == ApprovalState.OPEN:
        if verdict.is_denied:
            _look_again(approval, verdict, now)
            return
        _approve(approval, now, actor)
        verdict = approval_verdict(approval, now)
    if verdict.is_denied:
        why = _("What approved it no longer holds, so the request is void; ask again: %(why)s") % {
            "why": " ".join(verdict.reasons)
        }
        approval_void(approval, why, actor)
    elif verdict.is_allowed:
        approval_apply(approval, now, actor)
    else:
        _wait(approval, verdict, now, actor)


def approval_apply(approval: ApprovalRequest, now: datetime, actor: Actor) -> Rollout:
    """Put the plan of a locked and approved request in force."""
    rollout, _operation = spec_apply(
        deployment=approval.deployment,
        spec=DeploymentSpec.from_json(approval.spec),
        kind="deploy",
        approval=approval,
        actor=actor,
    )
    move(approval, "state", ApprovalState.APPLIED, cause="applied", actor=actor, applied_at=now, due_at=None)
    approval_publish(approval)
    return rollout


def approvals_advance(limit: int = 50) -> int:
    """Look at the requests whose time has come and return how many were looked at. One that fails stops no other."""
    actor = Actor.system("protection")
    due = ApprovalRequest.objects.filter(state__in=WAITING, due_at__lte=clock.database_now()).order_by("due_at")
    found = list(due.values_list("id", "deployment_id")[:limit])
    for approval_id, deployment_id in found:
        try:
            _advance_one(approval_id, deployment_id, actor)
        except Exception:
            _log.exception("approval.advance_failed approval=%s", approval_id)
            later = clock.database_now() + _AFTER_FAILURE
            ApprovalRequest.objects.filter(pk=approval_id).update(due_at=later)
    return len(found)


def approvals_void_changed(limit: int = 100) -> int:
    """Void waiting requests whose plan has changed meanwhile, and return how many: nobody should read a plan in vain.

    Nothing is locked to look at them. Where there are more than ``limit``, which ones come now is chance.
    """
    actor = Actor.system("protection")
    waiting = ApprovalRequest.objects.filter(state__in=WAITING).select_related(
        "deployment__model__project", "deployment__fleet__environment", "deployment__project"
    )
    voided = 0
    for seen in waiting.order_by("?")[:limit]:
        try:
            if _what_changed(seen):
                with transaction.atomic():
                    approval = approval_locked(seen.pk, seen.deployment_id)
                    voided += approval.state in WAITING and bool(approval_void_if_changed(approval, actor))
        except Exception:
            _log.exception("approval.look_failed approval=%s", seen.pk)
    return voided


def approvals_void_of(deployment: Deployment, why: str, actor: Actor, *, states: tuple[str, ...] = WAITING) -> None:
    """Void the requests of a deployment, whose lock the caller holds, that are in one of the states."""
    for older in deployment.approvals.select_for_update(of=("self",)).filter(state__in=states):
        approval_void(older, why, actor)


def approval_publish(approval: ApprovalRequest) -> None:
    """Tell open pages after the commit."""
    project = approval.project_id
    telemetry.publish_on_commit(f"approval:{approval.id}", project=project)
    telemetry.publish_on_commit(f"deployment:{approval.deployment_id}", project=project)
    telemetry.publish_on_commit(f"project:{project}", project=project)


def _advance_one(approval_id: uuid.UUID, deployment_id: uuid.UUID, actor: Actor) -> None:
    try:
        with transaction.atomic():
            approval = approval_locked(approval_id, deployment_id)
            now = clock.database_now()
            if approval.state not in WAITING or approval.due_at is None or approval.due_at > now:
                return  # somebody was faster
            if approval.expires_at <= now:
                approval_expire(approval, actor)
            elif not approval_void_if_changed(approval, actor):
                approval_advance(approval, now, actor)
    except RegistryError as error:
        # It cannot be applied: what stands against it is in the sentence.
        with transaction.atomic():
            approval = approval_locked(approval_id, deployment_id)
            if approval.state in WAITING:
                approval_void(approval, _("This plan could not be applied: %(why)s") % {"why": error.message}, actor)


def approval_expire(approval: ApprovalRequest, actor: Actor) -> str:
    """Expire a locked request, and return why."""
    reason = _("The request has expired: nobody decided in time.")
    if approval.state == ApprovalState.APPROVED:
        reason = _("The request has expired: it waited too long.")
    move(approval, "state", ApprovalState.EXPIRED, cause=reason, actor=actor, state_reason=reason, due_at=None)
    audit.record(actor=actor, action="approval.expire", obj=approval)
    approval_publish(approval)
    return reason


def _approve(approval: ApprovalRequest, now: datetime, actor: Actor) -> None:
    cause = f"approved by {actor.name}" if not actor.is_system else "nothing is missing any more"
    move(approval, "state", ApprovalState.APPROVED, cause=cause, actor=actor, approved_at=now, due_at=None)


def _wait(approval: ApprovalRequest, verdict: Verdict, now: datetime, actor: Actor) -> None:
    """Note when the request is looked at next, and let it live until some time after its beginning."""
    until = verdict.until or now + _FAR
    first = approval.due_at is None
    valid = timedelta(hours=approval.environment.approval_valid_hours)
    approval.due_at, approval.expires_at = until, max(approval.expires_at, until + valid)
    approval.save(update_fields=["due_at", "expires_at"])
    if first:
        audit.record(actor=actor, action="approval.wait", obj=approval, after={"until": until.isoformat()})
    approval_publish(approval)


def _look_again(approval: ApprovalRequest, verdict: Verdict, now: datetime) -> None:
    """Look at an open request again soon when only checks are missing; people bring the rest themselves."""
    unmet = {finding.rule for finding in verdict.findings if finding.standing == "unmet"}
    due_at = None if unmet & {"approvals", "changes"} else now + _LOOK_AGAIN
    if approval.due_at != due_at:
        approval.due_at = due_at
        approval.save(update_fields=["due_at"])
