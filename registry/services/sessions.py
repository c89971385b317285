"""Sessions of people: when one is used, when it ends, and who may end it."""

from __future__ import annotations

from datetime import datetime, timedelta
from importlib import import_module
from typing import Any

from allauth.usersessions.models import UserSession
from django.conf import settings
from django.db import transaction

from registry import telemetry
from registry.domain.actors import Actor
from registry.domain.sign_in import session_is_over
from registry.models import User
from registry.services import audit
from registry.services.permissions import require

_AGENT = 200


def session_seen(*, key: str, user: User, ip: str | None, agent: str, now: datetime) -> bool:
    """Note that a session was used and say whether it may go on; one that is over ends here."""
    row, _made = UserSession.objects.get_or_create(
        session_key=key,
        defaults={"user": user, "ip": ip or "0.0.0.0", "user_agent": agent[:_AGENT]},  # noqa: S104
    )
    longest, idle = timedelta(hours=settings.SESSION_HOURS), timedelta(hours=settings.SESSION_IDLE_HOURS)
    if session_is_over(began=row.created_at, seen=row.last_seen_at, now=now, longest=longest, idle=idle):
        _end_sessions([row], user=user, actor=Actor.system("session expiry"))
        return False
    address = {"ip": ip} if ip else {}
    UserSession.objects.filter(pk=row.pk).update(last_seen_at=now, user_agent=agent[:_AGENT], **address)
    return True


def session_end(*, session: Any, actor: Actor) -> None:
    """End a session: of oneself, or by a site administrator."""
    _require(actor, session.user)
    _end_sessions([session], user=session.user, actor=actor)


def sessions_end(*, user: User, actor: Actor, except_key: str = "") -> int:
    """End all sessions of a person but the one with that key, and return how many there were."""
    _require(actor, user)
    rows = list(UserSession.objects.filter(user=user).exclude(session_key=except_key))
    _end_sessions(rows, user=user, actor=actor)
    return len(rows)


def _require(actor: Actor, user: User) -> None:
    if actor.user_id != user.id or not actor.has_scope("admin"):
        require(actor, "site.users")


def _end_sessions(rows: list[Any], *, user: User, actor: Actor) -> None:
    store = import_module(settings.SESSION_ENGINE).SessionStore
    with transaction.atomic():
        for row in rows:
            store().delete(row.session_key)
            facts = {"user": user.username, "ip": row.ip, "user_agent": row.user_agent}
            audit.record(actor=actor, action="session.end", obj=user, after=facts)
        UserSession.objects.filter(pk__in=[row.pk for row in rows]).delete()
        # Its open streams look at once whether they may go on.
        telemetry.publish_on_commit(f"account:{user.id}")
