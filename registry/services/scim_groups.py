"""Groups that an identity provider keeps here (SCIM): their members get at once what the provider's mappings give."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.domain.scim_groups import MOST_MEMBERS, MemberStep, members_after
from registry.errors import ValidationFailed
from registry.models import ScimGroup, SsoProvider, User
from registry.services import audit
from registry.services.permissions import require
from registry.services.sso_sign_in import groups_reapply

_MOST_NAMES = 50


def scim_group_create(
    *, provider: SsoProvider, names: Mapping[str, str], steps: Sequence[MemberStep], actor: Actor
) -> ScimGroup:
    """Make a group with its members. ``names``: ``display_name`` and ``external_id``.

    Raises:
        ValidationFailed: no name, a used one, members that are no accounts of people, or too many.
    """
    require(actor, "site.users")
    group = ScimGroup(provider=provider)
    with transaction.atomic():
        _name(group, names)
        joined, _left = _set_members(group, steps)
        facts = {**_facts(group), "joined": _usernames(joined)}
        audit.record(actor=actor, action="scim_group.create", obj=group, after=facts)
        _reapply(provider, group.keys, joined, actor)
    return group


def scim_group_update(
    *, group: ScimGroup, names: Mapping[str, str], steps: Sequence[MemberStep], actor: Actor
) -> ScimGroup:
    """Change names and members. Whoever leaves loses at once what only this group gave.

    Concurrency: the row of the group is locked first, then those of the people concerned, in the order of their ids.

    Raises:
        ValidationFailed: no name, a used one, members that are no accounts of people, or too many.
    """
    require(actor, "site.users")
    with transaction.atomic():
        row = ScimGroup.objects.select_for_update(of=("self",), no_key=True).select_related("provider").get(pk=group.pk)
        before, old_keys = _facts(row), row.keys
        _name(row, names)
        joined, left = _set_members(row, steps)
        concerned = joined | left
        if row.keys != old_keys:
            concerned |= _member_ids(row)
        if before != _facts(row) or concerned:
            moved = {"joined": _usernames(joined), "left": _usernames(left)}
            audit.record(
                actor=actor, action="scim_group.update", obj=row, before=before, after={**_facts(row), **moved}
            )
        _reapply(row.provider, row.keys | old_keys, concerned, actor, without=old_keys - row.keys)
    return row


def scim_group_delete(*, group: ScimGroup, actor: Actor) -> None:
    """Delete a group. Its members lose at once what only this group gave."""
    require(actor, "site.users")
    with transaction.atomic():
        row = ScimGroup.objects.select_for_update(of=("self",), no_key=True).select_related("provider").get(pk=group.pk)
        members = _member_ids(row)
        facts = {**_facts(row), "left": _usernames(members)}
        audit.record(actor=actor, action="scim_group.delete", obj=row, before=facts)
        row.delete()
        _reapply(row.provider, row.keys, members, actor, without=row.keys)


def _reapply(
    provider: SsoProvider,
    keys: frozenset[str],
    users: Collection[uuid.UUID],
    actor: Actor,
    without: Collection[str] = (),
) -> None:
    """Give and take roles, when a mapping means the group by one of its names."""
    if users and provider.mappings.filter(group__in=keys).exists():
        groups_reapply(provider=provider, users=users, without=without, actor=actor)


def _name(group: ScimGroup, names: Mapping[str, str]) -> None:
    for field, value in names.items():
        setattr(group, field, value)
    if not group.display_name:
        raise _invalid(_("A group has a displayName."))
    try:
        with transaction.atomic():
            group.save()
    except IntegrityError:
        raise _invalid(_("There is a group of that displayName already.")) from None


def _set_members(group: ScimGroup, steps: Sequence[MemberStep]) -> tuple[set[uuid.UUID], set[uuid.UUID]]:
    """Change the members and return who joined and who left."""
    now = _member_ids(group)
    wanted = members_after(now, steps)
    joined, left = wanted - now, now - wanted
    if len(wanted) > MOST_MEMBERS:
        raise _invalid(_("A group has at most %(limit)d members.") % {"limit": MOST_MEMBERS})
    people = User.objects.filter(pk__in=joined, is_service=False, deleted_at=None)
    if len(people) != len(joined):
        raise _invalid(_("Some of the new members are no accounts here; make them first."))
    group.members.add(*people)
    group.members.remove(*User.objects.filter(pk__in=left))
    return joined, left


def _member_ids(group: ScimGroup) -> set[uuid.UUID]:
    return set(group.members.values_list("pk", flat=True))


def _usernames(users: Iterable[uuid.UUID]) -> dict[str, Any]:
    """Return how many people these are, and the first names of them."""
    rows = User.objects.filter(pk__in=users).order_by("username").values_list("username", flat=True)
    return {"count": len(rows), "first": list(rows[:_MOST_NAMES])}


def _facts(group: ScimGroup) -> dict[str, Any]:
    return {
        "provider": group.provider.slug,
        "display_name": group.display_name,
        "external_id": group.external_id,
    }


def _invalid(message: str) -> ValidationFailed:
    return ValidationFailed(message, errors=[{"field": "displayName", "message": message}])
