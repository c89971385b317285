"""Service accounts: accounts of machines, which work with tokens, cannot sign in, and never approve."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.errors import Conflict, NotFound
from registry.models import Membership, TrustRule, User
from registry.services import audit
from registry.services.accounts import membership_remove, user_create
from registry.services.people import user_set_active
from registry.services.permissions import require
from registry.services.tokens import tokens_revoke_all


def service_account_create(*, username: str, site_role: str = "none", actor: Actor) -> User:
    """Make a service account. Site administrators only.

    Raises:
        ValidationFailed: a bad or used name.
    """
    return user_create(username=username, password=None, site_role=site_role, is_service=True, actor=actor)


def service_account_set_active(*, account: User, is_active: bool, actor: Actor) -> User:
    """Disable a service account (its tokens and trust rules stop working at once) or let it, and them, work again."""
    require(actor, "site.users")
    _require_present(account)
    if account.is_active != is_active:
        user_set_active(user=account, is_active=is_active, actor=actor)
    return account


def service_account_delete(*, account: User, actor: Actor) -> None:
    """Take a service account away for good: tokens revoked, memberships and trust rules removed.

    The name stays in the history of what it did and is not given again.

    Raises:
        Conflict: a project has no other administrator.
    """
    require(actor, "site.users")
    if actor.user_id == account.id:
        raise Conflict(_("An account cannot delete itself."))
    now = timezone.now()
    with transaction.atomic():
        locked = User.objects.select_for_update(no_key=True).get(pk=account.pk)
        _require_present(locked)
        revoked = tokens_revoke_all(locked, now)
        rules = list(TrustRule.objects.filter(service_account=locked).select_related("project"))
        for rule in rules:
            before = {"rule": rule.name, "service_account": locked.username}
            audit.record(actor=actor, action="trust_rule.delete", obj=rule, before=before)
            rule.delete()
        for membership in Membership.objects.filter(user=locked).select_related("project"):
            membership_remove(project=membership.project, user=locked, actor=actor)
        User.objects.filter(pk=locked.pk).update(is_active=False, deleted_at=now)
        facts = {"username": locked.username, "tokens_revoked": revoked, "trust_rules": len(rules)}
        audit.record(actor=actor, action="service_account.delete", obj=locked, after=facts)


def _require_present(account: User) -> None:
    if not account.is_service or account.deleted_at is not None:
        raise NotFound(_("There is no such service account."))
