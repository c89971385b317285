"""What the observe process reads from and writes to the database. Synchronous: called in threads."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from registry import signals, telemetry
from registry.domain.histograms import EMPTY
from registry.models import ServingNode
from registry.selectors.deployments import deployments_on
from registry.selectors.fleet import nodes_observable
from registry.services.fleet import node_observe, node_unreachable
from registry.services.samples import NodeSampleRow, SampleRow, partitions_ensure, samples_write
from serving_node.contract.control import Observed
from workers.node_client.address import address_of
from workers.node_client.client import Exposition, NodeAddress
from workers.node_client.errors import NodeClientError
from workers.observe.deltas import Host, Key, Totals, difference, host, totals
from workers.observe.exposition import parse

BUCKET_SECONDS = 10


@dataclass(frozen=True, slots=True)
class WatchedNode:
    """A node to watch and where it listens."""

    node_id: uuid.UUID
    address: NodeAddress


def prepare() -> None:
    """Make sure that today's samples have a table to go to."""
    partitions_ensure(timezone.now())


def watched_nodes() -> list[WatchedNode]:
    """Return the nodes to watch; one whose address cannot be told is noted as unreachable and left out."""
    watched = []
    for node in nodes_observable():
        try:
            watched.append(WatchedNode(node.pk, address_of(node)))
        except NodeClientError as error:
            node_unreachable(node=node, error=error.message, now=timezone.now())
    return watched


def store_observation(node_id: uuid.UUID, observed: Observed, now: datetime) -> bool:
    """Store what a node said at ``now``; hint at its deployments when that is new. Return whether it is."""
    node = ServingNode.objects.filter(pk=node_id).first()
    if node is None:
        return False
    changed = node_observe(node=node, observed=observed, now=now)
    if changed:
        _touch_deployments(node)
    return changed


def store_failure(node_id: uuid.UUID, error: str) -> None:
    """Note that a node did not answer; its deployments get worse once its lease has run out."""
    node = ServingNode.objects.filter(pk=node_id).first()
    if node is None:
        return
    node_unreachable(node=node, error=error, now=timezone.now())
    _touch_deployments(node)


def store_scrape(
    node_id: uuid.UUID, exposition: Exposition, before: Mapping[Key, Totals] | None, now: datetime
) -> dict[Key, Totals]:
    """Write what happened since ``before`` (None: nothing is known, only the gauges count); return the new totals.

    Raises:
        BadExposition: the scrape cannot be read.
    """
    points = parse(exposition.content_type, exposition.body)
    current = totals(points)
    # A scrape tells about the time before it, so it belongs to the bucket that has just ended.
    seconds = now.timestamp() // BUCKET_SECONDS * BUCKET_SECONDS
    bucket = datetime.fromtimestamp(seconds, tz=now.tzinfo) - timedelta(seconds=BUCKET_SECONDS)
    changes = {} if before is None else difference(before, current)
    # Idle units get rows too: a rate of zero is not the same as not knowing.
    rows = [_sample(bucket, node_id, key, change) for key, change in changes.items()]
    samples_write(rows, [_node_sample(bucket, node_id, host(points))])
    telemetry.publish("metrics", {"bucket": bucket.isoformat(), "node": str(node_id)})
    return current


def _sample(bucket: datetime, node_id: uuid.UUID, key: Key, change: Totals) -> SampleRow:
    return SampleRow(
        bucket=bucket,
        node_id=node_id,
        model=key[0],
        version=key[1],
        pending=change.pending,
        request_histogram=change.histograms.get("request", EMPTY),
        queue_histogram=change.histograms.get("queue", EMPTY),
        compute_histogram=change.histograms.get("compute", EMPTY),
        **change.counters,
    )


def _node_sample(bucket: datetime, node_id: uuid.UUID, gauges: Host) -> NodeSampleRow:
    return NodeSampleRow(
        bucket=bucket,
        node_id=node_id,
        cpu_utilization=gauges.cpu_utilization,
        memory_used_bytes=gauges.memory_used_bytes,
        memory_total_bytes=gauges.memory_total_bytes,
        gpus=[{"uuid": gpu, **values} for gpu, values in sorted(gauges.gpus.items())],
    )


def _touch_deployments(node: ServingNode) -> None:
    for deployment_id in deployments_on(node).values_list("pk", flat=True):
        signals.send_deployment_touched(deployment_id)
