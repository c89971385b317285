"""Environments, fleets and serving nodes."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from registry.models.base import Row


class Environment(Row):
    """development, staging, production...: protection rules for what is deployed there.

    ``required_checks`` and ``windows`` are lists of registry.domain.protection.RequiredCheck and
    registry.domain.windows.Window as JSON. With neither ``approvers`` nor ``approver_role`` everybody's approval
    counts who has the role to approve. ``bypassers`` (and site administrators, if ``admins_bypass``) may start a change
    whatever the rules say.
    """

    slug = models.SlugField(max_length=63, unique=True)
    name = models.CharField(max_length=100)
    position = models.PositiveSmallIntegerField(default=0)
    requires_approval = models.BooleanField(default=True)
    required_approvals = models.PositiveSmallIntegerField(default=1)
    approval_valid_hours = models.PositiveIntegerField(default=24 * 7)
    approvers = models.ManyToManyField(settings.AUTH_USER_MODEL, blank=True, related_name="+")
    approver_role = models.CharField(max_length=16, blank=True)
    required_checks = models.JSONField(default=list, blank=True)
    wait_minutes = models.PositiveIntegerField(default=0)
    windows = models.JSONField(default=list, blank=True)
    admins_bypass = models.BooleanField(default=False)
    bypassers = models.ManyToManyField(settings.AUTH_USER_MODEL, blank=True, related_name="+")

    def __str__(self) -> str:
        return self.slug


class Fleet(Row):
    """Nodes of one environment: those that carry every label of ``selector``. An empty selector means all nodes."""

    slug = models.SlugField(max_length=63, unique=True)
    name = models.CharField(max_length=100)
    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="fleets")
    selector = models.JSONField(default=dict, blank=True)

    def __str__(self) -> str:
        return self.slug


class NodeKind(models.TextChoices):
    """How a node is driven."""

    FLOTILLA = "flotilla", _("Flotilla")
    TRITON = "triton", _("Triton")


class NodeState(models.TextChoices):
    """Life of a node. Reachability is derived from ``lease_until``, never stored here."""

    JOINING = "joining", _("Joining")
    READY = "ready", _("Ready")
    DRAINING = "draining", _("Draining")
    DRAINED = "drained", _("Drained")
    RETIRED = "retired", _("Retired")


class ServingNode(Row):
    """One node process. ``endpoints`` maps http, grpc, metrics, admin to URLs.

    A node that is not schedulable keeps the deployments made before ``cordoned_at`` and gets no new ones.
    ``desired_generation`` rises in the transaction that changes anything this node should do.
    ``admin_secret_sealed`` is encrypted with a key of the data folder; ``token_sha256`` is the node's own identity.
    """

    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=16, choices=NodeKind, default=NodeKind.FLOTILLA)
    state = models.CharField(max_length=16, choices=NodeState, default=NodeState.JOINING)
    is_schedulable = models.BooleanField(default=True)
    cordoned_at = models.DateTimeField(null=True, blank=True)
    endpoints = models.JSONField(default=dict)
    labels = models.JSONField(default=dict, blank=True)
    inventory = models.JSONField(default=dict, blank=True)
    token_sha256 = models.CharField(max_length=64, blank=True)
    admin_secret_sealed = models.TextField(blank=True)
    epoch = models.PositiveIntegerField(default=1)
    desired_generation = models.PositiveBigIntegerField(default=0)
    drain_deadline_seconds = models.PositiveIntegerField(default=30)
    last_seen_at = models.DateTimeField(null=True, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    reachable_since = models.DateTimeField(null=True, blank=True)  # when the present or last lease began

    def __str__(self) -> str:
        return self.name


class JoinToken(Row):
    """A one-time secret with which a node joins. Only the SHA-256 is kept."""

    token_sha256 = models.CharField(max_length=64, unique=True)
    labels = models.JSONField(default=dict, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    used_by = models.ForeignKey(ServingNode, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")

    def __str__(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in sorted(self.labels.items())) or "no labels"


class NodeObservation(models.Model):
    """What a node said last (one row a node). ``units`` is the list of contract ObservedUnit as JSON."""

    node = models.OneToOneField(ServingNode, on_delete=models.CASCADE, primary_key=True, related_name="observation")
    epoch = models.PositiveIntegerField(default=0)
    generation_seen = models.PositiveBigIntegerField(default=0)
    generation_applied = models.PositiveBigIntegerField(default=0)
    sequence = models.PositiveBigIntegerField(default=0)
    units = models.JSONField(default=list)
    uptime_seconds = models.FloatField(default=0)
    draining = models.BooleanField(default=False)
    observed_at = models.DateTimeField()
    error = models.TextField(blank=True)
