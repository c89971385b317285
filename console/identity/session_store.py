"""Sessions in the database, as Django keeps them; they are looked up by a query that is written once."""

from __future__ import annotations

from typing import Any

from django.contrib.sessions.backends import db
from django.contrib.sessions.models import Session
from django.utils import timezone

from registry.selectors.prepared import Prepared

_LIVE = Prepared(lambda key, now: Session.objects.filter(session_key=key, expire_date__gt=now))


class SessionStore(db.SessionStore):
    """The session of a key."""

    def _get_session_from_db(self) -> Any:
        found = _LIVE(key=self.session_key, now=timezone.now())
        if not found:
            self._session_key = None
            return None
        return found[0]
