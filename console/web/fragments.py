"""The live parts of pages. Imported when the app is ready; the stream's hub renders them on every event.

A fragment shows facts only, never a form: what may be done depends on the viewer and stays outside.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone

from console.live.fragments import register
from console.web.file_checks import checks_by_file
from registry.models import (
    ApprovalRequest,
    Deployment,
    ModelVersion,
    Operation,
    RegisteredModel,
    ServingNode,
    Webhook,
    WebhookDelivery,
)
from registry.selectors import deployments, fleet, models, stages, versions, webhooks

DELIVERIES_SHOWN = 25


def version_context(version: ModelVersion) -> dict[str, Any]:
    """Return what the live part of a version shows."""
    detail = versions.version_detail(version)
    return {"detail": detail, "version": detail.version, "file_checks": checks_by_file(detail.checks)}


def version_live(topic_id: str, _scope: str) -> str:
    """State, uploads, checks and signature of a version."""
    version = ModelVersion.objects.select_related("model__project", "author").filter(pk=topic_id).first()
    return render_to_string("web/fragments/version_live.html", version_context(version)) if version else ""


def version_row(topic_id: str, _scope: str) -> str:
    """The version's line in its model's list."""
    version = ModelVersion.objects.select_related("model__project", "author").filter(pk=topic_id).first()
    if version is None:
        return ""
    (row,) = versions.version_rows([version])
    context = {"row": row, "project": version.model.project, "model": version.model}
    return render_to_string("web/fragments/version_row.html", context)


def deployment_context(status: deployments.DeploymentStatus) -> dict[str, Any]:
    """Return what the live part of a deployment shows."""
    traffic = [route for route in status.routes if route.role in {"live", "canary"}]
    return {
        "status": status,
        "deployment": status.deployment,
        "split": [(route.version.number, float(route.weight)) for route in traffic],
    }


def change_tracks(status: deployments.DeploymentStatus) -> list[dict[str, Any]]:
    """Return the stages of the newest change of a deployment, and of the one that is asked for."""
    now, deployment = timezone.now(), status.deployment
    tracks: list[dict[str, Any]] = []
    if status.open_approval is not None:
        address = reverse("web:approval", args=[status.open_approval.pk])
        found = stages.request_stages(status.open_approval, now)
        tracks.append({"kind": "request", "address": address, "stages": found})
    rollout = status.rollout or status.last_rollout
    if rollout is not None:
        address = reverse("web:rollout", args=[deployment.project.slug, deployment.pk, rollout.pk])
        tracks.append({"kind": "rollout", "address": address, "stages": stages.rollout_stages(rollout, now)})
    return tracks


def _deployment(topic_id: str) -> Deployment | None:
    rows = Deployment.objects.select_related("model", "project", "fleet__environment")
    return rows.filter(pk=topic_id).first()


def deployment_live(topic_id: str, _scope: str) -> str:
    """Badges, the sentence why not, traffic, and every unit on every node."""
    deployment = _deployment(topic_id)
    if deployment is None:
        return ""
    status = deployments.deployment_status(deployment)
    context = {**deployment_context(status), "tracks": change_tracks(status)}
    return render_to_string("web/fragments/deployment_live.html", context)


def deployment_row(topic_id: str, _scope: str) -> str:
    """The deployment's line in lists."""
    deployment = _deployment(topic_id)
    if deployment is None:
        return ""
    return render_to_string(
        "web/fragments/deployment_row.html", deployment_context(deployments.deployment_status(deployment))
    )


def model_badges(topic_id: str, _scope: str) -> str:
    """Worst health and sync of a model's deployments."""
    model = RegisteredModel.objects.select_related("project").filter(pk=topic_id).first()
    if model is None:
        return ""
    return render_to_string("web/fragments/model_badges.html", {"overview": models.model_overview(model)})


def operation_live(topic_id: str, _scope: str) -> str:
    """State, progress, log and outcome of an operation."""
    operation = Operation.objects.select_related("actor", "project").filter(pk=topic_id).first()
    return render_to_string("web/fragments/operation_live.html", {"operation": operation}) if operation else ""


def approval_live(topic_id: str, _scope: str) -> str:
    """State of a request and the decisions so far."""
    rows = ApprovalRequest.objects.select_related("environment", "deployment__fleet").prefetch_related(
        "reviews__reviewer"
    )
    approval = rows.filter(pk=topic_id).first()
    return render_to_string("web/fragments/approval_live.html", {"approval": approval}) if approval else ""


def fleet_table(_topic_id: str, _scope: str) -> str:
    """All nodes."""
    return render_to_string("web/fragments/fleet_table.html", {"rows": fleet.node_rows()})


def node_live(topic_id: str, _scope: str) -> str:
    """State of a node, without the units: which of them a viewer may see depends on membership."""
    try:
        node = ServingNode.objects.get(pk=uuid.UUID(topic_id))
    except (ServingNode.DoesNotExist, ValueError):
        return ""
    return render_to_string("web/fragments/node_live.html", {"row": fleet.node_row(node)})


def webhook_context(hook: Webhook, deliveries: Iterable[WebhookDelivery]) -> dict[str, Any]:
    """Return what the live part of a webhook shows; each delivery with the time at which it may be tried next."""
    return {"webhook": hook, "deliveries": [(one, max(one.due_at, hook.resting_until)) for one in deliveries]}


def webhook_live(topic_id: str, _scope: str) -> str:
    """How a webhook does, and its newest deliveries."""
    hook = Webhook.objects.filter(pk=topic_id).first()
    if hook is None:
        return ""
    newest = webhooks.deliveries_of(hook)[:DELIVERIES_SHOWN]
    return render_to_string("web/fragments/webhook_live.html", webhook_context(hook, newest))


register("version", "version-live", version_live)
register("version", "version-row", version_row)
register("deployment", "deployment-live", deployment_live)
register("deployment", "deployment-row", deployment_row)
register("model", "model-badges", model_badges)
register("operation", "operation-live", operation_live)
register("approval", "approval-live", approval_live)
register("fleet", "fleet-table", fleet_table)
register("node", "node-live", node_live)
register("webhook", "webhook-live", webhook_live)
