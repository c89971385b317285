"""Projects, members and tokens as the caller may see them."""

from __future__ import annotations

from django.db.models import QuerySet

from registry.domain.actors import Actor
from registry.models import ApiToken, Membership, Project, User


def projects_of(actor: Actor) -> QuerySet[Project]:
    """Return the projects in which the actor has a role (narrowed by its token), by slug."""
    raise NotImplementedError


def project_get(actor: Actor, slug: str) -> Project:
    """Return a project.

    Raises:
        NotFound: it does not exist, or the actor is not a member.
    """
    raise NotImplementedError


def members_of(project: Project) -> QuerySet[Membership]:
    """Return the memberships of a project with their users, by name."""
    raise NotImplementedError


def users_addable(project: Project) -> QuerySet[User]:
    """Return active users who are not members of the project."""
    raise NotImplementedError


def users_visible_to(actor: Actor) -> QuerySet[User]:
    """Return all accounts for site administrators, else those who share a project with the actor."""
    raise NotImplementedError


def tokens_visible_to(actor: Actor) -> QuerySet[ApiToken]:
    """Return the actor's own tokens; site administrators also see those of service accounts. Newest first."""
    raise NotImplementedError
