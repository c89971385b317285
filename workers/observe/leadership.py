"""Only one observe process works: the one that holds an advisory lock on a connection of its own."""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Any, Self

import psycopg
from django.db import connection as django_connection

from workers.locks import lock_key

_log = logging.getLogger(__name__)

_CONNECTION_KEYS = ("host", "port", "dbname", "user", "password", "sslmode")
CONNECT_SECONDS = 5
RETRY_SECONDS = 2.0


class LeadershipLost(Exception):
    """The connection that held the lock is gone; another process may lead."""


class Leadership:
    """The lock ``role observe``. Enter waits until it is ours; ``watch`` returns only by raising."""

    def __init__(self, *, retry_seconds: float = RETRY_SECONDS) -> None:
        self._retry_seconds = retry_seconds
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def __aenter__(self) -> Self:
        waits = False
        while True:
            try:
                if await self._try_lock():
                    _log.info("observe.leads")
                    return self
                if not waits:
                    _log.info("observe.waits (another process observes)")
                waits = True
            except (psycopg.Error, OSError, TimeoutError) as error:
                _log.warning("observe.database_gone reason=%s", error)
                await self._close()
            await asyncio.sleep(self._retry_seconds)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def watch(self) -> None:
        """Ask the connection again and again whether it lives.

        Raises:
            LeadershipLost: it does not.
        """
        assert self._connection is not None
        while True:
            await asyncio.sleep(self._retry_seconds)
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await self._connection.execute("SELECT 1")
            except (psycopg.Error, OSError, TimeoutError) as error:
                raise LeadershipLost(str(error)) from error

    async def _try_lock(self) -> bool:
        if self._connection is None:
            known = django_connection.get_connection_params()
            parameters = {key: known[key] for key in _CONNECTION_KEYS if known.get(key)}
            self._connection = await psycopg.AsyncConnection.connect(
                autocommit=True, connect_timeout=CONNECT_SECONDS, application_name="flotilla-observe", **parameters
            )
        async with asyncio.timeout(CONNECT_SECONDS):
            cursor = await self._connection.execute("SELECT pg_try_advisory_lock(%s)", [lock_key("role", "observe")])
            row = await cursor.fetchone()
        return bool(row and row[0])

    async def _close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None
