"""Webhooks and their deliveries, for those who manage them."""

from __future__ import annotations

import uuid

from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.models import Webhook, WebhookAttempt, WebhookDelivery
from registry.selectors.accounts import projects_administered
from registry.selectors.lookup import one_by_id


def webhooks_visible_to(actor: Actor) -> QuerySet[Webhook]:
    """Return webhooks of projects that the actor administers, and the site's for its administrators; newest first."""
    hooks = Webhook.objects.select_related("project", "created_by").order_by("-created_at", "-id")
    if actor.is_system:
        return hooks
    seen = Q(project__in=projects_administered(actor).values("pk"))
    if _administers_site(actor):
        seen |= Q(project=None)
    return hooks.filter(seen)


def webhook_get(actor: Actor, webhook_id: uuid.UUID | str) -> Webhook:
    """Return a webhook by id.

    Raises:
        NotFound: it does not exist, or the actor may not see it.
    """
    return one_by_id(webhooks_visible_to(actor), webhook_id, _("There is no such webhook."))


def deliveries_of(webhook: Webhook) -> QuerySet[WebhookDelivery]:
    """Return the deliveries of a webhook with their events, newest first."""
    return webhook.deliveries.select_related("event").order_by("-created_at", "-id")


def delivery_get(webhook: Webhook, delivery_id: uuid.UUID | str) -> WebhookDelivery:
    """Return a delivery of the webhook.

    Raises:
        NotFound: it has none of that id.
    """
    rows = deliveries_of(webhook).select_related("event", "webhook__project")
    return one_by_id(rows, delivery_id, _("There is no such delivery."))


def attempts_of(delivery: WebhookDelivery) -> QuerySet[WebhookAttempt]:
    """Return what was tried, oldest first."""
    return delivery.log.order_by("created_at", "id")


def _administers_site(actor: Actor) -> bool:
    user = actor.user
    return (
        user is not None
        and user.is_active
        and user.site_role == "admin"
        and actor.only_project_id is None
        and actor.has_scope("read")
    )
