"""The time of the database: the one clock that all processes share."""

from __future__ import annotations

from datetime import datetime

from django.db import connection


def database_now() -> datetime:
    """Return what the database's clock says at this moment, not when the transaction began."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now
