"""Passwords and sessions are for people: a service account works with tokens only."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.backends import ModelBackend


class PeopleBackend(ModelBackend):
    """Django's accounts without those of machines, also where one has a password or a session from before."""

    def user_can_authenticate(self, user: Any) -> bool:
        """Return whether the account may sign in, and stay signed in."""
        return super().user_can_authenticate(user) and not user.is_service
