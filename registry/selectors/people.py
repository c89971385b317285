"""Accounts as administrators of the site see them, and what blocking one would stop."""

from __future__ import annotations

from dataclasses import dataclass

from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.errors import NotFound
from registry.models import (
    ApiToken,
    ApprovalRequest,
    ApprovalState,
    Environment,
    Membership,
    Project,
    Role,
    Upload,
    UploadState,
    User,
)
from registry.selectors.accounts import users_visible_to
from registry.selectors.permissions import can
from registry.selectors.sessions import sessions_of
from registry.selectors.sso import identities_of


@dataclass(frozen=True, slots=True)
class Impact:
    """What stops when an account is blocked. Counts; ``last_admin_of`` and ``named_in`` are short names.

    ``named_in`` are environments whose rules name the person as an approver.
    """

    sessions: int
    tokens: int
    uploads: int
    open_requests: int
    last_admin_of: tuple[str, ...]
    named_in: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Access:
    """Where somebody has roles, and how they sign in. ``site_role_given_by`` is the provider whose group gave it."""

    site_role: str
    site_role_given_by: str | None
    has_password: bool
    memberships: tuple[Membership, ...]
    identities: tuple[SocialAccount, ...]
    second_factors: tuple[Authenticator, ...]


def people_matching(actor: Actor, text: str = "", state: str = "") -> QuerySet[User]:
    """Return accounts by name for administrators of the site. ``state`` is ``active``, ``blocked`` or empty.

    Each row has ``has_factor``: whether it has a second factor.
    """
    present = User.objects.filter(deleted_at=None).order_by("username")
    rows = present if can(actor, "site.users") else present.none()
    rows = rows.filter(matching(text))
    if state in ("active", "blocked"):
        rows = rows.filter(is_active=state == "active")
    return rows.annotate(has_factor=Exists(Authenticator.objects.filter(user=OuterRef("pk"))))


def matching(text: str) -> Q:
    """Return the condition that an account's user name, names or address hold a text; any when it is empty."""
    names = ("username", "email", "first_name", "last_name")
    return Q.create([Q(**{f"{name}__icontains": text}) for name in names], Q.OR) if text else Q()


def person_get(actor: Actor, username: str) -> User:
    """Return an account that the actor may know.

    Raises:
        NotFound: it does not exist, or shares no project with the actor.
    """
    user = users_visible_to(actor).filter(username=username).first()
    if user is None:
        raise NotFound(_("There is no such account."))
    return user


def access_of(user: User) -> Access:
    """Return where an account has roles, and how it signs in."""
    given_by = user.site_role_mapped_by
    return Access(
        site_role=user.site_role,
        site_role_given_by=given_by.slug if given_by is not None else None,
        has_password=user.has_usable_password(),
        memberships=tuple(user.memberships.select_related("project", "mapped_by").order_by("project__slug")),
        identities=tuple(row for row, _provider in identities_of(user)),
        second_factors=tuple(Authenticator.objects.filter(user=user).order_by("created_at", "pk")),
    )


def user_impact(user: User) -> Impact:
    """Return what stops when the account is blocked."""
    tokens = ApiToken.objects.filter(owner=user, revoked_at=None)
    administered = Project.objects.filter(memberships__user=user, memberships__role=Role.ADMIN)
    others = Membership.objects.filter(project=OuterRef("pk"), role=Role.ADMIN, user__is_active=True).exclude(user=user)
    return Impact(
        sessions=sessions_of(user).count(),
        tokens=tokens.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now())).count(),
        uploads=Upload.objects.filter(owner=user, state=UploadState.RECEIVING).count(),
        open_requests=ApprovalRequest.objects.filter(requester=user, state=ApprovalState.OPEN).count(),
        last_admin_of=tuple(administered.filter(~Exists(others)).order_by("slug").values_list("slug", flat=True)),
        named_in=tuple(Environment.objects.filter(approvers=user).order_by("slug").values_list("slug", flat=True)),
    )
