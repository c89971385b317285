"""Django's cache in Valkey with connections that outlive a request.

Django makes a cache for each thread, and under ASGI for each request: every one would open a connection of its own,
which takes longer than what it is opened for. Clients and their pools may be used by many threads.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.core.cache.backends.redis import RedisCache, RedisCacheClient

_clients: dict[str, RedisCacheClient] = {}


class SharedRedisCache(RedisCache):
    """``RedisCache`` whose client is the same for the whole process."""

    _servers: list[str]
    _options: dict[str, Any]

    @cached_property
    def _cache(self) -> Any:
        key = repr((self._servers, sorted(self._options.items())))
        return _clients.setdefault(key, RedisCacheClient(self._servers, **self._options))
