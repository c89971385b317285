"""Trying a write: everything happens as it would, in a transaction that is undone; nothing is told to anybody."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from rest_framework.request import Request

HEADER = "Flotilla-Dry-Run"


def is_dry_run(request: Any) -> bool:
    """Say whether the caller only wants to know what would come of a write."""
    plain: Request | Any = getattr(request, "_request", request)
    return str(plain.headers.get(HEADER, "")).strip().lower() in {"1", "true"}


def undone(answer: Any) -> Any:
    """Return the answer of ``answer()``, whose writes are undone; what waits for a commit never happens."""
    with transaction.atomic():
        response = answer()
        transaction.set_rollback(True)
    response.headers[HEADER] = "true"
    return response
