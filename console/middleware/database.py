"""Database work of the raw ASGI apps: in a thread, with a connection that goes back as soon as the call ends.

Nothing that streams may hold a connection: a handful of open pages would exhaust the pool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from django.db import connections

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = ThreadPoolExecutor(max_workers=8, thread_name_prefix="database")


async def in_database_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return ``function(...)``, run in one of eight threads; its connections are closed (or back in the pool) after.

    The wait is bounded by the database settings (connect and pool time-outs).
    """

    def call() -> T:
        try:
            return function(*args, **kwargs)
        finally:
            connections.close_all()

    return await asyncio.get_running_loop().run_in_executor(_THREADS, call)


def release_connection() -> None:
    """Give this thread's connection back before a long answer is streamed (unless a transaction is open)."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()
