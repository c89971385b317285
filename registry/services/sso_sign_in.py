"""What happens when somebody has signed in elsewhere: an account for newcomers, and the roles that groups give."""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext as _

from registry import telemetry
from registry.domain.actors import Actor
from registry.domain.group_roles import Held, Rule, groups_in_force, groups_of, role_changes, wanted_roles
from registry.errors import Conflict, PermissionDenied
from registry.models import ROLE_RANK, GroupMapping, Membership, SignUp, SiteRole, SsoProvider, User
from registry.services import audit
from registry.services.people import is_last_site_admin

_SITE_RANK = {role.value: rank for rank, role in enumerate(SiteRole)}
_NOT_IN_NAMES = re.compile(r"[^\w.+-]+")


def sso_sign_up(*, provider: SsoProvider, claims: Mapping[str, Any], groups: Sequence[str]) -> User:
    """Make the account of somebody who comes for the first time; it has no password.

    Raises:
        PermissionDenied: the provider's policy lets them in only with an account (or a mapped group).
        Conflict: an account has that e-mail address; it is never linked by the address alone.
    """
    if provider.sign_up == SignUp.OFF:
        raise PermissionDenied(_("You have no account here. Ask an administrator of the site for one."))
    if provider.sign_up == SignUp.MAPPED and not provider.mappings.filter(group__in=list(groups)).exists():
        raise PermissionDenied(_("None of your groups gives you an account here. Ask an administrator of the site."))
    email = _text(claims, "email", 254)
    if email and User.objects.filter(email__iexact=email).exists():
        raise Conflict(
            _(
                "There is an account with the address %(email)s already. Sign in to it as you did before, then connect"
                " %(provider)s under Settings > Sign-in."
            )
            % {"email": email, "provider": provider.name}
        )
    actor = Actor.system(f"single sign-on: {provider.slug}")
    with transaction.atomic():
        user = User(username=_free_name(claims, email), email=email)
        user.first_name, user.last_name = _text(claims, "given_name", 150), _text(claims, "family_name", 150)
        user.set_unusable_password()
        user.save()
        facts = {"username": user.username, "site_role": user.site_role, "provider": provider.slug}
        audit.record(actor=actor, action="user.create", obj=user, after=facts)
    return user


def account_of_subject(*, provider: SsoProvider, subject: str) -> User | None:
    """Return the account that the provider made for this subject beforehand (SCIM), when nobody signs in to it yet."""
    found = (
        User.objects.filter(provisioned_by=provider, external_id=subject, is_service=False).first() if subject else None
    )
    if found is None or SocialAccount.objects.filter(user=found, provider=provider.slug).exists():
        return None
    return found


def groups_apply(*, user: User, provider: SsoProvider, groups: Collection[str], actor: Actor | None = None) -> None:
    """Give and take the roles that the person's groups mean now. Roles that a person gave stay as they are.

    ``groups`` are those that the provider claimed; of groups that it keeps here (SCIM) only membership counts.
    """
    actor = actor or Actor.system(f"single sign-on: {provider.slug}")
    rows = list(provider.mappings.select_related("project"))
    with transaction.atomic():
        user = User.objects.select_for_update(no_key=True).get(pk=user.pk)
        named = [row.group for row in rows]
        kept = provider.scim_groups.filter(Q(display_name__in=named) | Q(external_id__in=named))
        mine = [group.keys for group in kept.filter(members=user)]
        counting = groups_in_force(groups, [group.keys for group in kept], mine)
        _apply_in_projects(user, provider, counting, rows, actor)
        _apply_on_site(user, provider, counting, rows, actor)


def groups_reapply(
    *, provider: SsoProvider, users: Collection[uuid.UUID], without: Collection[str] = (), actor: Actor
) -> None:
    """Give and take what groups mean now, for people whose groups here changed; what they claimed last still counts.

    ``without`` are groups that are no more, whatever was claimed.

    Concurrency: in a transaction. All people are locked first, in the order of their ids, so that two of these that
    meet wait for one another.
    """
    people = list(User.objects.select_for_update(no_key=True).filter(pk__in=users).order_by("pk"))
    accounts = SocialAccount.objects.filter(provider=provider.slug, user__in=people)
    claimed = {account.user_id: claimed_groups(account.extra_data, provider) for account in accounts}
    for user in people:
        groups = set(claimed.get(user.pk, ())) - set(without)
        groups_apply(user=user, provider=provider, groups=groups, actor=actor)


def claimed_groups(said: Mapping[str, Any], provider: SsoProvider) -> tuple[str, ...]:
    """Return the groups of what a provider said of somebody at sign-in."""
    claims = said.get("userinfo", {})
    return groups_of(claims.get(provider.groups_claim)) if provider.groups_claim else ()


def identity_linked(*, user: User, provider: str, actor: Actor) -> None:
    """Record that an account signs in elsewhere too."""
    audit.record(actor=actor, action="user.identity_linked", obj=user, after={"provider": provider})


def identity_unlink(*, user: User, identity_id: int, actor: Actor) -> None:
    """Let an account no longer sign in elsewhere; one's own.

    Raises:
        Conflict: nothing would be left to sign in with.
    """
    if actor.user_id != user.id:
        raise PermissionDenied(_("Only people themselves disconnect their accounts."))
    with transaction.atomic():
        User.objects.select_for_update(no_key=True).get(pk=user.pk)
        rows = SocialAccount.objects.filter(user=user)
        found = rows.filter(pk=identity_id).first()
        if found is None:
            return
        keys = Authenticator.objects.filter(user=user, type=Authenticator.Type.WEBAUTHN)
        if not user.has_usable_password() and rows.count() == 1 and not any(key.wrap().is_passwordless for key in keys):
            raise Conflict(_("You could no longer sign in. Set a password or add a passkey that signs in alone first."))
        audit.record(actor=actor, action="user.identity_unlinked", obj=user, before={"provider": found.provider})
        found.delete()


def _apply_in_projects(
    user: User, provider: SsoProvider, groups: Collection[str], rows: Sequence[GroupMapping], actor: Actor
) -> None:
    places = {row.project.id: row.project for row in rows if row.project is not None}
    rules = [Rule(row.group, row.project.id, row.role) for row in rows if row.project is not None]
    memberships = {row.project_id: row for row in Membership.objects.filter(user=user).select_related("project")}
    held = {key: Held(row.role, row.mapped_by_id == provider.pk) for key, row in memberships.items()}
    changes: dict[uuid.UUID, str | None] = role_changes(wanted_roles(rules, groups, ROLE_RANK), held)
    for project_id, role in changes.items():
        row = memberships.get(project_id)
        before = {"user": user.username, "role": row.role} if row is not None else None
        if role is None and row is not None:
            # The site's administrators still manage a project that has none of its own.
            facts = {"by": provider.slug}
            audit.record(
                actor=actor, action="membership.remove", obj=row, project_id=project_id, before=before, after=facts
            )
            row.delete()
        elif role is not None:
            row = row or Membership(project=places[project_id], user=user)
            row.role, row.mapped_by = role, provider
            row.save()
            facts = {"user": user.username, "role": role, "by": provider.slug}
            audit.record(
                actor=actor, action="membership.set", obj=row, project_id=project_id, before=before, after=facts
            )
        telemetry.publish_on_commit(f"project:{project_id}", project=project_id)
    if changes:
        telemetry.publish_on_commit(f"account:{user.id}")


def _apply_on_site(
    user: User, provider: SsoProvider, groups: Collection[str], rows: Sequence[GroupMapping], actor: Actor
) -> None:
    rules = [Rule(row.group, None, row.role) for row in rows if row.project is None]
    has_role = user.site_role != SiteRole.NONE
    held = {None: Held(user.site_role, user.site_role_mapped_by_id == provider.pk)} if has_role else {}
    changes = role_changes(wanted_roles(rules, groups, _SITE_RANK), held)
    if not changes:
        return
    role = changes[None] or SiteRole.NONE.value
    if role != SiteRole.ADMIN and is_last_site_admin(user):
        return  # Nobody could repair it; the role goes once there is another administrator.
    before = {"site_role": user.site_role}
    user.site_role, user.is_staff = role, role == SiteRole.ADMIN
    user.site_role_mapped_by = provider if role != SiteRole.NONE else None
    user.save(update_fields=["site_role", "is_staff", "site_role_mapped_by"])
    after = {"site_role": role, "by": provider.slug}
    audit.record(actor=actor, action="user.update", obj=user, before=before, after=after)


def _free_name(claims: Mapping[str, Any], email: str) -> str:
    """Return a user name that nobody has, from what the provider calls the person."""
    offered = _text(claims, "preferred_username", 150) or email or "person"
    base = _NOT_IN_NAMES.sub("-", offered.partition("@")[0]).strip("-")[:140] or "person"
    names = (base if number == 1 else f"{base}-{number}" for number in range(1, 10_000))
    return next(name for name in names if not User.objects.filter(username__iexact=name).exists())


def _text(claims: Mapping[str, Any], name: str, limit: int) -> str:
    value = claims.get(name)
    return value.replace("\0", "").strip()[:limit] if isinstance(value, str) else ""
