"""Answers to writes that came with a key, so that a write that is sent twice happens once."""

from __future__ import annotations

from django.db import models

from registry.models.base import Row


class IdempotentAnswer(Row):
    """What a caller was told. ``key``: digest of caller and key; ``fingerprint``: of method, address and body."""

    key = models.CharField(max_length=64, unique=True)
    fingerprint = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField()
    document = models.JSONField(null=True)
    headers = models.JSONField(default=dict)

    class Meta:
        indexes = [models.Index(fields=["created_at"], name="idempotent_answer_by_age")]

    def __str__(self) -> str:
        return self.key
