"""What the audit log knows of signing in: successes, failures, second factors. Never a secret."""

from __future__ import annotations

from collections.abc import Sequence

from allauth.mfa.models import Authenticator
from django.db import transaction
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.errors import Conflict
from registry.models import User
from registry.services import audit
from registry.services.permissions import require
from registry.services.sessions import sessions_end


def sign_in_record(*, user: User, methods: Sequence[str], actor: Actor) -> None:
    """Record that somebody signed in, and by what: ``password``, ``mfa``, ``socialaccount``."""
    audit.record(actor=actor, action="user.sign_in", obj=user, after={"methods": list(dict.fromkeys(methods))})


def sign_in_failed(*, username: str, method: str, ip: str | None, request_id: str) -> None:
    """Record a failure. A name that is nobody's is not kept: it may be a password in the wrong field."""
    actor = Actor(name="anonymous", ip=ip, request_id=request_id)
    user = User.objects.filter(username=username).first()
    known = user is not None
    obj = user if user is not None else User(username=_("unknown account"))
    audit.record(actor=actor, action="user.sign_in_failed", obj=obj, after={"method": method, "known": known})


def sign_out_record(*, user: User, actor: Actor) -> None:
    """Record that somebody signed out."""
    audit.record(actor=actor, action="user.sign_out", obj=user)


def second_factor_changed(*, user: User, change: str, kind: str, actor: Actor) -> None:
    """Record that a second factor was added, removed or renewed."""
    audit.record(actor=actor, action=f"user.second_factor_{change}", obj=user, after={"kind": kind})


def password_reset_record(*, user: User, actor: Actor) -> None:
    """Record that somebody set a new password by a link."""
    audit.record(actor=actor, action="user.set_password", obj=user, after={"by": "link"})


def second_factors_reset(*, user: User, actor: Actor) -> None:
    """Take all second factors from somebody who lost them, and end their sessions. Site administrators only.

    Raises:
        Conflict: it is oneself: one's own are changed after confirming who one is.
    """
    require(actor, "site.users")
    if actor.user_id == user.id:
        raise Conflict(_("Change your own second factors on your own page."))
    with transaction.atomic():
        User.objects.select_for_update().get(pk=user.pk)
        factors = Authenticator.objects.filter(user=user)
        kinds = sorted(set(factors.values_list("type", flat=True)))
        factors.delete()
        audit.record(actor=actor, action="user.second_factor_reset", obj=user, before={"kinds": kinds})
        sessions_end(user=user, actor=actor)
