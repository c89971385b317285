"""Passwords and sessions are for people: a service account works with tokens only."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.backends import ModelBackend

from registry.models import User
from registry.selectors.prepared import Prepared

_BY_ID = Prepared(lambda pk: User.objects.filter(pk=pk))


class PeopleBackend(ModelBackend):
    """Django's accounts without those of machines, also where one has a password or a session from before."""

    def user_can_authenticate(self, user: Any) -> bool:
        """Return whether the account may sign in, and stay signed in."""
        return super().user_can_authenticate(user) and not user.is_service

    def get_user(self, user_id: Any) -> User | None:
        """Return the account of a session."""
        found = _BY_ID(pk=user_id)
        return found[0] if found and self.user_can_authenticate(found[0]) else None
