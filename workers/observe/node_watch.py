"""Watching one node: a long-poll for its state and a scrape each ten seconds, both backing off when it is silent."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from django.db import Error as DatabaseFailure
from django.utils import timezone

from workers.node_client.client import Connect, NodeClient
from workers.node_client.errors import NodeClientError
from workers.observe.deltas import Key, Totals
from workers.observe.exposition import BadExposition
from workers.observe.store import WatchedNode, store_failure, store_observation, store_scrape
from workers.observe.threads import DatabaseThreads

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds: how long a poll may hang, the least time between two, between scrapes, and the longest pause."""

    poll: float = 10.0
    least: float = 0.2
    scrape: float = 10.0
    longest_pause: float = 10.0
    refresh: float = 2.0


def pause_after(failures: int, longest: float) -> float:
    """Return the seconds to wait after so many failures in a row: 0.5, 1, 2, ... up to ``longest``."""
    return float(min(longest, 0.5 * 2 ** min(failures - 1, 10)))


def until_next(now: float, every: float, phase: float) -> float:
    """Return the seconds until the next time that is ``phase`` after a multiple of ``every`` (above 0)."""
    return every - (now - phase) % every


class NodeWatch:
    """The two loops of one node. ``run`` ends only when it is cancelled."""

    def __init__(self, node: WatchedNode, threads: DatabaseThreads, connect: Connect, pace: Pace) -> None:
        self._node = node
        self._threads = threads
        self._connect = connect
        self._pace = pace
        # Nodes are scraped one after the other, not all at the same moment.
        self._phase = (node.node_id.int % 1000) / 1000 * pace.scrape / 5

    async def run(self) -> None:
        """Watch until cancelled."""
        async with self._connect(self._node.address) as client, asyncio.TaskGroup() as group:
            group.create_task(self._poll_forever(client))
            if self._node.address.metrics_url:
                group.create_task(self._scrape_forever(client))

    async def _poll_forever(self, client: NodeClient) -> None:
        after: int | None = None
        failures = 0
        while True:
            started = time.monotonic()
            try:
                observed = await client.observed(after=after, timeout_seconds=self._pace.poll)
                await self._threads.run(store_observation, self._node.node_id, observed, timezone.now())
                after, failures = observed.sequence, 0
            except NodeClientError as error:
                failures += 1
                after = None
                await self._note(error, first=failures == 1)
            except DatabaseFailure as error:
                failures += 1
                after = None  # what could not be stored is asked for again
                self._warn("observation not stored", error, first=failures == 1)
            spent = time.monotonic() - started
            pause = pause_after(failures, self._pace.longest_pause) if failures else self._pace.least - spent
            await asyncio.sleep(max(pause, 0.0))

    async def _scrape_forever(self, client: NodeClient) -> None:
        before: Mapping[Key, Totals] | None = None
        failures = 0
        while True:
            await asyncio.sleep(until_next(time.time(), self._pace.scrape, self._phase))
            try:
                exposition = await client.metrics()
                before = await self._threads.run(store_scrape, self._node.node_id, exposition, before, timezone.now())
                failures = 0
            except (NodeClientError, BadExposition, DatabaseFailure) as error:
                failures += 1
                self._warn("metrics not scraped", error, first=failures == 1)

    async def _note(self, error: NodeClientError, *, first: bool) -> None:
        self._warn("no answer", error, first=first)
        try:
            await self._threads.run(store_failure, self._node.node_id, error.message)
        except DatabaseFailure as failure:
            self._warn("failure not stored", failure, first=first)

    def _warn(self, what: str, error: Exception, *, first: bool) -> None:
        level: Callable[..., None] = _log.warning if first else _log.debug
        level("observe.%s node=%s reason=%s", what.replace(" ", "_"), self._node.address.name, error)
