"""Looks at the repositories again and again: the timer behind ``--model-control-mode=poll``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

log = structlog.get_logger(__name__)


async def keep_polling(poll: Callable[[], Awaitable[list[str]]], seconds: float) -> None:
    """Call ``poll`` every so many seconds, never twice at a time, until cancelled. Its failures are logged."""
    while True:
        await asyncio.sleep(seconds)
        try:
            for failure in await poll():
                log.error("repository.poll_failed", reason=failure.strip())
        except Exception:
            # the next look may find what this one stumbled over mended
            log.exception("repository.poll_crashed")
