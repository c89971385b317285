"""Whose signatures over versions a project believes."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from registry.models.accounts import Project
from registry.models.base import Row


class SigningKey(Row):
    """A public key that a project trusts. It never changes: another key is another row.

    ``public_key``: PEM, as ``registry.services.signing`` writes it. ``fingerprint``: SHA-256 of that text, in hex.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="signing_keys")
    name = models.CharField(max_length=100)
    public_key = models.TextField()
    fingerprint = models.CharField(max_length=64)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], name="signing_key_name_once"),
            models.UniqueConstraint(fields=["project", "fingerprint"], name="signing_key_once"),
        ]

    def __str__(self) -> str:
        return self.name
