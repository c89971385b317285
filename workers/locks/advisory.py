"""Session locks of PostgreSQL. They end with the connection, so a killed worker never leaves one behind."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

_RETRY_SECONDS = 0.05


class Contended(Exception):
    """Somebody else holds the lock and kept it for the whole wait."""


def lock_key(kind: str, name: object) -> int:
    """Return the signed 64-bit number that PostgreSQL wants for a lock name."""
    digest = hashlib.blake2b(f"flotilla:{kind}:{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


@contextmanager
def advisory_lock(kind: str, name: object, *, wait_seconds: float = 2.0) -> Iterator[None]:
    """Hold the lock ``(kind, name)`` for the block, on this thread's Django connection.

    Raises:
        Contended: it was not free within ``wait_seconds``.
    """
    key = lock_key(kind, name)
    deadline = time.monotonic() + wait_seconds
    while not _try(key):
        if time.monotonic() >= deadline:
            raise Contended(f"{kind} {name} is being worked on")
        time.sleep(_RETRY_SECONDS)
    try:
        yield
    finally:
        _release(key)


def _try(key: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [key])
        return bool(cursor.fetchone()[0])


def _release(key: int) -> None:
    # After a lost connection the server has released the lock already; in a failed transaction nothing can run.
    if connection.connection is None or connection.connection.closed or connection.needs_rollback:
        connection.close()
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_unlock(%s)", [key])
