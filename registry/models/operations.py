"""Long work that API users see: progress, log, result, cancel, and a lease instead of broker redelivery."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from registry.models.accounts import Project
from registry.models.base import Row


class OperationState(models.TextChoices):
    """Life of an operation."""

    PENDING = "pending", _("Pending")
    RUNNING = "running", _("Running")
    SUCCEEDED = "succeeded", _("Succeeded")
    FAILED = "failed", _("Failed")
    CANCELLED = "cancelled", _("Cancelled")


class OperationQueue(models.TextChoices):
    """Which worker takes it."""

    CONTROL = "control", _("Control")
    INTERACTIVE = "interactive", _("Interactive")
    JOBS = "jobs", _("Jobs")


class Operation(Row):
    """One piece of long work. ``lease_until`` in the past means that nobody works on it: beat enqueues it again.

    kinds: ``validate_version`` (subject version), ``deploy`` (subject deployment; finished by reconcile),
    ``infer`` (subject deployment; params hold the request, result the answer, kept an hour), ``bench_model`` (subject
    version; params hold node, config and grid, result the id of the measurement), ``node_logs`` (subject node) and
    ``deployment_logs`` (subject deployment; result the lines by node, kept an hour).
    """

    kind = models.CharField(max_length=32)
    queue = models.CharField(max_length=16, choices=OperationQueue)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, blank=True, related_name="operations")
    subject_type = models.CharField(max_length=32)
    subject_id = models.UUIDField()
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    state = models.CharField(max_length=16, choices=OperationState, default=OperationState.PENDING)
    params = models.JSONField(default=dict, blank=True)
    progress_percent = models.PositiveSmallIntegerField(default=0)
    message = models.TextField(blank=True)
    log = models.TextField(blank=True)
    result = models.JSONField(null=True, blank=True)
    error = models.JSONField(null=True, blank=True)
    cancel_requested = models.BooleanField(default=False)
    attempts = models.PositiveSmallIntegerField(default=0)
    lease_owner = models.CharField(max_length=100, blank=True)
    lease_until = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["state", "lease_until"], name="operation_leases"),
            models.Index(fields=["-created_at", "-id"], name="operation_by_age"),
            models.Index(fields=["subject_type", "subject_id", "-created_at"], name="operation_subject"),
        ]
