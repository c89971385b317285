"""Live events over Redis pub/sub: something about a topic changed, so pages may look again.

An event carries no truth: readers re-read the rows. Failures to publish are swallowed (the pages poll as well).
Topics: ``model:<id>``, ``version:<id>``, ``deployment:<id>``, ``approval:<id>``, ``operation:<id>``, ``node:<id>``,
``webhook:<id>``, ``fleet``, ``project:<id>``, ``metrics``; ``account:<id>`` tells open streams of an account to ask
again whether they may go on.
"""

from __future__ import annotations

import functools
import json
import logging
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import redis
from django.conf import settings
from django.db import transaction

_log = logging.getLogger(__name__)


def channel_of(redis_url: str) -> str:
    """Return the channel of an installation: channels span databases, so the database's number is in the name."""
    return f"flotilla:events:{urlsplit(redis_url).path.strip('/') or 0}"


@functools.cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=1, socket_connect_timeout=1)


def publish(topic: str, payload: Mapping[str, Any] | None = None, *, project: uuid.UUID | str | None = None) -> None:
    """Send ``{"topic", "project", "data"}`` to every listener now. Never raises; waits a second at most."""
    message = json.dumps({"topic": topic, "project": str(project) if project else "", "data": dict(payload or {})})
    try:
        _client().publish(channel_of(settings.REDIS_URL), message)
    except (redis.RedisError, OSError) as error:
        _log.warning("event on %s not published: %s", topic, error)


def publish_on_commit(
    topic: str, payload: Mapping[str, Any] | None = None, *, project: uuid.UUID | str | None = None
) -> None:
    """Send the event when the transaction is committed (now, when there is none)."""
    transaction.on_commit(lambda: publish(topic, payload, project=project), robust=True)
