"""Accounts, projects and memberships."""

from __future__ import annotations

import secrets

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from registry import telemetry
from registry.domain.actors import Actor
from registry.errors import Conflict, ValidationFailed
from registry.models import Environment, Fleet, Membership, Project, Role, SiteRole, User
from registry.services import audit
from registry.services.fields import require_slug
from registry.services.permissions import require


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
    require(actor, "site.users")
    if site_role not in SiteRole.values:
        raise _invalid("site_role", _("There is no such site role."))
    if password is None and not is_service:
        raise _invalid("password", _("A person needs a password."))
    user = User(username=username, email=email, site_role=site_role, is_service=is_service)
    user.is_staff = site_role == SiteRole.ADMIN
    _set_password(user, None if is_service else password)
    try:
        user.full_clean(exclude=["password"])
    except ValidationError as error:
        raise _from_django(error) from None
    try:
        with transaction.atomic():
            user.save()
            audit.record(actor=actor, action="user.create", obj=user, after=_user_facts(user))
    except IntegrityError:  # somebody else was faster
        raise _invalid("username", _("A user with that username already exists.")) from None
    return user


def user_set_password(*, user: User, password: str, actor: Actor) -> None:
    """Set a password; for oneself, or by a site administrator."""
    if actor.user_id != user.id or not actor.has_scope("admin"):
        require(actor, "site.users")
    if user.is_service:
        raise _invalid("password", _("A service account has no password; make a token."))
    _set_password(user, password)
    with transaction.atomic():
        user.save(update_fields=["password"])
        audit.record(actor=actor, action="user.set_password", obj=user)


def project_create(*, slug: str, name: str, description: str = "", actor: Actor) -> Project:
    """Create a project; a person who creates one becomes its administrator."""
    require(actor, "site.projects")
    require_slug(slug, limit=63)
    try:
        with transaction.atomic():
            project = Project.objects.create(slug=slug, name=name or slug, description=description)
            if actor.user_id is not None:
                Membership.objects.create(project=project, user_id=actor.user_id, role=Role.ADMIN)
            audit.record(actor=actor, action="project.create", obj=project, after={"slug": slug, "name": name})
    except IntegrityError:
        raise Conflict(
            _("There is a project “%(slug)s” already.") % {"slug": slug},
            errors=[{"field": "slug", "message": _("This name is taken.")}],
        ) from None
    return project


def project_update(
    *, project: Project, name: str | None = None, description: str | None = None, actor: Actor
) -> Project:
    """Change what a project is called and what is said of it. Project administrators only."""
    require(actor, "project.policy", project)
    if name is not None and (not name.strip() or len(name) > 200):
        raise _invalid("name", _("Give the project a name of at most 200 characters."))
    with transaction.atomic():
        row = Project.objects.select_for_update().get(pk=project.pk)
        before = {"name": row.name, "description": row.description}
        row.name = row.name if name is None else name.strip()
        row.description = row.description if description is None else description
        row.save(update_fields=["name", "description"])
        after = {"name": row.name, "description": row.description}
        audit.record(actor=actor, action="project.update", obj=row, project_id=row.id, before=before, after=after)
        telemetry.publish_on_commit(f"project:{row.id}", project=row.id)
    return row


def membership_set(*, project: Project, user: User, role: str, actor: Actor) -> Membership:
    """Give a user a role in a project, or change it. Project administrators only."""
    require(actor, "project.members", project)
    if role not in Role.values:
        raise _invalid("role", _("There is no such role."))
    with transaction.atomic():
        Project.objects.select_for_update().get(pk=project.pk)
        before = Membership.objects.filter(project=project, user=user).first()
        if before is not None and before.role == Role.ADMIN and role != Role.ADMIN:
            _require_other_admin(project, user)
        membership, _made = Membership.objects.update_or_create(
            project=project, user=user, defaults={"role": role, "mapped_by": None}
        )
        audit.record(
            actor=actor,
            action="membership.set",
            obj=membership,
            project_id=project.id,
            before={"role": before.role} if before else None,
            after={"user": user.username, "role": role},
        )
        telemetry.publish_on_commit(f"project:{project.id}", project=project.id)
        telemetry.publish_on_commit(f"account:{user.id}")
    return membership


def membership_remove(*, project: Project, user: User, actor: Actor) -> None:
    """Take a user out of a project.

    Raises:
        Conflict: it is the last administrator.
    """
    if actor.user_id != user.id:
        require(actor, "project.members", project)
    with transaction.atomic():
        Project.objects.select_for_update().get(pk=project.pk)
        membership = Membership.objects.filter(project=project, user=user).first()
        if membership is None:
            return
        if membership.role == Role.ADMIN:
            _require_other_admin(project, user)
        audit.record(
            actor=actor,
            action="membership.remove",
            obj=membership,
            project_id=project.id,
            before={"user": user.username, "role": membership.role},
        )
        membership.delete()
        telemetry.publish_on_commit(f"project:{project.id}", project=project.id)
        telemetry.publish_on_commit(f"account:{user.id}")


def first_start(admin_username: str = "admin") -> str | None:
    """Fill an empty database once and return the administrator's new random password; None when it was done before.

    Makes the administrator, project ``default``, environments ``development`` (no approval) and ``production``
    (one approval), and a fleet of the same name in each. A fleet selects nodes by the label of its own name
    (``development=yes``), so that one node of a small installation can be in both.
    """
    actor = Actor.system("first start")
    with transaction.atomic():
        if User.objects.exists():
            return None
        password = secrets.token_urlsafe(15)
        user = user_create(username=admin_username, password=password, site_role=SiteRole.ADMIN, actor=actor)
        User.objects.filter(pk=user.pk).update(is_staff=True, is_superuser=True)
        project = project_create(slug="default", name=_("Default"), actor=actor)
        membership_set(project=project, user=user, role=Role.ADMIN, actor=actor)
        for position, (slug, name, protected) in enumerate(
            [("development", _("Development"), False), ("production", _("Production"), True)]
        ):
            environment, _made = Environment.objects.get_or_create(
                slug=slug,
                defaults={"name": name, "position": position, "requires_approval": protected},
            )
            Fleet.objects.get_or_create(
                slug=slug, defaults={"name": name, "environment": environment, "selector": {slug: "yes"}}
            )
    return password


def _set_password(user: User, password: str | None) -> None:
    if password is None:
        user.set_unusable_password()
        return
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise ValidationFailed(
            error.messages[0], errors=[{"field": "password", "message": message} for message in error.messages]
        ) from None
    user.set_password(password)


def _require_other_admin(project: Project, user: User) -> None:
    others = Membership.objects.filter(project=project, role=Role.ADMIN, user__is_active=True).exclude(user=user)
    if not others.exists():
        raise Conflict(_("A project needs at least one administrator."))


def _user_facts(user: User) -> dict[str, object]:
    return {"username": user.username, "site_role": user.site_role, "is_service": user.is_service}


def _invalid(field: str, message: str) -> ValidationFailed:
    return ValidationFailed(message, errors=[{"field": field, "message": message}])


def _from_django(error: ValidationError) -> ValidationFailed:
    errors = [
        {"field": field, "message": message} for field, messages in error.message_dict.items() for message in messages
    ]
    return ValidationFailed(errors[0]["message"], errors=errors)
