"""Fetches the newest lines of nodes' logs. A node that does not answer is noted; the others are shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _

from registry.models import Deployment, Operation, ServingNode
from registry.selectors.fleet import is_reachable, nodes_of
from registry.services.logs import MOST_LINES
from workers.locks.leases import Lease
from workers.node_client.address import address_of, connect
from workers.node_client.client import Connect, NodeClient, call
from workers.node_client.errors import NodeClientError

MAX_RESULT_CHARACTERS = 1 << 20


def node_logs(operation: Operation, lease: Lease, *, connect: Connect = connect) -> Mapping[str, Any]:
    """Return ``{"nodes": [{"node", "lines", "error"}]}`` of the node ``operation.subject_id``."""
    node = ServingNode.objects.get(pk=operation.subject_id)
    return _collect([node], lambda _line: True, operation, lease, connect)


def deployment_logs(operation: Operation, lease: Lease, *, connect: Connect = connect) -> Mapping[str, Any]:
    """Return the same of every node of the deployment ``operation.subject_id``; only lines that name its model."""
    deployment = Deployment.objects.select_related("fleet").get(pk=operation.subject_id)
    name = re.compile(rf"(?<![\w.-]){re.escape(str(operation.params['served_name']))}(?![\w-])")
    return _collect(list(nodes_of(deployment.fleet)), lambda line: bool(name.search(line)), operation, lease, connect)


def _collect(
    nodes: list[ServingNode], fits: Callable[[str], bool], operation: Operation, lease: Lease, connect: Connect
) -> Mapping[str, Any]:
    tail, now, found = int(operation.params["tail"]), timezone.now(), []
    share = MAX_RESULT_CHARACTERS // max(len(nodes), 1)

    async def ask(client: NodeClient) -> list[str]:
        return await client.logs(tail=MOST_LINES)

    for index, node in enumerate(nodes):
        lease.check()
        lease.report(100 * index // len(nodes), _("Asking %(node)s") % {"node": node.name})
        row: dict[str, Any] = {"node": node.name, "lines": [], "error": ""}
        if not is_reachable(node, now):
            row["error"] = _("The node cannot be reached.")
        else:
            try:
                row["lines"] = _newest(
                    [line for line in call(connect, address_of(node), ask) if fits(line)], tail, share
                )
            except NodeClientError as error:
                row["error"] = error.message
        found.append(row)
    return {"nodes": found}


def _newest(lines: list[str], tail: int, characters: int) -> list[str]:
    """Return the newest lines, at most ``tail`` of them and so many characters in all."""
    kept: list[str] = []
    for line in reversed(lines[-tail:]):
        characters -= len(line)
        if characters < 0:
            break
        kept.append(line)
    return kept[::-1]
