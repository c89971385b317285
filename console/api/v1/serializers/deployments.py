"""Deployments, plans and rollouts as JSON."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from registry.models import Deployment, Rollout, Route


class RouteSerializer(serializers.ModelSerializer[Route]):
    """One unit's part."""

    version = serializers.IntegerField(source="version.number", read_only=True)
    config = serializers.IntegerField(source="config.number", read_only=True)

    class Meta:
        model = Route
        fields = ["unit", "version", "config", "role", "weight", "sample_percent"]


class DeploymentSerializer(serializers.ModelSerializer[Deployment]):
    """A deployment in a list."""

    project = serializers.CharField(source="project.slug", read_only=True)
    model = serializers.CharField(source="model.slug", read_only=True)
    fleet = serializers.CharField(source="fleet.slug", read_only=True)
    environment = serializers.CharField(source="fleet.environment.slug", read_only=True)

    class Meta:
        model = Deployment
        fields = [
            "id",
            "project",
            "model",
            "fleet",
            "environment",
            "served_name",
            "spec",
            "generation",
            "observed_generation",
            "sync",
            "sync_reason",
            "health",
            "health_reason",
            "created_at",
        ]


class UnitStatusSerializer(serializers.Serializer[Any]):
    """One unit on one node."""

    unit = serializers.CharField()
    version = serializers.IntegerField()
    config = serializers.IntegerField()
    role = serializers.CharField()
    weight = serializers.IntegerField()
    routed_weight = serializers.IntegerField()
    state = serializers.CharField()
    reason = serializers.CharField()
    percent = serializers.IntegerField()
    memory_bytes = serializers.IntegerField()
    load_seconds = serializers.FloatField()
    is_wanted = serializers.BooleanField()


class NodeStatusSerializer(serializers.Serializer[Any]):
    """A node's part in a deployment."""

    node_id = serializers.UUIDField()
    name = serializers.CharField()
    state = serializers.CharField()
    is_reachable = serializers.BooleanField()
    is_current = serializers.BooleanField()
    age_seconds = serializers.FloatField(allow_null=True)
    health = serializers.CharField()
    reason = serializers.CharField()
    units = UnitStatusSerializer(many=True)


class RolloutSerializer(serializers.ModelSerializer[Rollout]):
    """One change of a deployment."""

    created_by = serializers.CharField(source="created_by.username", read_only=True)

    class Meta:
        model = Rollout
        fields = [
            "id",
            "deployment",
            "kind",
            "spec_from",
            "spec_to",
            "generation",
            "phase",
            "phase_reason",
            "approval",
            "operation",
            "created_by",
            "created_at",
            "resumed_at",
            "finished_at",
        ]


class RolloutReason(serializers.Serializer[Any]):
    """Why, in a sentence that is shown with the rollout."""

    reason = serializers.CharField(required=False, allow_blank=True, default="", max_length=500)


class DeploymentStatusSerializer(serializers.Serializer[Any]):
    """What a deployment does now, from the newest observations."""

    deployment = DeploymentSerializer()
    sync = serializers.CharField()
    sync_reason = serializers.CharField()
    health = serializers.CharField()
    health_reason = serializers.CharField()
    why_not_serving = serializers.CharField()
    routes = RouteSerializer(many=True)
    nodes = NodeStatusSerializer(many=True)
    rollout = RolloutSerializer(allow_null=True)
    last_rollout = RolloutSerializer(allow_null=True)
    open_approval = serializers.UUIDField(source="open_approval.id", allow_null=True, default=None)
    previous_label = serializers.CharField()


@extend_schema_field({"oneOf": [{"type": "integer", "minimum": 1}, {"type": "string"}]})
class VersionReference(serializers.Field[int | str, Any, Any, Any]):
    """A version by number, or by alias as text."""

    def to_internal_value(self, data: Any) -> int | str:
        """Return a number or a text."""
        if isinstance(data, bool) or not isinstance(data, int | str) or not data or len(str(data)) > 36:
            raise serializers.ValidationError(_("Name a version by its number or an alias."))
        return data


class PlanWrite(serializers.Serializer[Any]):
    """A wanted spec: see registry.domain.plans.DeploymentSpec. An empty list of routes takes everything off.

    A route names its version by number or by alias; what is stored is the number.
    """

    spec = serializers.DictField()

    def validate_spec(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Refuse a spec that forgets its routes: it would take everything off."""
        if "routes" not in spec:
            raise serializers.ValidationError(_("Name the routes."))
        return spec


class ChangeWrite(PlanWrite):
    """A wanted spec of a model on a fleet."""

    model = serializers.CharField(max_length=128)
    fleet = serializers.SlugField(max_length=63)
    comment = serializers.CharField(required=False, allow_blank=True, default="", max_length=2000)


class TrafficWrite(serializers.Serializer[Any]):
    """New weights in percent, by version number, unit id or alias."""

    weights = serializers.DictField(child=serializers.IntegerField(min_value=0, max_value=100), allow_empty=False)


class InferWrite(serializers.Serializer[Any]):
    """One prediction to try: ``inputs`` is the list of tensors of a v2 inference request."""

    inputs = serializers.ListField(child=serializers.DictField(), min_length=1)
    version = VersionReference(required=False, allow_null=True, default=None)
    unit = serializers.CharField(required=False, allow_blank=True, default="")
    parameters = serializers.DictField(required=False)
    outputs = serializers.ListField(child=serializers.DictField(), required=False)


class ChangeOutcomeSerializer(serializers.Serializer[Any]):
    """What came of a wish: an approval request to wait for, or a rollout with its operation; neither: no change."""

    deployment = serializers.UUIDField(source="deployment.id")
    plan_digest = serializers.CharField()
    approval = serializers.UUIDField(source="approval.id", allow_null=True, default=None)
    rollout = serializers.UUIDField(source="rollout.id", allow_null=True, default=None)
    operation = serializers.UUIDField(source="operation.id", allow_null=True, default=None)
