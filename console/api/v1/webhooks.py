"""Outgoing webhooks and their deliveries."""

from __future__ import annotations

import uuid
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.etag import matched, tagged
from console.api.pagination import Listing
from console.api.schema import paged
from console.api.v1.serializers.webhooks import (
    DeliveryDetail,
    DeliverySerializer,
    WebhookChange,
    WebhookCreated,
    WebhookSecret,
    WebhookSerializer,
    WebhookWrite,
)
from console.api.views import ApiView
from registry.models import Webhook
from registry.selectors import webhooks as selectors
from registry.selectors.accounts import project_get
from registry.services import webhooks as services


class _WebhookView(ApiView):
    write_scope = "admin"

    def hook(self) -> Webhook:
        """Return the webhook of the address. Raises NotFound for those who do not manage it."""
        return selectors.webhook_get(self.actor, self.kwargs["webhook"])


def _document(hook: Webhook) -> dict[str, Any]:
    return dict(WebhookSerializer(hook).data)


class WebhookList(_WebhookView):
    """Webhooks that the caller manages."""

    listing = Listing(("project__slug", "name", "is_enabled"), orderings=("name", "created_at"))

    keeps_answers = False

    @extend_schema(
        summary="List webhooks",
        responses=paged(WebhookSerializer),
    )
    def get(self, request: Request) -> Response:
        rows = selectors.webhooks_visible_to(self.actor)
        return self.page(rows, WebhookSerializer)

    @extend_schema(summary="Create a webhook", request=WebhookWrite, responses={201: WebhookCreated})
    def post(self, request: Request) -> Response:
        given = self.read(WebhookWrite)
        if given["project"]:
            given["project"] = project_get(self.actor, given["project"])
        else:
            given["project"] = None
        hook, secret = services.webhook_create(**given, actor=self.actor)
        return Response({**WebhookSerializer(hook).data, "secret": secret}, status=201)


class WebhookItem(_WebhookView):
    """One webhook."""

    @extend_schema(summary="Read a webhook", responses=WebhookSerializer)
    def get(self, request: Request, webhook: uuid.UUID) -> Response:
        return tagged(request, _document(self.hook()))

    @extend_schema(
        summary="Change a webhook",
        description="Switching it off cancels the deliveries that wait.",
        request=WebhookChange,
        responses=WebhookSerializer,
    )
    def patch(self, request: Request, webhook: uuid.UUID) -> Response:
        with matched(request, self.hook(), _document) as hook:
            changed = services.webhook_update(webhook=hook, **self.read(WebhookChange), actor=self.actor)
        return tagged(request, _document(changed))

    @extend_schema(summary="Delete a webhook with its deliveries", responses={204: None})
    def delete(self, request: Request, webhook: uuid.UUID) -> Response:
        with matched(request, self.hook(), _document) as hook:
            services.webhook_delete(webhook=hook, actor=self.actor)
        return Response(status=204)


class WebhookRotate(_WebhookView):
    """A new signing secret."""

    checks_match = True
    keeps_answers = False

    @extend_schema(
        summary="Renew the signing secret",
        description="The one before it signs too for a day, so that the receiver can change over.",
        request=None,
        responses=WebhookSecret,
    )
    def post(self, request: Request, webhook: uuid.UUID) -> Response:
        with matched(request, self.hook(), _document) as hook:
            secret = services.webhook_rotate_secret(webhook=hook, actor=self.actor)
        hook.refresh_from_db(fields=["previous_secret_until"])
        document = {"secret": secret, "previous_secret_until": hook.previous_secret_until}
        return Response(WebhookSecret(document).data)


class WebhookTest(_WebhookView):
    """A test event."""

    @extend_schema(
        summary="Send a test event",
        description="Also to a webhook that is switched off. Read the delivery to see how it went.",
        request=None,
        responses={201: DeliverySerializer},
    )
    def post(self, request: Request, webhook: uuid.UUID) -> Response:
        delivery = services.webhook_test(webhook=self.hook(), actor=self.actor)
        return Response(DeliverySerializer(delivery).data, status=201)


class DeliveryList(_WebhookView):
    """What was sent, or waits to be."""

    listing = Listing(("state", "event__type"))

    @extend_schema(
        summary="List deliveries",
        responses=paged(DeliverySerializer),
    )
    def get(self, request: Request, webhook: uuid.UUID) -> Response:
        rows = selectors.deliveries_of(self.hook())
        return self.page(rows, DeliverySerializer)


class DeliveryItem(_WebhookView):
    """One delivery with every attempt."""

    @extend_schema(summary="Read a delivery", responses=DeliveryDetail)
    def get(self, request: Request, webhook: uuid.UUID, delivery: uuid.UUID) -> Response:
        row = selectors.delivery_get(self.hook(), delivery)
        return tagged(request, DeliveryDetail(row).data)


class DeliveryReplay(_WebhookView):
    """The same event once more."""

    @extend_schema(
        summary="Deliver an event again",
        description="As a new delivery, with the same webhook-id and body.",
        request=None,
        responses={201: DeliverySerializer},
    )
    def post(self, request: Request, webhook: uuid.UUID, delivery: uuid.UUID) -> Response:
        row = selectors.delivery_get(self.hook(), delivery)
        again = services.delivery_replay(delivery=row, actor=self.actor)
        return Response(DeliverySerializer(again).data, status=201)
