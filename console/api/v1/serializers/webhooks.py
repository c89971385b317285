"""Webhooks, their deliveries and attempts as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from registry.domain.addresses import MAX_URL
from registry.domain.webhooks import message_id
from registry.models import Webhook, WebhookAttempt, WebhookDelivery, WebhookFormat


class WebhookSerializer(serializers.ModelSerializer[Webhook]):
    """A webhook. Of its address only ``origin`` is shown, because the rest may be a secret."""

    project = serializers.CharField(source="project.slug", read_only=True, allow_null=True, default=None)
    events = serializers.ListField(child=serializers.CharField(), read_only=True)
    created_by = serializers.CharField(source="created_by.username", read_only=True, allow_null=True, default=None)

    class Meta:
        model = Webhook
        fields = [
            "id",
            "project",
            "name",
            "origin",
            "events",
            "format",
            "is_enabled",
            "disabled_reason",
            "failures",
            "failing_since",
            "previous_secret_until",
            "created_by",
            "created_at",
        ]


class WebhookCreated(WebhookSerializer):
    """A new webhook with its signing secret, shown only this once."""

    secret = serializers.CharField(read_only=True)

    class Meta(WebhookSerializer.Meta):
        fields = [*WebhookSerializer.Meta.fields, "secret"]


class WebhookSecret(serializers.Serializer[Any]):
    """A new signing secret, shown only this once; the one before it signs too until then."""

    secret = serializers.CharField()
    previous_secret_until = serializers.DateTimeField()


class WebhookWrite(serializers.Serializer[Any]):
    """A new webhook; without ``project`` it hears of what is not in a project (site administrators)."""

    project = serializers.SlugField(required=False, allow_null=True, default=None)
    name = serializers.CharField(max_length=100)
    url = serializers.CharField(max_length=MAX_URL)
    events = serializers.ListField(child=serializers.CharField(max_length=64), min_length=1, max_length=100)
    format = serializers.ChoiceField(choices=WebhookFormat.choices, default=WebhookFormat.STANDARD.value)


class WebhookChange(serializers.Serializer[Any]):
    """What is to change; the rest stays."""

    name = serializers.CharField(max_length=100, required=False)
    url = serializers.CharField(max_length=MAX_URL, required=False)
    events = serializers.ListField(
        child=serializers.CharField(max_length=64), min_length=1, max_length=100, required=False
    )
    format = serializers.ChoiceField(choices=WebhookFormat.choices, required=False)
    is_enabled = serializers.BooleanField(required=False)


class DeliverySerializer(serializers.ModelSerializer[WebhookDelivery]):
    """One event for one webhook. ``due_at``: when it is tried next; ``message_id``: the header ``webhook-id``."""

    event = serializers.CharField(source="event.type", read_only=True)
    message_id = serializers.SerializerMethodField()

    class Meta:
        model = WebhookDelivery
        fields = [
            "id",
            "event",
            "message_id",
            "state",
            "attempts",
            "due_at",
            "last_status",
            "last_error",
            "replay_of",
            "created_at",
            "finished_at",
        ]

    def get_message_id(self, row: WebhookDelivery) -> str:
        return message_id(row.event_id)


class AttemptSerializer(serializers.ModelSerializer[WebhookAttempt]):
    """One request. ``answer`` is the beginning of what came back; without ``status`` nothing did."""

    class Meta:
        model = WebhookAttempt
        fields = ["number", "created_at", "seconds", "status", "error", "answer"]


class DeliveryDetail(DeliverySerializer):
    """A delivery with what is sent and every attempt."""

    payload = serializers.JSONField(source="event.payload", read_only=True)
    log = AttemptSerializer(many=True, read_only=True)

    class Meta(DeliverySerializer.Meta):
        fields = [*DeliverySerializer.Meta.fields, "payload", "log"]
