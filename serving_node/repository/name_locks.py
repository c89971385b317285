"""One lock for each name that somebody works on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

What = TypeVar("What")


class NameLocks:
    """Serialises what is done under one name. Names that nobody holds or waits for take no memory."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @contextlib.asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[None]:
        """Wait for the name and hold it, in the order of the calls."""
        lock, users = self._locks.get(name, (asyncio.Lock(), 0))
        self._locks[name] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[name]
            if users == 1:
                del self._locks[name]
            else:
                self._locks[name] = (lock, users - 1)

    @contextlib.asynccontextmanager
    async def hold_all(
        self, names: set[str], find: Callable[[], Awaitable[tuple[set[str], What]]]
    ) -> AsyncIterator[What]:
        """Hold several names, and give what ``find`` returns: the names that are needed, and what was found.

        Only who holds the names may rely on what was found: when more are needed than are held, all is done again.
        """
        while True:
            async with contextlib.AsyncExitStack() as held:
                # always in the same order, so that nobody waits for somebody who waits for them
                for name in sorted(names):
                    await held.enter_async_context(self.hold(name))
                needed, found = await find()
                if needed <= names:
                    yield found
                    return
            names = names | needed
