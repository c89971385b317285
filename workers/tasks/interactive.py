"""Try it: one prediction for a person, by a node of the deployment, bounded in size and time."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _

from registry.models import Deployment, Operation, ServingNode
from registry.selectors.fleet import is_reachable, nodes_of
from serving_node.contract.states import UnitState
from workers.locks.leases import Lease
from workers.node_client.address import address_of, connect
from workers.node_client.client import Connect, NodeClient, Target, call
from workers.node_client.errors import NodeClientError, NodeErrorCode

DEADLINE_SECONDS = 15.0
MAX_RESULT_BYTES = 1 << 20


def infer(operation: Operation, lease: Lease, *, connect: Connect = connect) -> Mapping[str, Any]:
    """Ask one node and return ``{"node", "response", "milliseconds"}``; ``response`` is v2 JSON with the node's timing.

    Raises:
        NodeClientError: no node can answer, or the node refused; the message is for the person.
    """
    deployment = Deployment.objects.select_related("fleet").get(pk=operation.subject_id)
    name = str(operation.params.get("served_name") or deployment.served_name)
    target = Target(unit=str(operation.params.get("unit") or ""), version=str(operation.params.get("version") or ""))
    node = _choose(deployment, name, target)
    lease.report(20, _("Asking %(node)s") % {"node": node.name})
    started = time.monotonic()

    async def ask(client: NodeClient) -> dict[str, Any]:
        return await client.infer(name, operation.params["body"], target=target, timeout_seconds=DEADLINE_SECONDS)

    response = call(connect, address_of(node), ask)
    milliseconds = round((time.monotonic() - started) * 1000, 2)
    if len(json.dumps(response)) > MAX_RESULT_BYTES:
        text = _("The answer is larger than 1 MiB; ask for a smaller batch, or use a client of the node.")
        raise NodeClientError(NodeErrorCode.TOO_LARGE, text)
    return {"node": node.name, "response": response, "milliseconds": milliseconds}


def _choose(deployment: Deployment, name: str, target: Target) -> ServingNode:
    """Return a reachable node on which a fitting unit is ready."""
    now = timezone.now()
    reachable = [node for node in nodes_of(deployment.fleet).select_related("observation") if is_reachable(node, now)]
    if not reachable:
        raise NodeClientError(NodeErrorCode.UNREACHABLE, _("No node of this fleet can be reached."))
    for node in reachable:
        units = node.observation.units if hasattr(node, "observation") else []
        if any(_fits(unit, name, target) for unit in units):
            return node
    raise NodeClientError(NodeErrorCode.UNAVAILABLE, _("No node has this version ready."))


def _fits(unit: Mapping[str, Any], name: str, target: Target) -> bool:
    return (
        unit.get("name") == name
        and unit.get("state") == UnitState.READY
        and (not target.unit or unit.get("unit") == target.unit)
        and (not target.version or str(unit.get("version")) == target.version)
    )
