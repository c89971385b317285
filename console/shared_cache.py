"""Django's cache in Valkey with connections that outlive a request.

Django makes a cache for each thread, and under ASGI for each request: every one would open a connection of its own,
which takes longer than what it is opened for. It also makes a client for each command, which takes five times as long
as the command. Clients and their pools may be used by many threads.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.core.cache import cache
from django.core.cache.backends.redis import RedisCache, RedisCacheClient

_COUNT = """
local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('EXPIRE', KEYS[1], ARGV[1]) end
return count
"""


class _Client(RedisCacheClient):
    """Keeps the client of the one server."""

    _kept: Any = None

    def get_client(self, key: Any = None, *, write: bool = False) -> Any:
        """Return the client."""
        if self._kept is None:
            self._kept = super().get_client(key, write=True)
        return self._kept


_clients: dict[str, _Client] = {}


class SharedRedisCache(RedisCache):
    """``RedisCache`` whose client is the same for the whole process."""

    _servers: list[str]
    _options: dict[str, Any]

    @cached_property
    def _cache(self) -> Any:
        key = repr((self._servers, sorted(self._options.items())))
        return _clients.setdefault(key, _Client(self._servers, **self._options))

    def count(self, key: str, window_seconds: int) -> int:
        """Do what ``count`` below does."""
        name = self.make_and_validate_key(key)
        return int(self._cache.get_client(name, write=True).eval(_COUNT, 1, name, window_seconds))


def count(key: str, window_seconds: int) -> int:
    """Count one more under a key and return how many there are; the window begins with the first.

    Raises:
        RedisError: the cache is away.
    """
    shared: Any = cache
    return int(shared.count(key, window_seconds))
