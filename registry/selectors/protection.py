"""The protection of an environment, and the facts that it is judged by."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils.translation import gettext as _

from registry.domain.protection import CheckedVersion, Facts, Rules, Timing, Verdict, judge, read_checks, timing
from registry.domain.windows import Window, opening, read_windows
from registry.models import (
    ROLE_RANK,
    ApprovalRequest,
    ApprovalState,
    Check,
    Environment,
    Membership,
    ModelVersion,
    Role,
    User,
)

WAITING = (ApprovalState.OPEN, ApprovalState.APPROVED)


def rules_of(environment: Environment) -> Rules:
    """Return what the environment asks of a change."""
    needed = max(1, environment.required_approvals) if environment.requires_approval else 0
    return Rules(
        approvals=needed,
        approvers=frozenset(environment.approvers.values_list("id", flat=True)) if needed else frozenset(),
        approver_role=environment.approver_role if needed else "",
        checks=read_checks(environment.required_checks),
        wait_minutes=environment.wait_minutes,
        windows=windows_of(environment),
    )


def windows_of(environment: Environment) -> tuple[Window, ...]:
    """Return the environment's windows."""
    return read_windows(environment.windows)


def timing_of(environment: Environment, now: datetime) -> Timing:
    """Return what the clock asks of a change in the environment, whatever else it asks."""
    return timing(windows_of(environment), environment.wait_minutes, now)


def opens_at(environment: Environment, now: datetime) -> datetime | None:
    """Return when changes may start by the windows alone: ``now``, later, or None (not in the next 400 days)."""
    return opening(windows_of(environment), now)


def checked_versions(versions: Iterable[ModelVersion]) -> tuple[CheckedVersion, ...]:
    """Return versions with the verdicts of their checks, in one query."""
    found = list(versions)
    verdicts: dict[uuid.UUID, dict[str, str]] = {}
    for version_id, kind, verdict in Check.objects.filter(version__in=found).values_list(
        "version_id", "kind", "verdict"
    ):
        verdicts.setdefault(version_id, {})[kind] = verdict
    return tuple(CheckedVersion(f"v{one.number}", one.format, verdicts.get(one.pk, {})) for one in found)


def plan_verdict(environment: Environment, versions: Iterable[ModelVersion], now: datetime) -> Verdict:
    """Return how a plan that nobody has approved yet stands."""
    return judge(rules_of(environment), Facts(versions=checked_versions(versions)), now)


def reviewers(approval: ApprovalRequest) -> QuerySet[User]:
    """Return the active people whose approval counts in the request's environment by role and name, by name.

    Who made a part of the plan is among them: see ``selectors.approvals.may_review``.
    """
    environment = approval.environment
    members = Membership.objects.filter(project_id=approval.project_id, user_id=OuterRef("pk"))
    people = User.objects.filter(Exists(members.filter(role__in=at_least(Role.APPROVER))))
    people = people.filter(is_active=True, is_service=False).order_by("username")
    named = environment.approvers.values("id")
    if environment.approver_role:
        return people.filter(Q(pk__in=named) | Exists(members.filter(role__in=at_least(environment.approver_role))))
    return people.filter(pk__in=named) if environment.approvers.exists() else people


def only_approvers(environment: Environment) -> str:
    """Return a sentence that names the only ones who may approve; empty when everybody may who has the role."""
    words = [*environment.approvers.order_by("username").values_list("username", flat=True)]
    if environment.approver_role:
        words.append(_("members with at least the role “%(role)s”") % {"role": environment.approver_role})
    if not words:
        return ""
    return _("In %(environment)s only these approve: %(names)s.") % {
        "environment": environment.slug,
        "names": ", ".join(words),
    }


def asked_of(user_id: uuid.UUID, memberships: Sequence[Membership] | None = None) -> Q:
    """Return which requests ask this person by name or role, or ask everybody with the role to approve.

    ``memberships`` are the person's, where they are known.
    """
    named = Environment.objects.filter(pk=OuterRef("environment_id"))
    anybody = Q(environment__approver_role="") & ~Exists(named.filter(approvers__isnull=False))
    wanted = anybody | Exists(named.filter(approvers=user_id))
    for role in Role.values:
        own: Any
        if memberships is None:
            own = Membership.objects.filter(user_id=user_id, role__in=at_least(role)).values("project_id")
        else:
            own = [one.project_id for one in memberships if one.role in at_least(role)]
        wanted |= Q(environment__approver_role=role, project_id__in=own)
    return wanted


def at_least(role: str) -> list[str]:
    """Return the roles that include a role."""
    return [one for one in Role.values if ROLE_RANK[one] >= ROLE_RANK[role]]


def requests_waiting(environment: Environment) -> QuerySet[ApprovalRequest]:
    """Return the open and the waiting requests of an environment: those that a change of its rules touches."""
    return ApprovalRequest.objects.filter(environment=environment, state__in=WAITING)


def protection_json(environment: Environment) -> Mapping[str, object]:
    """Return the rules as a document, for the audit log and for answers of the API; people by name."""
    names = {
        "approvers": environment.approvers.order_by("username").values_list("username", flat=True),
        "bypassers": environment.bypassers.order_by("username").values_list("username", flat=True),
    }
    return {
        "requires_approval": environment.requires_approval,
        "required_approvals": environment.required_approvals,
        "approval_valid_hours": environment.approval_valid_hours,
        "approvers": [*names["approvers"]],
        "approver_role": environment.approver_role,
        "required_checks": environment.required_checks,
        "wait_minutes": environment.wait_minutes,
        "windows": environment.windows,
        "admins_bypass": environment.admins_bypass,
        "bypassers": [*names["bypassers"]],
    }
