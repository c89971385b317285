"""Approval of plans by people who did not make them."""

from __future__ import annotations

from datetime import datetime

from registry.domain.actors import Actor
from registry.models import ApprovalRequest, Review


def approval_review(
    *, approval: ApprovalRequest, decision: str, comment: str = "", plan_digest: str, actor: Actor
) -> Review:
    """Decide about a request: approve, request_changes or reject. ``plan_digest`` is what the reviewer read.

    With enough approvals the request is approved and applied in the same transaction.

    Raises:
        PermissionDenied: the reviewer made a part of the plan, asked for it, is a service account, or lacks the role.
        StaleWrite: the reviewer read another plan.
        Conflict: what the plan is bound to has changed; the request is void.
        InvalidTransition: the request is not open.
    """
    raise NotImplementedError


def approval_withdraw(*, approval: ApprovalRequest, actor: Actor) -> None:
    """Take a request back: by its requester or a project administrator."""
    raise NotImplementedError


def approvals_expire(now: datetime) -> int:
    """Expire requests past their time and return how many."""
    raise NotImplementedError
