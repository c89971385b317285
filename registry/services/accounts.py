"""Accounts, projects, memberships and tokens."""

from __future__ import annotations

from datetime import datetime

from registry.domain.actors import Actor
from registry.models import ApiToken, Membership, Project, User


def user_create(
    *,
    username: str,
    password: str | None,
    site_role: str = "none",
    is_service: bool = False,
    email: str = "",
    actor: Actor,
) -> User:
    """Create an account. Site administrators only. ``password`` None: it cannot sign in (service accounts).

    Raises:
        ValidationFailed: a bad or used name, a weak password; ``errors`` names the field.
    """
    raise NotImplementedError


def user_set_password(*, user: User, password: str, actor: Actor) -> None:
    """Set a password; for oneself, or by a site administrator."""
    raise NotImplementedError


def project_create(*, slug: str, name: str, description: str = "", actor: Actor) -> Project:
    """Create a project; a person who creates one becomes its administrator."""
    raise NotImplementedError


def membership_set(*, project: Project, user: User, role: str, actor: Actor) -> Membership:
    """Give a user a role in a project, or change it. Project administrators only."""
    raise NotImplementedError


def membership_remove(*, project: Project, user: User, actor: Actor) -> None:
    """Take a user out of a project.

    Raises:
        Conflict: it is the last administrator.
    """
    raise NotImplementedError


def token_create(
    *,
    owner: User,
    name: str,
    scopes: list[str],
    project: Project | None = None,
    expires_at: datetime | None = None,
    actor: Actor,
) -> tuple[ApiToken, str]:
    """Create a bearer token and return it with its text ``flo_<id>_<secret>``, which is shown only this once.

    People make tokens for themselves; site administrators for service accounts.
    """
    raise NotImplementedError


def token_revoke(*, token: ApiToken, actor: Actor) -> None:
    """Revoke a token for good; doing it again changes nothing."""
    raise NotImplementedError


def token_authenticate(secret: str, *, now: datetime | None = None) -> ApiToken | None:
    """Return the token (with its owner) for a bearer text; None when unknown, revoked, expired or owner inactive."""
    raise NotImplementedError


def first_start(admin_username: str = "admin") -> str | None:
    """Fill an empty database once and return the administrator's new random password; None when it was done before.

    Makes the administrator, project ``default``, environments ``development`` (no approval) and ``production``
    (one approval), and a fleet of the same name in each, selecting nodes by the label ``environment``.
    """
    raise NotImplementedError
