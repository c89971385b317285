"""Accounts of people as administrators change them: role, name, address, in or out, a link for a new password."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.tokens import default_token_generator
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from registry import telemetry
from registry.domain.actors import Actor
from registry.errors import Conflict, ValidationFailed
from registry.models import SiteRole, SsoProvider, User
from registry.services import audit
from registry.services.permissions import require
from registry.services.sessions import sessions_end
from registry.services.tokens import tokens_revoke_all

_ADMINS_LOCK = 0x464C4F54_41444D49
_FIELDS = ("username", "email", "first_name", "last_name", "external_id")


def user_update(
    *, user: User, site_role: str | None = None, is_active: bool | None = None, actor: Actor, **changes: str | None
) -> User:
    """Change what is given: ``username, email, first_name, last_name, external_id``, site role, active or not.

    Blocking ends sessions, tokens and open live pages at once, those of a person for good: nothing that was handed out
    before comes back with the account. A service account is switched off and on with its tokens.
    Site administrators only.

    Raises:
        ValidationFailed: a bad or used value; ``errors`` names the field.
        Conflict: it is oneself who would be blocked or lose the role, or the last administrator of the site.
    """
    require(actor, "site.users")
    with transaction.atomic():
        row = User.objects.select_for_update(no_key=True).get(pk=user.pk)
        if row.deleted_at is not None:
            raise Conflict(_("The account is deleted."))
        before = _facts(row)
        for name in changes.keys() & set(_FIELDS):
            if changes[name] is not None:
                setattr(row, name, (changes[name] or "").strip())
        if site_role is not None and site_role != row.site_role:
            _set_site_role(row, site_role, actor)
        if is_active is not None and is_active != row.is_active:
            _set_active(row, is_active, actor)
        _clean(row)
        row.save()
        changed = {name: value for name, value in _facts(row).items() if value != before[name]}
        if changed:
            old = {name: before[name] for name in changed}
            action = "user.set_active" if set(changed) == {"is_active"} else "user.update"
            if "is_active" in changed and not row.is_service:
                # Also of somebody who is let in: a token may have been made while the account was being blocked.
                changed["tokens_revoked"] = tokens_revoke_all(row, timezone.now())
            audit.record(actor=actor, action=action, obj=row, before=old, after=changed)
            telemetry.publish_on_commit(f"account:{row.id}")
        if changed.get("is_active") is False:
            sessions_end(user=row, actor=actor)
    user.refresh_from_db()
    return user


def user_provision(
    *,
    username: str,
    email: str = "",
    first_name: str = "",
    last_name: str = "",
    external_id: str = "",
    is_active: bool = True,
    provider: SsoProvider | None = None,
    actor: Actor,
) -> User:
    """Make the account of a person who signs in elsewhere; it has no password and no rights yet.

    Raises:
        ValidationFailed: a bad or used value; ``errors`` names the field.
    """
    require(actor, "site.users")
    user = User(username=username.strip(), email=email, first_name=first_name, last_name=last_name)
    user.external_id, user.is_active, user.provisioned_by = external_id, is_active, provider
    user.set_unusable_password()
    _clean(user)
    with transaction.atomic():
        user.save()
        facts = {**_facts(user), "provider": provider.slug if provider is not None else None}
        audit.record(actor=actor, action="user.create", obj=user, after=facts)
    return user


def user_set_active(*, user: User, is_active: bool, actor: Actor) -> None:
    """Block an account (its sessions, tokens and live pages stop at once) or let it in again; see ``user_update``."""
    user_update(user=user, is_active=is_active, actor=actor)


def password_link_create(*, user: User, actor: Actor) -> str:
    """Return ``<user>-<token>`` for a link with which the person sets a new password: once, within a day.

    Raises:
        Conflict: the account is blocked, or belongs to a machine.
    """
    require(actor, "site.users")
    if user.is_service or not user.is_active:
        raise Conflict(_("Blocked accounts and service accounts get no password."))
    audit.record(actor=actor, action="user.password_link", obj=user)
    return f"{user.pk.hex}-{default_token_generator.make_token(user)}"


def is_last_site_admin(user: User) -> bool:
    """Say whether nobody else who may sign in administers the site.

    Concurrency: in a transaction that has locked the user's row; two administrators who would block each other at once
    wait for one another here.
    """
    if user.site_role != SiteRole.ADMIN or not user.is_active:
        return False
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_ADMINS_LOCK])
    return not User.objects.filter(site_role=SiteRole.ADMIN, is_active=True).exclude(pk=user.pk).exists()


def _set_site_role(user: User, role: str, actor: Actor) -> None:
    if role not in SiteRole.values:
        raise _invalid("site_role", _("There is no such site role."))
    if user.site_role == SiteRole.ADMIN and is_last_site_admin(user):
        raise Conflict(_("The site needs at least one administrator."))
    if actor.user_id == user.id:
        raise Conflict(_("You cannot change your own site role; another administrator can."))
    user.site_role, user.is_staff, user.site_role_mapped_by = role, role == SiteRole.ADMIN, None


def _set_active(user: User, is_active: bool, actor: Actor) -> None:
    if actor.user_id == user.id:
        raise Conflict(_("You cannot block yourself."))
    if not is_active and is_last_site_admin(user):
        raise Conflict(_("The site needs at least one administrator."))
    user.is_active = is_active


def _clean(user: User) -> None:
    try:
        user.full_clean(exclude=["password"])
    except ValidationError as error:
        errors = [{"field": field, "message": text} for field, texts in error.message_dict.items() for text in texts]
        raise ValidationFailed(errors[0]["message"], errors=errors) from None


def _facts(user: User) -> dict[str, Any]:
    return {**{name: getattr(user, name) for name in _FIELDS}, "site_role": user.site_role, "is_active": user.is_active}


def _invalid(field: str, message: str) -> ValidationFailed:
    return ValidationFailed(message, errors=[{"field": field, "message": message}])
