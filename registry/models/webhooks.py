"""Outgoing webhooks: who wants which events, what happened, and every attempt to say so."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from registry.models.accounts import Project
from registry.models.base import Row


class WebhookFormat(models.TextChoices):
    """What a receiver understands."""

    STANDARD = "standard", _("JSON (Standard Webhooks)")
    SLACK = "slack", _("Slack message")


class Webhook(Row):
    """A receiver of events of one project, or (``project`` null) of the site.

    ``events`` are patterns (registry.domain.webhooks). The address may hold a secret, as Slack's do, so it is sealed
    and only ``origin`` is shown. After a rotation ``previous_secret_sealed`` signs too until ``previous_secret_until``.
    ``failures`` counts failed attempts in a row; nothing is sent before ``resting_until``.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, blank=True, related_name="webhooks")
    name = models.CharField(max_length=100)
    origin = models.CharField(max_length=300)
    url_sealed = models.TextField()
    events = models.JSONField()
    format = models.CharField(max_length=16, choices=WebhookFormat, default=WebhookFormat.STANDARD)
    secret_sealed = models.TextField()
    previous_secret_sealed = models.TextField(blank=True)
    previous_secret_until = models.DateTimeField(null=True, blank=True)
    is_enabled = models.BooleanField(default=True)
    disabled_reason = models.TextField(blank=True)
    failures = models.PositiveIntegerField(default=0)
    failing_since = models.DateTimeField(null=True, blank=True)
    resting_until = models.DateTimeField(default=timezone.now)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], name="webhook_name_once", nulls_distinct=False)
        ]

    def __str__(self) -> str:
        return self.name


class WebhookEvent(Row):
    """Something that happened and that somebody wants to hear of. ``payload`` is what receivers get, never changed."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    type = models.CharField(max_length=64)
    payload = models.JSONField()

    def __str__(self) -> str:
        return self.type


class DeliveryState(models.TextChoices):
    """Life of a delivery."""

    PENDING = "pending", _("Pending")
    DELIVERED = "delivered", _("Delivered")
    FAILED = "failed", _("Failed")
    CANCELLED = "cancelled", _("Cancelled")


class WebhookDelivery(Row):
    """One event for one receiver. Nobody may try before ``due_at``; who tries moves it on: that is the lease."""

    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries")
    event = models.ForeignKey(WebhookEvent, on_delete=models.CASCADE, related_name="deliveries")
    replay_of = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, blank=True, related_name="replays")
    state = models.CharField(max_length=16, choices=DeliveryState, default=DeliveryState.PENDING)
    attempts = models.PositiveSmallIntegerField(default=0)
    due_at = models.DateTimeField(default=timezone.now)
    lease_owner = models.CharField(max_length=100, blank=True)
    last_status = models.PositiveSmallIntegerField(null=True, blank=True)
    last_error = models.TextField(blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["webhook", "due_at"], condition=Q(state=DeliveryState.PENDING), name="delivery_due"),
            models.Index(fields=["webhook", "-created_at", "-id"], name="delivery_by_age"),
        ]

    def __str__(self) -> str:
        return f"{self.event.type} to {self.webhook.name}"


class WebhookAttempt(Row):
    """One request that was sent, or could not be. ``answer`` is the beginning of what came back."""

    delivery = models.ForeignKey(WebhookDelivery, on_delete=models.CASCADE, related_name="log")
    number = models.PositiveSmallIntegerField()
    seconds = models.FloatField()
    status = models.PositiveSmallIntegerField(null=True, blank=True)
    error = models.TextField(blank=True)
    answer = models.TextField(blank=True)
