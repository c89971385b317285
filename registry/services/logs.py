"""The newest lines of nodes' logs, fetched by a worker: of one node, or what its nodes say about one deployment."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from registry.domain.actors import Actor
from registry.models import Deployment, Operation, OperationQueue, ServingNode
from registry.services import audit
from registry.services.operations import operation_create
from registry.services.permissions import require

MOST_LINES = 2000
_KEPT = timedelta(hours=1)


def node_logs(*, node: ServingNode, tail: int = 200, actor: Actor) -> Operation:
    """Ask for the newest lines of a node: operation ``node_logs``. Its log names models of every project.

    The result is ``{"nodes": [{"node", "lines", "error"}]}``, kept an hour.
    """
    require(actor, "site.fleet")
    with transaction.atomic():
        audit.record(actor=actor, action="node.logs", obj=node, after={"tail": _bounded(tail)})
        return operation_create(
            kind="node_logs",
            queue=OperationQueue.INTERACTIVE,
            subject_type="node",
            subject_id=node.id,
            params={"tail": _bounded(tail)},
            expires_at=timezone.now() + _KEPT,
            actor=actor,
        )


def deployment_logs(*, deployment: Deployment, tail: int = 200, actor: Actor) -> Operation:
    """Ask every node of a deployment for the newest lines that name its model: operation ``deployment_logs``.

    The result is as of ``node_logs``.
    """
    require(actor, "deployment.infer", deployment)
    with transaction.atomic():
        audit.record(actor=actor, action="deployment.logs", obj=deployment, after={"tail": _bounded(tail)})
        return operation_create(
            kind="deployment_logs",
            queue=OperationQueue.INTERACTIVE,
            subject_type="deployment",
            subject_id=deployment.id,
            project=deployment.project,
            params={"tail": _bounded(tail), "served_name": deployment.served_name},
            expires_at=timezone.now() + _KEPT,
            actor=actor,
        )


def _bounded(tail: int) -> int:
    return max(1, min(tail, MOST_LINES))
