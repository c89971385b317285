"""The countdown at the end of a node: how long running requests are waited for, and what is said meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

import structlog

from serving_node.scheduling.served_model import ServedModel

log = structlog.get_logger(__name__)

_LOOK_SECONDS = 0.02
# Whoever goes on sending on an open connection is cut off after this part of the time: the rest is for what runs then.
_PART_FOR_NEW = 0.5


async def wait_for_inflight(models: Callable[[], Iterable[ServedModel]], timeout_seconds: float) -> bool:
    """Return when no model has requests, or after half of the time; tell which of the two.

    Says once a second how much is left to do, with Triton's words.
    """
    log.info("Waiting for in-flight requests to complete.")
    started = time.monotonic()
    said = -1
    while True:
        passed = time.monotonic() - started
        running = [(one, count) for one in models() if (count := one.scheduler.inflight_count())]
        if int(passed) > said:
            said = int(passed)
            left = max(int(timeout_seconds) - said, 0)
            log.info(f"Timeout {left}: Found {len(running)} model versions that have in-flight inferences")
            for one, count in running:
                log.info(f"Model '{one.name}' (version {one.version}) has {count} in-flight inferences")
        if not running:
            return True
        if passed >= timeout_seconds * _PART_FOR_NEW:
            return False
        await asyncio.sleep(_LOOK_SECONDS)
