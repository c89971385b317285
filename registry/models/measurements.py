"""Measurements of a version on a node, and the copies that nodes hold while they are made."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from registry.models.base import Row
from registry.models.catalog import ModelVersion
from registry.models.configs import ConfigRevision
from registry.models.fleet import ServingNode
from registry.models.operations import Operation


class ScratchUnit(Row):
    """A copy of a version that a node should hold for one operation, under a name that serves nobody.

    Part of the node's desired state: whoever makes, changes or deletes a row raises the node's generation in the same
    transaction. ``owner`` is the lease owner that put it there; the row goes when its operation has ended.
    """

    operation = models.OneToOneField(Operation, on_delete=models.PROTECT, related_name="scratch")
    node = models.ForeignKey(ServingNode, on_delete=models.PROTECT, related_name="scratch_units")
    version = models.ForeignKey(ModelVersion, on_delete=models.PROTECT, related_name="+")
    served_name = models.CharField(max_length=200)
    unit = models.CharField(max_length=200)
    config_body = models.JSONField()
    config_digest = models.CharField(max_length=64)
    owner = models.CharField(max_length=100)

    def __str__(self) -> str:
        return f"{self.unit} on {self.node.name}"


class VersionMeasurement(Row):
    """What one version did on one node. Kept with the version after node, config and operation are gone.

    ``grid`` is ``{"batch": [...], "instances": [...], "seconds": ..., "shapes": {...}}``, ``cells`` has one row
    for each of its combinations (registry.domain.measurements.Cell as JSON). ``hardware`` is what the node had then.
    """

    version = models.ForeignKey(ModelVersion, on_delete=models.CASCADE, related_name="measurements")
    operation = models.OneToOneField(Operation, on_delete=models.SET_NULL, null=True, related_name="+")
    node = models.ForeignKey(ServingNode, on_delete=models.SET_NULL, null=True, related_name="+")
    node_name = models.CharField(max_length=100)
    hardware = models.JSONField(default=dict)
    config = models.ForeignKey(ConfigRevision, on_delete=models.SET_NULL, null=True, related_name="+")
    config_number = models.PositiveIntegerField()
    config_digest = models.CharField(max_length=64)
    grid = models.JSONField()
    cells = models.JSONField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")

    class Meta:
        indexes = [models.Index(fields=["version", "-created_at"], name="measurement_by_age")]

    def __str__(self) -> str:
        return f"{self.version} on {self.node_name}"
