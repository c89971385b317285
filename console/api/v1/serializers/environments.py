"""Environments and fleets as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from registry.domain.protection import MAX_APPROVALS, MAX_WAIT_MINUTES
from registry.domain.windows import EFFECTS, MAX_MINUTES
from registry.models import Environment, Fleet
from registry.services.environments import MAX_PEOPLE, MAX_VALID_HOURS

_Labels = serializers.DictField


def _names() -> serializers.ListField:
    return serializers.ListField(child=serializers.CharField(max_length=150), max_length=MAX_PEOPLE, required=False)


class RequiredCheckSerializer(serializers.Serializer[Any]):
    """A check that every version of a plan must have passed; ``allow_warn`` takes a warning for a pass."""

    kind = serializers.CharField(max_length=32)
    allow_warn = serializers.BooleanField(default=False)


class WindowSerializer(serializers.Serializer[Any]):
    """When changes may start (allow) or may not (deny): each time of ``cron`` in ``time_zone``, for the duration."""

    name = serializers.CharField(max_length=100, required=False, allow_blank=True, default="")
    effect = serializers.ChoiceField(choices=EFFECTS)
    cron = serializers.CharField(max_length=100)
    duration_minutes = serializers.IntegerField(min_value=1, max_value=MAX_MINUTES)
    time_zone = serializers.CharField(max_length=100, default="UTC")


class EnvironmentSerializer(serializers.ModelSerializer[Environment]):
    """An environment and its protection; people by user name."""

    approvers: Any = serializers.SlugRelatedField("username", many=True, read_only=True)
    bypassers: Any = serializers.SlugRelatedField("username", many=True, read_only=True)
    required_checks = RequiredCheckSerializer(many=True, read_only=True)
    windows = WindowSerializer(many=True, read_only=True)

    class Meta:
        model = Environment
        fields = [
            "id",
            "slug",
            "name",
            "position",
            "requires_approval",
            "required_approvals",
            "approval_valid_hours",
            "approvers",
            "approver_role",
            "required_checks",
            "wait_minutes",
            "windows",
            "admins_bypass",
            "bypassers",
        ]


class EnvironmentWrite(serializers.Serializer[Any]):
    """A new environment."""

    slug = serializers.SlugField(max_length=63)
    name = serializers.CharField(max_length=100)
    requires_approval = serializers.BooleanField(default=True)
    required_approvals = serializers.IntegerField(default=1, min_value=1, max_value=10)


class EnvironmentChange(serializers.Serializer[Any]):
    """What changes of an environment; what is not given stays."""

    name = serializers.CharField(max_length=100, required=False)
    position = serializers.IntegerField(min_value=0, max_value=1000, required=False)
    requires_approval = serializers.BooleanField(required=False)
    required_approvals = serializers.IntegerField(min_value=1, max_value=MAX_APPROVALS, required=False)
    approval_valid_hours = serializers.IntegerField(min_value=1, max_value=MAX_VALID_HOURS, required=False)
    approvers = _names()
    approver_role = serializers.ChoiceField(
        choices=["", "approver", "operator", "admin"], allow_blank=True, required=False
    )
    required_checks = RequiredCheckSerializer(many=True, required=False)
    wait_minutes = serializers.IntegerField(min_value=0, max_value=MAX_WAIT_MINUTES, required=False)
    windows = WindowSerializer(many=True, required=False)
    admins_bypass = serializers.BooleanField(required=False)
    bypassers = _names()


class OpeningSerializer(serializers.Serializer[Any]):
    """Whether changes may start by the windows alone; ``opens_at`` null: not in the 400 days after ``at``."""

    at = serializers.DateTimeField()
    is_open = serializers.BooleanField()
    opens_at = serializers.DateTimeField(allow_null=True)
    closed_by = serializers.CharField(allow_blank=True)


class FleetSerializer(serializers.ModelSerializer[Fleet]):
    """A fleet."""

    environment = serializers.CharField(source="environment.slug", read_only=True)

    class Meta:
        model = Fleet
        fields = ["id", "slug", "name", "environment", "selector", "created_at"]


class FleetWrite(serializers.Serializer[Any]):
    """A new fleet: all nodes that carry every label of the selector."""

    slug = serializers.SlugField(max_length=63)
    name = serializers.CharField(max_length=100)
    environment = serializers.SlugField()
    selector = _Labels(child=serializers.CharField(), required=False, default=dict)


class FleetChange(serializers.Serializer[Any]):
    """What changes of a fleet; what is not given stays."""

    name = serializers.CharField(max_length=100, required=False)
    selector = _Labels(child=serializers.CharField(), required=False)
