"""Operations, audit events and series as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from registry.models import AuditEvent, Operation
from registry.selectors.metrics import METRICS
from registry.services.logs import MOST_LINES


class OperationSerializer(serializers.ModelSerializer[Operation]):
    """Long work."""

    project = serializers.CharField(source="project.slug", read_only=True, allow_null=True, default=None)
    actor = serializers.CharField(source="actor.username", read_only=True, allow_null=True, default=None)

    class Meta:
        model = Operation
        fields = [
            "id",
            "kind",
            "state",
            "project",
            "subject_type",
            "subject_id",
            "actor",
            "progress_percent",
            "message",
            "log",
            "result",
            "error",
            "cancel_requested",
            "attempts",
            "created_at",
            "started_at",
            "finished_at",
            "expires_at",
        ]


class LogsWrite(serializers.Serializer[Any]):
    """How many of the newest lines."""

    tail = serializers.IntegerField(default=200, min_value=1, max_value=MOST_LINES)


class AuditSerializer(serializers.ModelSerializer[AuditEvent]):
    """Who did what."""

    class Meta:
        model = AuditEvent
        fields = [
            "id",
            "created_at",
            "project_id",
            "actor_name",
            "actor_id",
            "token_id",
            "ip",
            "request_id",
            "action",
            "object_type",
            "object_id",
            "object_label",
            "before",
            "after",
        ]


class MetricsQuery(serializers.Serializer[Any]):
    """Which series: one or more metrics of a deployment, a fleet or a node, over a range.

    ``range_seconds`` counts back from ``end`` (default: now) unless ``start`` is given.
    """

    metric = serializers.CharField(help_text=", ".join(METRICS))
    by = serializers.ChoiceField(choices=["total", "version", "node"], default="total")
    deployment = serializers.UUIDField(required=False, allow_null=True, default=None)
    fleet = serializers.SlugField(required=False, allow_blank=True, default="")
    node = serializers.UUIDField(required=False, allow_null=True, default=None)
    version = serializers.CharField(required=False, allow_blank=True, default="", max_length=40)
    start = serializers.DateTimeField(required=False, allow_null=True, default=None)
    end = serializers.DateTimeField(required=False, allow_null=True, default=None)
    range_seconds = serializers.IntegerField(default=1800, min_value=10, max_value=400 * 86400)
    step_seconds = serializers.IntegerField(default=0, min_value=0, max_value=86400)


class LineSerializer(serializers.Serializer[Any]):
    """One line of a chart."""

    label = serializers.CharField()  # type: ignore[assignment]
    values = serializers.ListField(child=serializers.FloatField(allow_null=True))


class SeriesSerializer(serializers.Serializer[Any]):
    """Lines over common times (seconds since 1970)."""

    metric = serializers.CharField()
    unit = serializers.CharField()
    step_seconds = serializers.IntegerField()
    times = serializers.ListField(child=serializers.IntegerField())
    lines = LineSerializer(many=True)


class SeriesAnswer(serializers.Serializer[Any]):
    """One series per metric that was asked for."""

    series = SeriesSerializer(many=True)
