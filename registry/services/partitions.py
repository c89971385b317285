"""Partitions of the time series: a day each for fine buckets, a month for hourly ones. Old data goes by DROP TABLE."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection, transaction

from registry.domain.rollups import KEEP

_TABLES = ("registry_sample", "registry_node_sample")
_MONTHLY = 3600
_NAME = re.compile(r"_p(\d{4})(\d{2})(\d{2})?$")
# One maker at a time: two would make the same partition.
_LOCK = 0x464C4F54_50415254


def partitions_ensure(now: datetime, *, days_ahead: int = 3) -> int:
    """Make the partitions from yesterday to ``days_ahead`` and return how many were new.

    Rows that have landed in the default partition meanwhile are moved into the new one.
    """
    made = 0
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        for table in _TABLES:
            for resolution in KEEP:
                branch = f"{table}_{resolution}"
                present = set(_partitions(cursor, branch))
                for name, start, end in _wanted(branch, resolution, now, days_ahead):
                    if name not in present:
                        _make(cursor, branch, name, start, end)
                        made += 1
    return made


def partitions_drop(now: datetime) -> int:
    """Drop partitions that lie wholly before what is kept, and late rows of default partitions; return how many."""
    dropped = 0
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        for table in _TABLES:
            for resolution, kept in KEEP.items():
                branch = f"{table}_{resolution}"
                for name in _partitions(cursor, branch):
                    end = _end_of(name)
                    if end is not None and end <= now - kept:
                        cursor.execute(f'DROP TABLE "{name}"')
                        dropped += 1
                cursor.execute(f"DELETE FROM {branch}_default WHERE bucket < %s", [now - kept])  # noqa: S608
    return dropped


def _partitions(cursor: Any, branch: str) -> list[str]:
    cursor.execute(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = %s::regclass",
        [branch],
    )
    return sorted(name for (name,) in cursor.fetchall())


def _wanted(branch: str, resolution: int, now: datetime, days_ahead: int) -> Iterator[tuple[str, datetime, datetime]]:
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if resolution == _MONTHLY:
        month = today.replace(day=1)
        for _ in range(2):
            following = (month + timedelta(days=32)).replace(day=1)
            yield f"{branch}_p{month:%Y%m}", month, following
            month = following
        return
    for offset in range(-1, days_ahead + 1):
        day = today + timedelta(days=offset)
        yield f"{branch}_p{day:%Y%m%d}", day, day + timedelta(days=1)


def _end_of(name: str) -> datetime | None:
    match = _NAME.search(name)
    if match is None:
        return None
    year, month, day = int(match[1]), int(match[2]), match[3]
    if day is not None:
        return datetime(year, month, int(day), tzinfo=UTC) + timedelta(days=1)
    return (datetime(year, month, 1, tzinfo=UTC) + timedelta(days=32)).replace(day=1)


def _make(cursor: Any, branch: str, name: str, start: datetime, end: datetime) -> None:
    default = f"{branch}_default"
    bounds = [start, end]
    # Attaching checks that the default partition holds no row of the range; moving them first needs it to stand still.
    cursor.execute(f"LOCK TABLE {default} IN ACCESS EXCLUSIVE MODE")
    cursor.execute(f'CREATE TABLE "{name}" (LIKE {branch} INCLUDING ALL)')
    cursor.execute(
        f"WITH moved AS (DELETE FROM {default} WHERE bucket >= %s AND bucket < %s RETURNING *) "  # noqa: S608
        f'INSERT INTO "{name}" SELECT * FROM moved',
        bounds,
    )
    # Bounds of a partition cannot be parameters; these are times of our own making.
    values = f"FROM ('{start.isoformat()}') TO ('{end.isoformat()}')"
    cursor.execute(f'ALTER TABLE {branch} ATTACH PARTITION "{name}" FOR VALUES {values}')
