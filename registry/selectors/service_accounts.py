"""Service accounts as site administrators see them, and how far each reaches."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count, Max, Q, QuerySet
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.errors import NotFound
from registry.models import ApiToken, ApprovalRequest, ApprovalState, Membership, TrustRule, Upload, UploadState, User
from registry.selectors.permissions import can


@dataclass(frozen=True, slots=True)
class Reach:
    """What stops when an account is disabled or deleted."""

    tokens: list[ApiToken]
    memberships: list[Membership]
    trust_rules: list[TrustRule]
    open_approvals: int
    open_uploads: int


def service_accounts(actor: Actor) -> QuerySet[User]:
    """Return the service accounts, by name, with counts of usable tokens and memberships and their last use.

    Only site administrators see any.
    """
    if not can(actor, "site.users"):
        return User.objects.none()
    return (
        User.objects.filter(is_service=True, deleted_at=None)
        .annotate(
            tokens_active=Count("tokens", filter=Q(tokens__revoked_at=None, tokens__actor_name=""), distinct=True),
            projects_in=Count("memberships", distinct=True),
            last_used_at=Max("tokens__last_used_at"),
        )
        .order_by("username")
    )


def service_account_get(actor: Actor, username: str) -> User:
    """Return one, with the same counts.

    Raises:
        NotFound: there is none of that name, or the actor is no site administrator.
    """
    account = service_accounts(actor).filter(username=username).first()
    if account is None:
        raise NotFound(_("There is no service account “%(name)s” that you can see.") % {"name": username[:150]})
    return account


def reach_of(account: User) -> Reach:
    """Return what an account can do now, and what it has begun."""
    return Reach(
        tokens=list(
            ApiToken.objects.filter(owner=account, revoked_at=None, actor_name="")
            .select_related("project", "owner")
            .order_by("-created_at")
        ),
        memberships=list(
            Membership.objects.filter(user=account).select_related("project", "user").order_by("project__slug")
        ),
        trust_rules=list(
            TrustRule.objects.filter(service_account=account).select_related("project", "issuer").order_by("name")
        ),
        open_approvals=ApprovalRequest.objects.filter(requester=account, state=ApprovalState.OPEN).count(),
        open_uploads=Upload.objects.filter(owner=account, state=UploadState.RECEIVING).count(),
    )
