"""Approval of plans by people who did not make them."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.domain.states import APPROVAL, require_move
from registry.errors import Conflict, PermissionDenied, RegistryError, StaleWrite, ValidationFailed
from registry.models import ApprovalRequest, ApprovalState, Review, ReviewDecision, Rollout
from registry.selectors import clock
from registry.selectors.approvals import approval_verdict, may_review
from registry.selectors.permissions import Denied
from registry.services import audit
from registry.services.approval_progress import (
    approval_advance,
    approval_apply,
    approval_expire,
    approval_locked,
    approval_publish,
    approval_void_if_changed,
)
from registry.services.permissions import require
from registry.services.transition import move


def approval_review(
    *, approval: ApprovalRequest, decision: str, comment: str = "", plan_digest: str = "", actor: Actor
) -> Review:
    """Decide about a request: approve, request_changes or reject; or comment. ``plan_digest`` is what was read.

    Once the rules of the environment are met the request is approved, and applied in the same transaction unless it has
    to wait. What waits can still be rejected.

    Raises:
        PermissionDenied: the reviewer made a part of the plan, asked for it, is a service account, lacks the role, or
            others are named as approvers.
        StaleWrite: the reviewer read another plan.
        Conflict: what the plan is bound to has changed; the request is void.
        InvalidTransition: the request is not open.
        ValidationFailed: no such decision, or a comment without words.
    """
    if decision not in ReviewDecision.values:
        raise ValidationFailed(_("There is no such decision."), errors=[{"field": "decision", "message": decision}])
    if decision == ReviewDecision.COMMENT:
        return _comment(approval, comment, actor)
    with transaction.atomic():
        approval = approval_locked(approval.pk, approval.deployment_id)
        allowed = may_review(actor, approval)
        if isinstance(allowed, Denied) or actor.user_id is None:
            raise PermissionDenied(allowed.reason if isinstance(allowed, Denied) else _("Only people approve."))
        wanted = ApprovalState.REJECTED if decision == ReviewDecision.REJECT else ApprovalState.APPROVED
        require_move(APPROVAL, approval.state, wanted, noun=_("This request"))
        if plan_digest != approval.plan_digest:
            raise StaleWrite(_("The plan changed since you opened it; read it again."))
        now = clock.database_now()
        void = approval_expire(approval, actor) if approval.expires_at <= now else ""
        void = void or approval_void_if_changed(approval, actor)
        if not void:
            return _decide(approval, decision, comment, now, actor)
    # Raised after the commit, so that the request stays void.
    raise Conflict(void)


def approval_bypass(*, approval: ApprovalRequest, reason: str, plan_digest: str, actor: Actor) -> Rollout:
    """Start a change whatever the environment's rules say, for a reason that is kept (whom the environment lets).

    The plan must still be what was read, and still be possible.

    Raises:
        PermissionDenied: the environment does not let the caller.
        ValidationFailed: no reason.
        StaleWrite: the caller read another plan.
        Conflict: what the plan is bound to has changed, or its time is over; the request is void, or has expired.
        InvalidTransition: the request is neither open nor waiting.
    """
    require(actor, "approval.bypass", approval)
    words = _words(reason, "reason", _("Say why the rules are bypassed."))
    if actor.user_id is None:
        raise PermissionDenied(_("Only people bypass rules."))
    with transaction.atomic():
        approval = approval_locked(approval.pk, approval.deployment_id)
        require_move(APPROVAL, approval.state, ApprovalState.VOIDED, noun=_("This request"))
        if plan_digest != approval.plan_digest:
            raise StaleWrite(_("The plan changed since you opened it; read it again."))
        now = clock.database_now()
        void = approval_expire(approval, actor) if approval.expires_at <= now else ""
        void = void or approval_void_if_changed(approval, actor)
        if not void:
            skipped = approval_verdict(approval, now).reasons
            approval.bypassed_by_id, approval.bypass_reason = actor.user_id, words
            approval.save(update_fields=["bypassed_by", "bypass_reason"])
            audit.record(
                actor=actor,
                action="approval.bypass",
                obj=approval,
                after={"reason": words, "skipped": [*skipped], "plan_digest": approval.plan_digest},
            )
            if approval.state == ApprovalState.OPEN:
                cause = f"bypassed by {actor.name}"
                move(approval, "state", ApprovalState.APPROVED, cause=cause, actor=actor, approved_at=now)
            return approval_apply(approval, now, actor)
    raise Conflict(void)


def approval_withdraw(*, approval: ApprovalRequest, actor: Actor) -> None:
    """Take a request back, also one that waits: by its requester or a project administrator.

    Raises:
        InvalidTransition: the request has ended.
    """
    if actor.user_id != approval.requester_id or not actor.has_scope("write"):
        require(actor, "approval.withdraw", approval)
    reason = _("Withdrawn by %(name)s.") % {"name": actor.name}
    with transaction.atomic():
        move(approval, "state", ApprovalState.WITHDRAWN, cause=reason, actor=actor, state_reason=reason, due_at=None)
        audit.record(actor=actor, action="approval.withdraw", obj=approval)
        approval_publish(approval)


def approvals_expire(now: datetime) -> int:
    """Expire requests past their time and return how many."""
    actor = Actor.system("expiry")
    waiting = [ApprovalState.OPEN, ApprovalState.APPROVED]
    expired = 0
    for approval in ApprovalRequest.objects.filter(state__in=waiting, expires_at__lt=now)[:500]:
        try:
            with transaction.atomic():
                approval_expire(approval, actor)
        except RegistryError:
            continue  # decided in between
        expired += 1
    return expired


def _decide(approval: ApprovalRequest, decision: str, comment: str, now: datetime, actor: Actor) -> Review:
    review = _review(approval, decision, comment, actor)
    if decision == ReviewDecision.REJECT:
        reason = comment or _("Rejected by %(name)s.") % {"name": actor.name}
        move(approval, "state", ApprovalState.REJECTED, cause=reason, actor=actor, state_reason=reason, due_at=None)
    else:
        approval_advance(approval, now, actor)
    return review


def _comment(approval: ApprovalRequest, comment: str, actor: Actor) -> Review:
    require(actor, "approval.comment", approval)
    words = _words(comment, "comment", _("Write the comment."))
    with transaction.atomic():
        return _review(approval, ReviewDecision.COMMENT, words, actor)


def _review(approval: ApprovalRequest, decision: str, comment: str, actor: Actor) -> Review:
    if actor.user_id is None:
        raise PermissionDenied(_("Only people review."))
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
    approval_publish(approval)
    return review


def _words(text: str, field: str, sentence: str) -> str:
    words = text.strip()
    if not words or len(words) > 2000:
        message = sentence if not words else _("At most 2,000 characters.")
        raise ValidationFailed(message, errors=[{"field": field, "message": message}])
    return words
