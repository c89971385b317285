"""Approval requests."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.domain.plans import DeploymentSpec
from registry.domain.protection import Facts, Rules, Verdict, judge
from registry.models import (
    ApiToken,
    ApprovalRequest,
    ApprovalState,
    AuditEvent,
    Check,
    CodeFormats,
    ConfigRevision,
    Membership,
    ModelVersion,
    Review,
    ReviewDecision,
    Role,
    Upload,
    User,
)
from registry.selectors import clock
from registry.selectors.accounts import projects_of
from registry.selectors.code import PlannedCode, planned_code
from registry.selectors.lookup import one_by_id
from registry.selectors.permissions import Allowed, Denied, can
from registry.selectors.prepared import Prepared
from registry.selectors.protection import (
    asked_of,
    at_least,
    checked_versions,
    only_approvers,
    reviewers,
    rules_of,
)
from registry.selectors.standing import memberships_of


@dataclass(frozen=True, slots=True)
class ApprovalDetail:
    """Everything the review page shows. ``may_review`` is Allowed, or Denied with the sentence why not.

    ``verdict`` is how the environment's rules stand now; ``still_asked`` are those who may still approve.
    ``code`` is what it lets nodes run, where the project asks approvals for that. ``spec_before`` is what the request
    replaces: what is wanted there now, or of an applied one what was wanted when it started.
    """

    approval: ApprovalRequest
    reviews: tuple[Review, ...]
    versions: tuple[ModelVersion, ...]
    configs: tuple[ConfigRevision, ...]
    checks: tuple[Check, ...]
    spec_before: dict[str, object]
    required: int
    approvals_given: int
    changes_requested: int
    may_review: Allowed | Denied
    may_bypass: Allowed | Denied
    verdict: Verdict
    still_asked: tuple[User, ...]
    code: tuple[PlannedCode, ...]


_REVIEWERS = at_least(Role.APPROVER)
_ANY_OPEN = Prepared(
    lambda user: ApprovalRequest.objects.filter(
        project__memberships__user_id=user, project__memberships__role__in=_REVIEWERS, state=ApprovalState.OPEN
    ).only("pk")[:1]
)


def approvals_visible_to(actor: Actor) -> QuerySet[ApprovalRequest]:
    """Return requests of the actor's projects, with deployment, model, fleet, environment, requester; newest first."""
    return (
        ApprovalRequest.objects.filter(project__in=projects_of(actor))
        .select_related(
            "project",
            "deployment__model",
            "deployment__fleet",
            "environment",
            "requester",
            "requester_token",
            "bypassed_by",
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
    open_ones = approvals_visible_to(actor).filter(state=ApprovalState.OPEN, project_id__in=reviewing)
    return open_ones.filter(asked_of(actor.user_id)).order_by("created_at")


def inbox_size(actor: Actor) -> int:
    """Return how many requests ``inbox`` has, without looking for the actor's roles where they are remembered."""
    memberships = memberships_of(actor.user_id) if actor.user_id is not None and actor.token is None else None
    if actor.user_id is None or memberships is None:
        return inbox(actor).count()
    reviewing = [one.project_id for one in memberships if one.role in _REVIEWERS]
    if not reviewing:
        return 0
    if not _ANY_OPEN(user=actor.user_id):  # whom the environments ask takes five times as long to find out
        return 0
    open_ones = ApprovalRequest.objects.filter(project_id__in=reviewing, state=ApprovalState.OPEN)
    return open_ones.filter(asked_of(actor.user_id, memberships)).count()


def may_review(actor: Actor, approval: ApprovalRequest) -> Allowed | Denied:
    """Say whether the actor may decide about a request; the reason names which rule forbids it."""
    if actor.is_system or actor.user is None:
        return Denied(_("Only people approve."))
    if actor.user.is_service:
        return Denied(_("Service accounts never approve."))
    allowed = can(actor, "approval.review", approval)
    if isinstance(allowed, Denied):
        return allowed
    if not reviewers(approval).filter(pk=actor.user.id).exists():
        return Denied(only_approvers(approval.environment))
    made = _makers(approval).get(actor.user.id)
    return Denied(made) if made else Allowed()


def _makers(approval: ApprovalRequest) -> dict[uuid.UUID, str]:
    """Return who took part in the plan and so does not approve it, each with the sentence why not."""
    versions, configs = _parts(approval)
    authors = {config.author_id for config in configs} | _holders(config.author_token_id for config in configs)
    uploaders: set[uuid.UUID] = {version.author_id for version in versions}
    uploaders |= _holders(version.author_token_id for version in versions)
    uploaders |= set(Upload.objects.filter(version__in=versions).values_list("owner_id", flat=True))
    contributions = [one for version in versions for one in version.contributors]
    uploaders |= {uuid.UUID(user) for user, _token in contributions}
    uploaders |= _holders(uuid.UUID(token) for _user, token in contributions if token is not None)
    requesters = {approval.requester_id} | _holders([approval.requester_token_id])
    return {
        **dict.fromkeys(authors, _("You wrote a config in this plan, so somebody else must approve it.")),
        **dict.fromkeys(uploaders, _("You uploaded a version in this plan, so somebody else must approve it.")),
        **dict.fromkeys(requesters, _("You asked for this change, so somebody else must approve it.")),
    }


def approvals_given(approval: ApprovalRequest) -> tuple[int, int]:
    """Return how many people approve now and how many ask for changes: the last word of each, if it is about this plan.

    Words of people who lost the role since, or who are not named as approvers, do not count; comments are no words.
    """
    last = _last_words(approval)
    decisions = list(last.values())
    return decisions.count(ReviewDecision.APPROVE), decisions.count(ReviewDecision.REQUEST_CHANGES)


def approval_verdict(approval: ApprovalRequest, now: datetime) -> Verdict:
    """Return how the rules of the request's environment stand."""
    versions, _configs = _parts(approval)
    given, changes = approvals_given(approval)
    facts = Facts(given, changes, approval.approved_at, checked_versions(versions))
    return judge(_rules(approval), facts, now)


def approval_code(approval: ApprovalRequest) -> list[PlannedCode]:
    """Return the code that the request lets nodes run, where the project asks approvals for that; else nothing."""
    if approval.project.code_formats != CodeFormats.APPROVE:
        return []
    versions, configs = _parts(approval)
    by_version, by_config = {str(one.pk): one for one in versions}, {str(one.pk): one for one in configs}
    routes = DeploymentSpec.from_json(approval.spec).routes
    pairs = [
        (by_version[route.version_id], by_config[route.config_id])
        for route in routes
        if route.version_id in by_version and route.config_id in by_config
    ]
    return planned_code(approval.project, pairs)


def needs_people(approval: ApprovalRequest) -> bool:
    """Return whether somebody has to approve it, and not only time or checks are missing."""
    return _rules(approval).approvals > 0


def _rules(approval: ApprovalRequest) -> Rules:
    """Return what the environment asks, and one approval at least for code that nobody has approved yet."""
    rules = rules_of(approval.environment)
    if rules.approvals or all(one.is_permitted for one in approval_code(approval)):
        return rules
    return replace(rules, approvals=max(1, approval.environment.required_approvals))


def approval_detail(actor: Actor, approval: ApprovalRequest) -> ApprovalDetail:
    """Return everything the review page shows."""
    versions, configs = _parts(approval)
    last = _last_words(approval)
    decisions = list(last.values())
    return ApprovalDetail(
        approval=approval,
        reviews=tuple(approval.reviews.select_related("reviewer").order_by("created_at")),
        versions=tuple(versions),
        configs=tuple(configs),
        checks=tuple(Check.objects.filter(version__in=versions).select_related("version").order_by("created_at")),
        spec_before=_spec_before(approval),
        required=_rules(approval).approvals,
        code=tuple(approval_code(approval)),
        approvals_given=decisions.count(ReviewDecision.APPROVE),
        changes_requested=decisions.count(ReviewDecision.REQUEST_CHANGES),
        may_review=may_review(actor, approval),
        may_bypass=can(actor, "approval.bypass", approval),
        verdict=approval_verdict(approval, clock.database_now()),
        still_asked=_still_asked(approval, last),
    )


def _spec_before(approval: ApprovalRequest) -> dict[str, object]:
    first = approval.rollouts.order_by("created_at").first() if approval.state == ApprovalState.APPLIED else None
    return dict(first.spec_from if first is not None else approval.deployment.spec)


# More names than this help nobody to find whom to ask.
_MOST_ASKED = 20


def _still_asked(approval: ApprovalRequest, last: Mapping[uuid.UUID, str]) -> tuple[User, ...]:
    if approval.state != ApprovalState.OPEN or not _rules(approval).approvals:
        return ()
    silent = reviewers(approval).exclude(pk__in=[pk for pk, word in last.items() if word == ReviewDecision.APPROVE])
    out = _makers(approval)
    return tuple(user for user in silent[: _MOST_ASKED + len(out)] if user.pk not in out)[:_MOST_ASKED]


def _last_words(approval: ApprovalRequest) -> dict[uuid.UUID, str]:
    words = approval.reviews.filter(plan_digest=approval.plan_digest, reviewer__in=reviewers(approval))
    words = words.exclude(decision=ReviewDecision.COMMENT).order_by("created_at")
    return dict(words.values_list("reviewer_id", "decision"))


def _parts(approval: ApprovalRequest) -> tuple[list[ModelVersion], list[ConfigRevision]]:
    spec = DeploymentSpec.from_json(approval.spec)
    versions = ModelVersion.objects.filter(pk__in=[route.version_id for route in spec.routes])
    configs = ConfigRevision.objects.filter(pk__in=[route.config_id for route in spec.routes])
    return (
        list(versions.select_related("author", "model").order_by("number")),
        list(configs.select_related("author", "model").order_by("number")),
    )


def _holders(token_ids: Iterable[uuid.UUID | None]) -> set[uuid.UUID]:
    """Return who may hold the secrets of tokens: their owners, and those who made or renewed them."""
    ids = {token_id for token_id in token_ids if token_id is not None}
    if not ids:
        return set()
    owners = ApiToken.objects.filter(pk__in=ids).values_list("owner_id", "created_by_id")
    rotated = AuditEvent.objects.filter(
        object_type="apitoken", object_id__in=[str(one) for one in ids], action="token.rotate"
    )
    people = {one for pair in owners for one in pair} | set(rotated.values_list("actor_id", flat=True))
    return {one for one in people if one is not None}
