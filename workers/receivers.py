"""Hints of the domain become task ids on queues."""

from __future__ import annotations

import uuid
from typing import Any

from django.dispatch import receiver

from registry import signals
from workers.tasks.hints import DELIVER_WEBHOOKS, RECONCILE_DEPLOYMENT, RECONCILE_NODE, RUN_OPERATION, sender


@receiver(signals.operation_ready)
def _operation_ready(operation_id: uuid.UUID, queue: str, **kwargs: Any) -> None:
    sender.send(RUN_OPERATION, operation_id, queue)


@receiver(signals.node_desired_changed)
def _node_desired_changed(node_id: uuid.UUID, **kwargs: Any) -> None:
    sender.send(RECONCILE_NODE, node_id, "control")


@receiver(signals.deployment_touched)
def _deployment_touched(deployment_id: uuid.UUID, **kwargs: Any) -> None:
    sender.send(RECONCILE_DEPLOYMENT, deployment_id, "control")


@receiver(signals.webhooks_due)
def _webhooks_due(**kwargs: Any) -> None:
    sender.send(DELIVER_WEBHOOKS, None, "control")
