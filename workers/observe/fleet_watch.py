"""One task a node: started when it joins, restarted when its address changes, ended when it is retired."""

from __future__ import annotations

import asyncio
import logging
import uuid

from django.db import Error as DatabaseFailure

from workers.node_client.address import connect as default_connect
from workers.node_client.client import Connect, NodeAddress
from workers.observe.leadership import Leadership, LeadershipLost
from workers.observe.node_watch import NodeWatch, Pace
from workers.observe.store import WatchedNode, prepare, watched_nodes
from workers.observe.threads import DatabaseThreads

_log = logging.getLogger(__name__)


class FleetWatch:
    """Keeps one NodeWatch running for each node of the database."""

    def __init__(
        self, threads: DatabaseThreads, *, connect: Connect = default_connect, pace: Pace | None = None
    ) -> None:
        self._threads = threads
        self._connect = connect
        self._pace = pace or Pace()
        self._running: dict[uuid.UUID, tuple[NodeAddress, asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Watch until cancelled; every node's task ends with it."""
        is_prepared = False
        try:
            while True:
                try:
                    if not is_prepared:
                        await self._threads.run(prepare)
                        is_prepared = True
                    self._adjust(await self._threads.run(watched_nodes))
                except DatabaseFailure as error:
                    _log.warning("observe.nodes_unknown reason=%s", error)
                await asyncio.sleep(self._pace.refresh)
        finally:
            tasks = [task for _address, task in self._running.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._running.clear()

    def _adjust(self, nodes: list[WatchedNode]) -> None:
        wanted = {node.node_id: node for node in nodes}
        for node_id, (address, task) in list(self._running.items()):
            if task.done() or node_id not in wanted or wanted[node_id].address != address:
                task.cancel()
                if task.done() and not task.cancelled() and task.exception():
                    _log.error("observe.watch_failed node=%s", address.name, exc_info=task.exception())
                del self._running[node_id]
        for node_id, node in wanted.items():
            if node_id not in self._running:
                watch = NodeWatch(node, self._threads, self._connect, self._pace)
                self._running[node_id] = (node.address, asyncio.create_task(watch.run(), name=node.address.name))


async def observe_forever(*, connect: Connect = default_connect, pace: Pace | None = None) -> None:
    """Lead and watch; after losing the lead (the database restarted) start over. Ends only when cancelled."""
    threads = DatabaseThreads()
    try:
        while True:
            try:
                async with Leadership() as leadership, asyncio.TaskGroup() as group:
                    group.create_task(leadership.watch())
                    group.create_task(FleetWatch(threads, connect=connect, pace=pace).run())
            except* LeadershipLost as lost:
                _log.warning("observe.lead_lost reason=%s", lost.exceptions[0])
    finally:
        threads.close()
