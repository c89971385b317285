"""Writes with a key: the answer is stored in the transaction of the write, or there is neither.

Of two that come at once the second waits for the first. When the first dies, its locks go with its connection and the
second does the write.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import OperationalError, connection, transaction
from django.utils.translation import gettext as _

from registry.errors import KeyInUse, KeyReused
from registry.models import IdempotentAnswer

KEPT = timedelta(hours=24)
WAIT_SECONDS = 5
_LOCK_NOT_AVAILABLE = "55P03"
_MOST_PURGED = 10_000


def answer_claim(*, key: str, fingerprint: str) -> IdempotentAnswer | None:
    """Hold ``key`` (hex) until the caller's transaction ends; return the answer that was given to it, None if none was.

    Raises:
        KeyInUse: another transaction has held it for five seconds.
        KeyReused: it was used for a request with another fingerprint.
    """
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{WAIT_SECONDS}s"])
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [int(key[:16], 16) - 2**63])
            cursor.execute("SET LOCAL lock_timeout TO DEFAULT")
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", "") != _LOCK_NOT_AVAILABLE:
            raise
        raise KeyInUse(_("The first request with this Idempotency-Key is still running.")) from None
    found = IdempotentAnswer.objects.filter(key=key).first()
    if found is not None and found.fingerprint != fingerprint:
        raise KeyReused(_("This Idempotency-Key was used for another request."))
    return found


def answer_keep(*, key: str, fingerprint: str, status: int, document: Any, headers: Mapping[str, str]) -> None:
    """Store what the holder of ``key`` is told, in the transaction of what was done."""
    IdempotentAnswer.objects.create(
        key=key, fingerprint=fingerprint, status=status, document=document, headers=dict(headers)
    )


def answers_purge(now: datetime) -> int:
    """Delete answers that are older than a day and return how many."""
    old = IdempotentAnswer.objects.filter(created_at__lt=now - KEPT).values("pk")[:_MOST_PURGED]
    return IdempotentAnswer.objects.filter(pk__in=old).delete()[0]
