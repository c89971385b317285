"""What every row has: a time-ordered id made in Python and the time of creation."""

from __future__ import annotations

import secrets
import time
import uuid

from django.db import models
from django.utils import timezone


def new_id() -> uuid.UUID:
    """Return a UUID of version 7: 48 bits of milliseconds, then randomness. Source: RFC 9562 section 5.7."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds << 80) | secrets.randbits(80)
    value = (value & ~(0xF << 76)) | (0x7 << 76)
    value = (value & ~(0x3 << 62)) | (0x2 << 62)
    return uuid.UUID(int=value)


class Row(models.Model):
    """Abstract base: ``id`` and ``created_at`` (UTC)."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        abstract = True
