"""Approval requests."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.domain.plans import DeploymentSpec
from registry.models import (
    ROLE_RANK,
    ApiToken,
    ApprovalRequest,
    ApprovalState,
    Check,
    ConfigRevision,
    Membership,
    ModelVersion,
    Review,
    ReviewDecision,
    Role,
    Upload,
)
from registry.selectors.accounts import projects_of
from registry.selectors.lookup import one_by_id
from registry.selectors.permissions import Allowed, Denied, can


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


_REVIEWERS = [role for role in Role.values if ROLE_RANK[role] >= ROLE_RANK[Role.APPROVER]]


def approvals_visible_to(actor: Actor) -> QuerySet[ApprovalRequest]:
    """Return requests of the actor's projects, with deployment, model, fleet, environment, requester; newest first."""
    return (
        ApprovalRequest.objects.filter(project__in=projects_of(actor))
        .select_related(
            "project", "deployment__model", "deployment__fleet", "environment", "requester", "requester_token"
        )
        .order_by("-created_at")
    )


def approval_get(actor: Actor, approval_id: uuid.UUID | str) -> ApprovalRequest:
    """Return a request by id.

    Raises:
        NotFound: it does not exist, or the actor may not see it.
    """
    return one_by_id(approvals_visible_to(actor), approval_id, _("There is no such approval request."))


def inbox(actor: Actor) -> QuerySet[ApprovalRequest]:
    """Return open requests in projects where the actor has the role to review, oldest first."""
    if actor.user_id is None:
        return ApprovalRequest.objects.none()
    reviewing = Membership.objects.filter(user_id=actor.user_id, role__in=_REVIEWERS).values("project_id")
    return approvals_visible_to(actor).filter(state=ApprovalState.OPEN, project_id__in=reviewing).order_by("created_at")


def may_review(actor: Actor, approval: ApprovalRequest) -> Allowed | Denied:
    """Say whether the actor may decide about a request; the reason names which rule forbids it."""
    if actor.is_system or actor.user is None:
        return Denied(_("Only people approve."))
    if actor.user.is_service:
        return Denied(_("Service accounts never approve."))
    allowed = can(actor, "approval.review", approval)
    if isinstance(allowed, Denied):
        return allowed
    if actor.user_id == approval.requester_id or actor.user_id in _holders([approval.requester_token_id]):
        return Denied(_("You asked for this change, so somebody else must approve it."))
    versions, configs = _parts(approval)
    uploaders: set[uuid.UUID] = {version.author_id for version in versions}
    uploaders |= _holders(version.author_token_id for version in versions)
    uploaders |= set(Upload.objects.filter(version__in=versions).values_list("owner_id", flat=True))
    if actor.user_id in uploaders:
        return Denied(_("You uploaded a version in this plan, so somebody else must approve it."))
    authors = {config.author_id for config in configs} | _holders(config.author_token_id for config in configs)
    if actor.user_id in authors:
        return Denied(_("You wrote a config in this plan, so somebody else must approve it."))
    return Allowed()


def approvals_given(approval: ApprovalRequest) -> tuple[int, int]:
    """Return how many people approve now and how many ask for changes: the last word of each, if it is about this plan.

    Words of people who lost the role since do not count.
    """
    reviewers = Membership.objects.filter(
        project_id=approval.project_id, role__in=_REVIEWERS, user__is_active=True, user__is_service=False
    ).values("user_id")
    last: dict[uuid.UUID, str] = {}
    reviews = approval.reviews.filter(plan_digest=approval.plan_digest, reviewer_id__in=reviewers)
    for reviewer_id, decision in reviews.order_by("created_at").values_list("reviewer_id", "decision"):
        last[reviewer_id] = decision
    decisions = list(last.values())
    return decisions.count(ReviewDecision.APPROVE), decisions.count(ReviewDecision.REQUEST_CHANGES)


def approval_detail(actor: Actor, approval: ApprovalRequest) -> ApprovalDetail:
    """Return everything the review page shows."""
    versions, configs = _parts(approval)
    given, _changes = approvals_given(approval)
    return ApprovalDetail(
        approval=approval,
        reviews=tuple(approval.reviews.select_related("reviewer").order_by("created_at")),
        versions=tuple(versions),
        configs=tuple(configs),
        checks=tuple(Check.objects.filter(version__in=versions).select_related("version").order_by("created_at")),
        spec_before=dict(approval.deployment.spec),
        required=max(1, approval.environment.required_approvals),
        approvals_given=given,
        may_review=may_review(actor, approval),
    )


def _parts(approval: ApprovalRequest) -> tuple[list[ModelVersion], list[ConfigRevision]]:
    spec = DeploymentSpec.from_json(approval.spec)
    versions = ModelVersion.objects.filter(pk__in=[route.version_id for route in spec.routes])
    configs = ConfigRevision.objects.filter(pk__in=[route.config_id for route in spec.routes])
    return (
        list(versions.select_related("author", "model").order_by("number")),
        list(configs.select_related("author", "model").order_by("number")),
    )


def _holders(token_ids: Iterable[uuid.UUID | None]) -> set[uuid.UUID]:
    """Return who may hold the secrets of tokens: their owners and those who made them."""
    ids = [token_id for token_id in token_ids if token_id is not None]
    people = set()
    for token in ApiToken.objects.filter(pk__in=ids):
        people.add(token.owner_id)
        if token.created_by_id is not None:
            people.add(token.created_by_id)
    return people
