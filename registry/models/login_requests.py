"""Command lines that ask to act for a person."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from registry.models.accounts import ApiToken
from registry.models.base import Row


class LoginState(models.TextChoices):
    """Life of a request; it also ends at ``expires_at``."""

    WAITING = "waiting", _("Waiting")
    GRANTED = "granted", _("Granted")
    DENIED = "denied", _("Denied")
    CLAIMED = "claimed", _("Claimed")


class LoginRequest(Row):
    """A command line shows ``user_code``; whoever confirms it lets it fetch one token of theirs.

    It proves itself with a secret of which the SHA-256 is kept. ``client``, ``scopes``, ``project_slug`` (empty: all)
    and ``token_days`` are what it asks for; ``ip`` is where it asked from.
    """

    user_code = models.CharField(max_length=9, unique=True)
    secret_sha256 = models.CharField(max_length=64, unique=True)
    client = models.CharField(max_length=200)
    ip = models.GenericIPAddressField(null=True, blank=True)
    scopes = models.JSONField()
    project_slug = models.CharField(max_length=63, blank=True)
    token_days = models.PositiveSmallIntegerField()
    state = models.CharField(max_length=16, choices=LoginState, default=LoginState.WAITING)
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    token = models.ForeignKey(ApiToken, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    expires_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return self.client
