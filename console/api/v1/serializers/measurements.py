"""Measurements of versions as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from registry.domain.measurements import DEFAULT_SECONDS
from registry.models import VersionMeasurement


class CellSerializer(serializers.Serializer[Any]):
    """One combination of batch size and instance count. Milliseconds; without requests, ``error`` says why."""

    batch = serializers.IntegerField()
    instances = serializers.IntegerField()
    in_flight = serializers.IntegerField()
    load_seconds = serializers.FloatField()
    memory_bytes = serializers.IntegerField()
    requests = serializers.IntegerField()
    failures = serializers.IntegerField()
    requests_per_second = serializers.FloatField()
    rows_per_second = serializers.FloatField()
    latency_p50_ms = serializers.FloatField()
    latency_p99_ms = serializers.FloatField()
    compute_ms = serializers.FloatField()
    queue_ms = serializers.FloatField()
    error = serializers.CharField(allow_blank=True)


class MeasurementSerializer(serializers.ModelSerializer[VersionMeasurement]):
    """What one version did on one node."""

    model = serializers.CharField(source="version.model.slug", read_only=True)
    version = serializers.IntegerField(source="version.number", read_only=True)
    node = serializers.CharField(source="node_name", read_only=True)
    config = serializers.IntegerField(source="config_number", read_only=True)
    created_by = serializers.CharField(source="created_by.username", read_only=True, allow_null=True, default=None)
    cells = CellSerializer(many=True, read_only=True)

    class Meta:
        model = VersionMeasurement
        fields = [
            "id",
            "model",
            "version",
            "node",
            "hardware",
            "config",
            "config_digest",
            "grid",
            "cells",
            "operation",
            "created_by",
            "created_at",
        ]


class MeasurementWrite(serializers.Serializer[Any]):
    """What to measure where. ``node`` is a name or an id; without ``config`` the newest, without ``batch`` the usual.

    ``shapes`` gives the sizes after the batch dimension of inputs that leave theirs open.
    """

    node = serializers.CharField(max_length=100)
    config = serializers.IntegerField(required=False, allow_null=True, default=None, min_value=1)
    batch = serializers.ListField(child=serializers.IntegerField(), required=False, default=list, max_length=24)
    instances = serializers.ListField(
        child=serializers.IntegerField(), required=False, default=lambda: [1], min_length=1, max_length=24
    )
    seconds = serializers.FloatField(required=False, default=DEFAULT_SECONDS)
    shapes = serializers.DictField(
        child=serializers.ListField(child=serializers.IntegerField(), max_length=16), required=False, default=dict
    )
