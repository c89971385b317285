"""Events for webhooks: noted in the transaction of what happened, so that none is lost and none is invented."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from registry import signals
from registry.domain import webhooks as domain
from registry.models import (
    Alias,
    ApprovalRequest,
    ConfigRevision,
    Deployment,
    ModelCard,
    ModelVersion,
    Project,
    RegisteredModel,
    Rollout,
    ServingNode,
    Webhook,
    WebhookDelivery,
    WebhookEvent,
)

_NOUNS = {
    "registeredmodel": "model",
    "modelcard": "card",
    "modelversion": "version",
    "configrevision": "config",
    "approvalrequest": "approval",
    "servingnode": "node",
}


def event_publish(
    name: str,
    *,
    project_id: uuid.UUID | None,
    actor_name: str,
    obj: models.Model,
    details: Mapping[str, Any] | None = None,
) -> int:
    """Note an event for the webhooks that want it and return how many do. Other events cost nothing."""
    kind = domain.event_type(name, of_project=project_id is not None)
    if kind is None:
        return 0
    place = Q(project_id=project_id) if project_id is not None else Q(project=None)
    hooks = Webhook.objects.filter(place, is_enabled=True)
    wanting = [hook for hook in hooks if domain.is_wanted(name, hook.events)]
    if wanting:
        event = _event(kind, project_id, actor_name, obj, details)
        WebhookDelivery.objects.bulk_create(WebhookDelivery(webhook=hook, event=event) for hook in wanting)
        signals.send_webhooks_due()
    return len(wanting)


def event_test(hook: Webhook, *, actor_name: str) -> WebhookDelivery:
    """Note a test event for this webhook alone, even one that is switched off."""
    event = _event(domain.TEST, hook.project_id, actor_name, hook, None)
    delivery = WebhookDelivery.objects.create(webhook=hook, event=event)
    signals.send_webhooks_due()
    return delivery


def _event(
    kind: domain.EventType,
    project_id: uuid.UUID | None,
    actor_name: str,
    obj: models.Model,
    details: Mapping[str, Any] | None,
) -> WebhookEvent:
    slug = Project.objects.values_list("slug", flat=True).get(pk=project_id) if project_id else ""
    name = obj._meta.model_name or ""
    path = page_path(slug, obj)
    subject = {
        "type": _NOUNS.get(name, name),
        "id": str(obj.pk),
        "label": str(obj),
        "url": settings.PUBLIC_URL.rstrip("/") + path if path else "",
    }
    now = timezone.now()
    document = domain.payload(kind, at=now, project=slug, actor=actor_name, subject=subject, details=details)
    return WebhookEvent.objects.create(created_at=now, project_id=project_id, type=kind.name, payload=document)


def page_path(project: str, obj: models.Model) -> str:
    """Return the path of the console's page about a row, empty when it has none. A test holds it to the console's."""
    match obj:
        case RegisteredModel():
            return f"/p/{project}/models/{obj.slug}/"
        case ModelCard():
            return f"/p/{project}/models/{obj.model.slug}/card/{obj.number}/"
        case Alias():
            return f"/p/{project}/models/{obj.model.slug}/aliases/"
        case ModelVersion():
            return f"/p/{project}/models/{obj.model.slug}/versions/{obj.pk}/"
        case ConfigRevision():
            return f"/p/{project}/models/{obj.model.slug}/configs/{obj.number}/"
        case Deployment():
            return f"/p/{project}/deployments/{obj.pk}/"
        case Rollout():
            return f"/p/{project}/deployments/{obj.deployment_id}/"
        case ApprovalRequest():
            return f"/approvals/{obj.pk}/"
        case ServingNode():
            return f"/fleet/nodes/{obj.pk}/"
        case Webhook():
            return f"/settings/webhooks/{obj.pk}/"
        case _:
            return ""
