"""ORM work of the observe process: in a few threads, each call with its own short-lived connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from django.db import connections

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class DatabaseThreads:
    """Runs functions that use the ORM without blocking the loop; no connection outlives its call."""

    def __init__(self, count: int = 4) -> None:
        self._pool = ThreadPoolExecutor(max_workers=count, thread_name_prefix="observe-db")

    async def run(
        self, function: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> _Result:
        """Return ``function(*args, **kwargs)``, called in a thread."""

        def work() -> _Result:
            try:
                return function(*args, **kwargs)
            finally:
                connections.close_all()

        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Start nothing more; calls that run are finished."""
        self._pool.shutdown(wait=False, cancel_futures=True)
