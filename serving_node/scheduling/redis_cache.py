"""A response cache on a Redis server, which several nodes share. Source: the settings of Triton's Redis cache.

Redis may be slow, away or full: a request waits for it no longer than one deadline, and while it is away, which one
``PING`` each second finds out, nobody waits at all.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import structlog
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from serving_node.observability.cache_counters import CacheCounters
from serving_node.observability.families import Family
from serving_node.scheduling.cache_options import RedisOptions
from serving_node.scheduling.response_cache import INLINE_BYTES, Answer

log = structlog.get_logger(__name__)

KEY_PREFIX = "flotilla:response:"
_THREADS = 2
_PROBE_SECONDS = 1.0
# Answers on their way to Redis are memory, too.
_MAX_UNDER_WAY = 64 * 1024 * 1024
# With so many calls waiting for a connection, another one would only wait longer than it is worth.
_CALLS_PER_CONNECTION = 16


class RedisCache:
    """See ``ResponseCache``. An answer is one string, ``flotilla:response:<key>``, that Redis forgets after its TTL."""

    shared = True

    def __init__(self, options: RedisOptions) -> None:
        self.threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="cache")
        self._options = options
        self._most_calls = options.pool_size * _CALLS_PER_CONNECTION
        self._client: Redis = Redis.from_pool(_pool(options))
        self._counters = CacheCounters()
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way = 0
        self._is_away = False
        self._complained = ""

    def look_up(self, key: bytes, found: Callable[[bytes | None], None]) -> None:
        """See ``ResponseCache``; later, unless Redis is away or too much is asked of it."""
        if self._is_away or len(self._tasks) >= self._most_calls:
            self._counters.misses += 1
            found(None)
        else:
            self._start(self._get(key, found))

    def insert(self, answer: Answer, done: Callable[[int], None]) -> None:
        """See ``ResponseCache``; later: the request is answered meanwhile."""
        if self._is_away or len(self._tasks) >= self._most_calls:
            done(0)
        elif answer.size > self._options.max_entry_bytes or self._under_way + answer.size > _MAX_UNDER_WAY:
            self._counters.unfit += 1
            done(0)
        else:
            self._start(self._set(answer, done))

    async def forget(self, owner: bytes) -> None:
        """See ``ResponseCache``. Nothing is freed here: other nodes may use the answers, and Redis lets them expire."""

    def families(self) -> list[Family]:
        """See ``ResponseCache``."""
        return [*self._counters.families(), *self._counters.remote_families()]

    async def close(self) -> None:
        """See ``ResponseCache``."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.threads.shutdown(wait=False, cancel_futures=True)
        await self._client.aclose()

    def _start(self, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(call)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _get(self, key: bytes, found: Callable[[bytes | None], None]) -> None:
        started_ns = time.monotonic_ns()
        raw: bytes | None = None
        try:
            async with asyncio.timeout(self._options.deadline_seconds):
                raw = cast("bytes | None", await self._client.get(KEY_PREFIX + key.hex()))
        except (RedisError, OSError, TimeoutError) as error:
            self._failed(error)
        if raw is None:
            self._counters.misses += 1
        else:
            self._counters.hits += 1
        self._counters.lookup_ns += time.monotonic_ns() - started_ns
        found(raw)

    async def _set(self, answer: Answer, done: Callable[[int], None]) -> None:
        started_ns = time.monotonic_ns()
        self._under_way += answer.size
        try:
            if answer.size <= INLINE_BYTES:
                raw = answer.pack()
            else:
                raw = await asyncio.get_running_loop().run_in_executor(self.threads, answer.pack)
            async with asyncio.timeout(self._options.deadline_seconds):
                await self._client.set(KEY_PREFIX + answer.key.hex(), raw, ex=self._options.ttl_seconds or None)
            self._complained = ""
        except ValueError:
            self._counters.unfit += 1
        except (RedisError, OSError, TimeoutError) as error:
            self._failed(error)
        finally:
            self._under_way -= answer.size
        elapsed_ns = time.monotonic_ns() - started_ns
        self._counters.insertion_ns += elapsed_ns
        done(elapsed_ns)

    def _failed(self, error: Exception) -> None:
        """Count a failure. Say why once for each spell: what Redis refuses, or that it is away from now on."""
        self._counters.failures += 1
        reason = _reason(error)
        if isinstance(error, RedisConnectionError | RedisTimeoutError | OSError):
            if not self._is_away:
                self._is_away = True
                log.warning("cache.redis_away", reason=reason, consequence="requests are served without the cache")
                self._start(self._wait_for_redis())
        elif not self._complained:
            self._complained = reason
            log.warning("cache.redis_refuses", reason=reason)

    async def _wait_for_redis(self) -> None:
        away_since = time.monotonic()
        while self._is_away:
            await asyncio.sleep(_PROBE_SECONDS)
            try:
                async with asyncio.timeout(self._options.connect_seconds + self._options.deadline_seconds):
                    await self._client.ping()
            except (RedisError, OSError, TimeoutError):
                continue
            self._is_away = False
            log.info("cache.redis_back", seconds=round(time.monotonic() - away_since, 1))


class _NamedConnection(SSLConnection):
    """TLS to a server whose certificate is for another name than the one that it is reached by."""

    def __init__(self, *, server_name: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._server_name = server_name

    def _connection_arguments(self) -> Mapping[str, Any]:
        return {**super()._connection_arguments(), "server_hostname": self._server_name}


def _pool(options: RedisOptions) -> BlockingConnectionPool:
    arguments: dict[str, Any] = {
        "host": options.host,
        "port": options.port,
        "db": options.db,
        "username": options.user or None,
        "password": options.password or None,
        "socket_connect_timeout": options.connect_seconds,
        "socket_timeout": options.deadline_seconds,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    connection_class: type[Connection] = Connection
    if options.tls:
        connection_class = SSLConnection
        arguments |= {
            "ssl_certfile": options.cert or None,
            "ssl_keyfile": options.key or None,
            "ssl_ca_certs": options.cacert or None,
            "ssl_ca_path": options.cacert_dir or None,
        }
        # read the files now: what is wrong with them should be said at the start
        SSLConnection(**arguments).ssl_context.get()
        if options.sni:
            connection_class = _NamedConnection
            arguments["server_name"] = options.sni
    return BlockingConnectionPool(
        max_connections=options.pool_size,
        timeout=options.wait_seconds,
        connection_class=connection_class,
        **arguments,
    )


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
