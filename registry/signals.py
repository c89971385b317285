"""Hints that something changed, sent after the commit. A lost hint costs latency only: beat looks at the rows.

Receivers must be quick and must not raise; ``workers.receivers`` turns each into a task with the id.
"""

from __future__ import annotations

import uuid

from django.db import transaction
from django.dispatch import Signal

operation_ready = Signal()  # operation_id: UUID, queue: str
node_desired_changed = Signal()  # node_id: UUID
deployment_touched = Signal()  # deployment_id: UUID
webhooks_due = Signal()


def send_operation_ready(operation_id: uuid.UUID, queue: str) -> None:
    """Tell the workers after the commit that an operation waits."""
    transaction.on_commit(
        lambda: operation_ready.send_robust(sender=None, operation_id=operation_id, queue=queue) and None, robust=True
    )


def send_node_desired_changed(node_id: uuid.UUID) -> None:
    """Tell the workers after the commit that a node has something new to do."""
    transaction.on_commit(lambda: node_desired_changed.send_robust(sender=None, node_id=node_id) and None, robust=True)


def send_deployment_touched(deployment_id: uuid.UUID) -> None:
    """Tell the workers after the commit to look at a deployment again."""
    transaction.on_commit(
        lambda: deployment_touched.send_robust(sender=None, deployment_id=deployment_id) and None, robust=True
    )


def send_webhooks_due() -> None:
    """Tell the workers after the commit that something waits to be delivered."""
    transaction.on_commit(lambda: webhooks_due.send_robust(sender=None) and None, robust=True)
