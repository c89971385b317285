"""The process's one Redis connection for live events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from registry.telemetry import channel_of

SILENCE_SECONDS = 20.0


class RedisSource:
    """Subscribes to the channel that registry.telemetry publishes on."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def events(self) -> AsyncIterator[Mapping[str, Any]]:
        """Yield events until the connection is lost.

        Raises:
            redis.RedisError, OSError: it is lost; the hub connects again.
        """
        client = redis.asyncio.Redis.from_url(
            self._url,
            socket_connect_timeout=3,
            socket_keepalive=True,
            health_check_interval=10,
            retry=Retry(NoBackoff(), 0),
        )
        try:
            async with client.pubsub(ignore_subscribe_messages=True) as channel:
                await channel.subscribe(channel_of(self._url))
                while True:
                    found = await channel.get_message(timeout=SILENCE_SECONDS)
                    event = _parsed(found["data"]) if found else None
                    if event is not None:
                        yield event
        finally:
            await client.aclose()


def _parsed(data: bytes) -> Mapping[str, Any] | None:
    try:
        event = json.loads(data)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None
