"""Hints of the domain become task ids on queues."""

from __future__ import annotations

import uuid
from typing import Any

from django.dispatch import receiver

from registry import signals
from workers import tasks
from workers.tasks.hints import sender


@receiver(signals.operation_ready)
def _operation_ready(operation_id: uuid.UUID, queue: str, **kwargs: Any) -> None:
    sender.send(tasks.run_operation.name, operation_id, queue)


@receiver(signals.node_desired_changed)
def _node_desired_changed(node_id: uuid.UUID, **kwargs: Any) -> None:
    sender.send(tasks.reconcile_node.name, node_id, "control")


@receiver(signals.deployment_touched)
def _deployment_touched(deployment_id: uuid.UUID, **kwargs: Any) -> None:
    sender.send(tasks.reconcile_deployment.name, deployment_id, "control")
