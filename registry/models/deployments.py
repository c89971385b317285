"""What should be served where, and how it changes."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from registry.models.accounts import ApiToken, Project
from registry.models.base import Row
from registry.models.catalog import ModelVersion, RegisteredModel
from registry.models.configs import ConfigRevision
from registry.models.fleet import Environment, Fleet


class SyncStatus(models.TextChoices):
    """Does what runs equal what is wanted?"""

    SYNCED = "synced", _("Synced")
    PROGRESSING = "progressing", _("Progressing")
    OUT_OF_SYNC = "out_of_sync", _("Out of sync")
    UNKNOWN = "unknown", _("Unknown")


class HealthStatus(models.TextChoices):
    """Does it work? A parent shows its worst child."""

    HEALTHY = "healthy", _("Healthy")
    PROGRESSING = "progressing", _("Progressing")
    DEGRADED = "degraded", _("Degraded")
    SUSPENDED = "suspended", _("Suspended")
    MISSING = "missing", _("Missing")
    UNKNOWN = "unknown", _("Unknown")


class Deployment(Row):
    """A registered model on a fleet: the wanted state (``spec``, ``routes``) and what is seen.

    ``spec`` is the applied plan as JSON, see registry.domain.plans.DeploymentSpec.
    """

    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="deployments")
    model = models.ForeignKey(RegisteredModel, on_delete=models.PROTECT, related_name="deployments")
    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="deployments")
    served_name = models.CharField(max_length=200)
    spec = models.JSONField(default=dict, blank=True)
    generation = models.PositiveBigIntegerField(default=0)
    observed_generation = models.PositiveBigIntegerField(default=0)
    sync = models.CharField(max_length=16, choices=SyncStatus, default=SyncStatus.UNKNOWN)
    sync_reason = models.TextField(blank=True)
    health = models.CharField(max_length=16, choices=HealthStatus, default=HealthStatus.MISSING)
    health_reason = models.TextField(blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["model", "fleet"], name="deployment_once"),
            models.UniqueConstraint(fields=["fleet", "served_name"], name="served_name_once"),
        ]

    def __str__(self) -> str:
        return f"{self.served_name} on {self.fleet.slug}"


class RouteRole(models.TextChoices):
    """Part a unit plays; values equal contract.states.RouteRole."""

    LIVE = "live", _("Live")
    CANARY = "canary", _("Canary")
    SHADOW = "shadow", _("Shadow")
    HELD = "held", _("Held")


class Route(Row):
    """One unit's part in a deployment. The unit is (served name, version, config digest)."""

    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="routes")
    version = models.ForeignKey(ModelVersion, on_delete=models.PROTECT, related_name="routes")
    config = models.ForeignKey(ConfigRevision, on_delete=models.PROTECT, related_name="routes")
    unit = models.CharField(max_length=100)
    role = models.CharField(max_length=16, choices=RouteRole, default=RouteRole.LIVE)
    weight = models.PositiveSmallIntegerField(default=100)
    sample_percent = models.FloatField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["deployment", "unit"], name="route_unit_once")]


class RolloutPhase(models.TextChoices):
    """Life of a rollout."""

    PENDING = "pending", _("Pending")
    PROGRESSING = "progressing", _("Progressing")
    PAUSED = "paused", _("Paused")
    VERIFYING = "verifying", _("Verifying")
    SUCCEEDED = "succeeded", _("Succeeded")
    ABORTING = "aborting", _("Aborting")
    ROLLED_BACK = "rolled_back", _("Rolled back")
    FAILED = "failed", _("Failed")
    SUPERSEDED = "superseded", _("Superseded")


ACTIVE_PHASES = ["pending", "progressing", "paused", "verifying", "aborting"]


class Rollout(Row):
    """One change of a deployment from spec A to spec B. Its deadline counts from ``resumed_at`` after a pause."""

    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="rollouts")
    kind = models.CharField(max_length=16, default="deploy")  # deploy, traffic, rollback
    spec_from = models.JSONField(default=dict)
    spec_to = models.JSONField(default=dict)
    generation = models.PositiveBigIntegerField()
    phase = models.CharField(max_length=16, choices=RolloutPhase, default=RolloutPhase.PENDING)
    phase_reason = models.TextField(blank=True)
    approval = models.ForeignKey(
        "ApprovalRequest", on_delete=models.SET_NULL, null=True, blank=True, related_name="rollouts"
    )
    operation = models.ForeignKey("Operation", on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    resumed_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["deployment"], condition=models.Q(phase__in=ACTIVE_PHASES), name="one_active_rollout"
            )
        ]
        indexes = [models.Index(fields=["deployment", "-created_at"], name="rollout_by_age")]

    def __str__(self) -> str:
        return str(self.deployment)


class ApprovalState(models.TextChoices):
    """Life of an approval request."""

    OPEN = "open", _("Open")
    APPROVED = "approved", _("Approved")
    REJECTED = "rejected", _("Rejected")
    WITHDRAWN = "withdrawn", _("Withdrawn")
    VOIDED = "voided", _("Voided")
    APPLIED = "applied", _("Applied")
    EXPIRED = "expired", _("Expired")


class ApprovalRequest(Row):
    """Asks that a plan may happen in an environment. ``plan`` is the digested document, ``spec`` the wanted spec.

    An approved one waits for its environment's timer and windows; at ``due_at`` (database time) it is looked at again.
    ``bypassed_by`` started it whatever the rules said, for ``bypass_reason``.
    """

    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="approvals")
    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="approvals")
    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="+")
    spec = models.JSONField()
    plan = models.JSONField()
    plan_digest = models.CharField(max_length=64)
    state = models.CharField(max_length=16, choices=ApprovalState, default=ApprovalState.OPEN)
    state_reason = models.TextField(blank=True)
    comment = models.TextField(blank=True)
    requester = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    requester_token = models.ForeignKey(ApiToken, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    expires_at = models.DateTimeField()
    applied_at = models.DateTimeField(null=True, blank=True)
    approved_at = models.DateTimeField(null=True, blank=True)
    due_at = models.DateTimeField(null=True, blank=True)
    bypassed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    bypass_reason = models.TextField(blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["deployment"], condition=models.Q(state__in=["open", "approved"]), name="one_waiting_approval"
            )
        ]
        indexes = [
            models.Index(fields=["project", "state"], name="approval_inbox"),
            models.Index(fields=["due_at"], condition=models.Q(state__in=["open", "approved"]), name="approval_due"),
        ]

    @property
    def starts_at(self) -> datetime | None:
        """When an approved one starts by itself. An open one is only looked at again then, which says nothing."""
        return self.due_at if self.state == ApprovalState.APPROVED else None

    def __str__(self) -> str:
        return f"{self.deployment}: plan {self.plan_digest[:12]}"


class ReviewDecision(models.TextChoices):
    """What a reviewer says."""

    APPROVE = "approve", _("Approve")
    REQUEST_CHANGES = "request_changes", _("Request changes")
    REJECT = "reject", _("Reject")
    COMMENT = "comment", _("Comment")


class Review(Row):
    """One person's decision on a request, bound to the plan digest that was read; a comment decides nothing."""

    request = models.ForeignKey(ApprovalRequest, on_delete=models.CASCADE, related_name="reviews")
    reviewer = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    decision = models.CharField(max_length=16, choices=ReviewDecision)
    comment = models.TextField(blank=True)
    plan_digest = models.CharField(max_length=64)
