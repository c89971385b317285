"""Projects, members and tokens as the caller may see them."""

from __future__ import annotations

import uuid

from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.errors import NotFound, ValidationFailed
from registry.models import ApiToken, Membership, Project, Role, User
from registry.selectors.lookup import one_by_id
from registry.selectors.standing import memberships_of


def projects_of(actor: Actor) -> QuerySet[Project]:
    """Return the projects in which the actor has a role (narrowed by its token), by slug."""
    projects = Project.objects.order_by("slug")
    if actor.is_system:
        return projects
    user_id = seeing(actor)
    if user_id is None:
        return projects.none()
    projects = projects.filter(memberships__user_id=user_id)
    if actor.only_project_id is not None:
        projects = projects.filter(pk=actor.only_project_id)
    return projects


def seeing(actor: Actor) -> uuid.UUID | None:
    """Return whose memberships say what the actor sees, besides what its token narrows; None where it sees nothing.

    The system sees everything without any.
    """
    if actor.user is None or not actor.user.is_active or not actor.has_scope("read"):
        return None
    return actor.user.id


def projects_listed(actor: Actor) -> tuple[Project, ...]:
    """Return those projects, without a query where the actor's memberships are known already."""
    known = _remembered(actor)
    return tuple(projects_of(actor)) if known is None else known


def projects_administered(actor: Actor) -> QuerySet[Project]:
    """Return the projects in which the actor is an administrator."""
    return projects_of(actor).filter(memberships__user=actor.user_id, memberships__role=Role.ADMIN)


def project_get(actor: Actor, slug: str) -> Project:
    """Return a project.

    Raises:
        NotFound: it does not exist, or the actor is not a member.
    """
    known = _remembered(actor)
    if known is None:
        project = projects_of(actor).filter(slug=slug).first()
    else:
        project = next((one for one in known if one.slug == slug), None)
    if project is None:
        raise NotFound(_("There is no project “%(slug)s” that you can see.") % {"slug": slug})
    return project


def roles_of(actor: Actor) -> dict[str, str]:
    """Return the actor's role in each project that it may see, by slug."""
    own = Membership.objects.filter(project__in=projects_of(actor), user_id=actor.user_id)
    return dict(own.order_by("project__slug").values_list("project__slug", "role"))


def members_of(project: Project) -> QuerySet[Membership]:
    """Return the memberships of a project with their users, by name."""
    return Membership.objects.filter(project=project).select_related("user").order_by("user__username")


def member_get(project: Project, username: str) -> Membership:
    """Return the membership of an account in a project.

    Raises:
        NotFound: it is no member.
    """
    member = members_of(project).filter(user__username=username).first()
    if member is None:
        raise NotFound(_("The project has no member of that name."))
    return member


def member_named(project: Project, username: str) -> User:
    """Return an account of a project by name.

    Raises:
        ValidationFailed: no member has that name; ``errors`` names the field ``owner``.
    """
    user = User.objects.filter(username=username, memberships__project=project).first()
    if user is None:
        message = _("“%(name)s” is not a member of this project.") % {"name": username}
        raise ValidationFailed(message, errors=[{"field": "owner", "message": message}])
    return user


def users_addable(project: Project) -> QuerySet[User]:
    """Return active users who are not members of the project."""
    return User.objects.filter(is_active=True).exclude(memberships__project=project).order_by("username")


def users_visible_to(actor: Actor) -> QuerySet[User]:
    """Return all accounts for site administrators, else those who share a project with the actor.

    A token that is narrowed to a project makes nobody a site administrator.
    """
    users = User.objects.order_by("username")
    if actor.is_system or _is_site_admin(actor):
        return users
    return users.filter(memberships__project__in=projects_of(actor)).distinct()


def tokens_visible_to(actor: Actor) -> QuerySet[ApiToken]:
    """Return the actor's own tokens; site administrators also see those of service accounts. Newest first.

    With a token that is narrowed to a project only tokens of that project. Tokens of CI jobs are left out: nobody
    manages them.
    """
    tokens = ApiToken.objects.filter(actor_name="").select_related("owner", "project", "created_by")
    tokens = tokens.order_by("-created_at")
    if actor.is_system:
        return tokens
    if actor.user is None:
        return tokens.none()
    own = Q(owner_id=actor.user.id)
    if actor.only_project_id is not None:
        return tokens.filter(own, project_id=actor.only_project_id)
    if actor.user.site_role == "admin":
        own |= Q(owner__is_service=True)
    return tokens.filter(own)


def token_get(actor: Actor, token_id: uuid.UUID | str) -> ApiToken:
    """Return a token by id.

    Raises:
        NotFound: it does not exist, or the actor may not see it.
    """
    return one_by_id(tokens_visible_to(actor), token_id, _("There is no such token."))


def _remembered(actor: Actor) -> tuple[Project, ...] | None:
    """Return the projects of a person who acts without a token, where their memberships are remembered."""
    if actor.is_system or actor.token is not None or actor.user is None or not actor.user.is_active:
        return None
    memberships = memberships_of(actor.user.id)
    return None if memberships is None else tuple(one.project for one in memberships)


def _is_site_admin(actor: Actor) -> bool:
    narrowed = actor.only_project_id is not None
    return actor.user is not None and actor.user.site_role == "admin" and not narrowed
