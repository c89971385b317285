from __future__ import annotations

import asyncio

import psycopg
import pytest
from django.conf import settings

from workers.locks import lock_key
from workers.observe.leadership import Leadership, LeadershipLost

pytestmark = pytest.mark.django_db(transaction=True)


async def test_a_second_process_waits_until_the_first_has_gone() -> None:
    second = Leadership(retry_seconds=0.02)
    async with Leadership(retry_seconds=0.02):
        waiting = asyncio.create_task(second.__aenter__())
        done, _pending = await asyncio.wait([waiting], timeout=0.3)
        assert not done
    async with asyncio.timeout(30):
        await waiting
    await second.__aexit__(None, None, None)


async def test_a_lost_connection_is_a_lost_lead() -> None:
    async with Leadership(retry_seconds=0.02) as leadership:
        watching = asyncio.create_task(leadership.watch())
        await asyncio.to_thread(_kill_holder)
        async with asyncio.timeout(30):
            with pytest.raises(LeadershipLost):
                await watching


def _kill_holder() -> None:
    database = settings.DATABASES["default"]
    url = "postgres://{USER}:{PASSWORD}@{HOST}:{PORT}/{NAME}".format(**database)
    key = lock_key("role", "observe")
    with psycopg.connect(url, autocommit=True) as connection:
        killed = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
            " AND ((classid::bigint << 32) | objid::bigint) = %s AND database ="
            " (SELECT oid FROM pg_database WHERE datname = current_database())",
            [key],
        ).fetchall()
    assert killed
