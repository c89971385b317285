"""What holds answers for requests that come again, and its form in this process' memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import structlog

from serving_node.observability.cache_counters import CacheCounters
from serving_node.scheduling.cache_index import CacheIndex
from serving_node.scheduling.cached_response import pack_response

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from serving_node.core.request import Parameter
    from serving_node.core.tensor import Tensor
    from serving_node.observability.families import Family

log = structlog.get_logger(__name__)

# Up to so many bytes are hashed or copied on the event loop (about 10 us), more of them in a thread.
INLINE_BYTES = 64 * 1024
_THREADS = 2
_FORGOTTEN_AT_ONCE = 1000


@dataclass(slots=True, frozen=True)
class Answer:
    """A response that shall be kept, and under what. ``owner`` is whose memory it is: one load of a model.

    ``outputs`` are views; they stay valid as long as they are referred to.
    """

    key: bytes
    owner: bytes
    outputs: tuple[Tensor, ...]
    parameters: dict[str, Parameter]
    size: int

    def pack(self) -> bytes:
        """Return a copy in one piece. Raises ValueError, see ``cached_response``."""
        return pack_response(self.outputs, self.parameters)


class ResponseCache(Protocol):
    """Holds packed responses (see ``cached_response``) by key.

    ``shared``: other nodes use it, and it outlives this one, so that keys must say all that an answer depends on.
    ``threads`` is where its users hash what is large.
    Concurrency: all methods are called on the event loop; callbacks run there, once, now or later. Nothing raises.
    """

    @property
    def shared(self) -> bool:
        """See above."""

    @property
    def threads(self) -> Executor:
        """See above."""

    def look_up(self, key: bytes, found: Callable[[bytes | None], None]) -> None:
        """Find an answer; None when there is none, or when it cannot be had in time."""

    def insert(self, answer: Answer, done: Callable[[int], None]) -> None:
        """Keep an answer if possible. ``done`` is told how many nanoseconds that took."""

    async def forget(self, owner: bytes) -> None:
        """Free the memory of an owner, who will not come back."""

    def families(self) -> list[Family]:
        """Return the metrics of the cache."""

    async def close(self) -> None:
        """Free everything."""


class LocalCache:
    """A ``ResponseCache`` in this process, of at most ``capacity`` bytes, that gives up what was not used longest."""

    shared = False

    def __init__(self, capacity: int) -> None:
        self.threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="cache")
        self._index: CacheIndex[bytes] = CacheIndex(capacity)
        self._counters = CacheCounters()
        self._copying = 0
        self._told: set[bytes] = set()

    def look_up(self, key: bytes, found: Callable[[bytes | None], None]) -> None:
        """See ``ResponseCache``; at once."""
        started_ns = time.monotonic_ns()
        entry = self._index.get(key)
        if entry is None:
            self._counters.misses += 1
        else:
            self._counters.hits += 1
        self._counters.lookup_ns += time.monotonic_ns() - started_ns
        found(entry)

    def insert(self, answer: Answer, done: Callable[[int], None]) -> None:
        """See ``ResponseCache``; small answers at once: the same request hits as soon as this one is answered."""
        started_ns = time.monotonic_ns()
        if not self._index.fits(answer.size):
            self._refuse(answer, f"its {answer.size} bytes are more than the cache holds")
            done(0)
        elif answer.size <= INLINE_BYTES:
            try:
                raw = answer.pack()
            except ValueError as error:
                self._refuse(answer, str(error))
                done(0)
            else:
                self._put(answer, raw, started_ns, done)
        elif self._copying + answer.size > self._index.capacity:
            # copies under way are memory, too, and must not grow without bound
            self._counters.unfit += 1
            done(0)
        else:
            self._copying += answer.size
            copying = asyncio.get_running_loop().run_in_executor(self.threads, answer.pack)
            copying.add_done_callback(partial(self._copied, answer, started_ns, done))

    async def forget(self, owner: bytes) -> None:
        """See ``ResponseCache``."""
        self._told.discard(owner)
        has_more = True
        while has_more:
            has_more = self._index.forget(owner, _FORGOTTEN_AT_ONCE)
            await asyncio.sleep(0)

    def families(self) -> list[Family]:
        """See ``ResponseCache``."""
        index = self._index
        return [
            *CacheCounters.local_families(index.used, index.capacity, len(index), index.evictions),
            *self._counters.families(),
        ]

    async def close(self) -> None:
        """See ``ResponseCache``."""
        self.threads.shutdown(wait=False, cancel_futures=True)

    def _copied(
        self, answer: Answer, started_ns: int, done: Callable[[int], None], copying: asyncio.Future[bytes]
    ) -> None:
        self._copying -= answer.size
        failure = None if copying.cancelled() else copying.exception()
        if copying.cancelled() or failure is not None:
            self._refuse(answer, str(failure))
            done(0)
        else:
            self._put(answer, copying.result(), started_ns, done)

    def _put(self, answer: Answer, raw: bytes, started_ns: int, done: Callable[[int], None]) -> None:
        if not self._index.put(answer.key, raw, len(raw), answer.owner):
            self._refuse(answer, f"its {len(raw)} bytes are more than the cache holds")
        elapsed_ns = time.monotonic_ns() - started_ns
        self._counters.insertion_ns += elapsed_ns
        done(elapsed_ns)

    def _refuse(self, answer: Answer, reason: str) -> None:
        self._counters.unfit += 1
        if answer.owner not in self._told:
            self._told.add(answer.owner)
            log.warning("cache.answer_not_kept", reason=reason)
