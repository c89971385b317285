"""Open sessions of people, as they and administrators may see them."""

from __future__ import annotations

from typing import Any

from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.errors import NotFound
from registry.models import User
from registry.selectors.permissions import can


def sessions_of(user: User) -> QuerySet[Any]:
    """Return a person's open sessions, the one used last first."""
    alive = Session.objects.filter(expire_date__gt=timezone.now()).values("session_key")
    rows: QuerySet[Any] = UserSession.objects.filter(user=user, session_key__in=alive)
    return rows.order_by("-last_seen_at", "-id")


def session_get(actor: Actor, user: User, session_id: int) -> Any:
    """Return one session.

    Raises:
        NotFound: there is none, or it is somebody else's and the actor administers no accounts.
    """
    row = sessions_of(user).filter(pk=session_id).first()
    if row is None or (actor.user_id != user.id and not can(actor, "site.users")):
        raise NotFound(_("There is no such session."))
    return row
