"""Approval requests."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django.db.models import QuerySet

from registry.domain.actors import Actor
from registry.models import ApprovalRequest, Check, ConfigRevision, ModelVersion, Review
from registry.selectors.permissions import Allowed, Denied


@dataclass(frozen=True, slots=True)
class ApprovalDetail:
    """Everything the review page shows. ``may_review`` is Allowed, or Denied with the sentence why not."""

    approval: ApprovalRequest
    reviews: tuple[Review, ...]
    versions: tuple[ModelVersion, ...]
    configs: tuple[ConfigRevision, ...]
    checks: tuple[Check, ...]
    spec_before: dict[str, object]
    required: int
    approvals_given: int
    may_review: Allowed | Denied


def approvals_visible_to(actor: Actor) -> QuerySet[ApprovalRequest]:
    """Return requests of the actor's projects, with deployment, model, fleet, environment, requester; newest first."""
    raise NotImplementedError


def approval_get(actor: Actor, approval_id: uuid.UUID | str) -> ApprovalRequest:
    """Return a request by id.

    Raises:
        NotFound: it does not exist, or the actor may not see it.
    """
    raise NotImplementedError


def inbox(actor: Actor) -> QuerySet[ApprovalRequest]:
    """Return open requests in projects where the actor has the role to review, oldest first."""
    raise NotImplementedError


def may_review(actor: Actor, approval: ApprovalRequest) -> Allowed | Denied:
    """Say whether the actor may decide about a request; the reason names which rule forbids it."""
    raise NotImplementedError


def approval_detail(actor: Actor, approval: ApprovalRequest) -> ApprovalDetail:
    """Return everything the review page shows."""
    raise NotImplementedError
