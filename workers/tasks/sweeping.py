"""What beat looks for. Ids only: each task reads the rest again."""

from __future__ import annotations

from datetime import datetime

from registry.selectors import deployments, fleet
from registry.services.operations import operations_due
from registry.services.webhook_deliveries import webhooks_due


def due_operations(now: datetime) -> list[tuple[str, str]]:
    """Return (id, queue) of operations that nobody works on."""
    return [(str(operation_id), queue) for operation_id, queue in operations_due(now)]


def nodes_behind() -> list[str]:
    """Return nodes that have not applied what they should do."""
    return [str(node_id) for node_id in fleet.nodes_behind()]


def deployments_unsettled(now: datetime) -> list[str]:
    """Return deployments that are behind, out of sync or rolling out."""
    return [str(deployment_id) for deployment_id in deployments.deployments_unsettled(now)]


def webhooks_wait(now: datetime) -> bool:
    """Say whether a delivery is due."""
    return bool(webhooks_due(now))
