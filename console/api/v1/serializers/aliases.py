"""Aliases as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from console.api.v1.serializers.deployments import VersionReference
from registry.domain.aliases import LATEST
from registry.models import Alias


class AliasSerializer(serializers.ModelSerializer[Alias]):
    """A name and the version that it points at. ``is_computed``: it follows the newest ready version by itself."""

    version = serializers.IntegerField(source="version.number", read_only=True)
    state = serializers.CharField(source="version.state", read_only=True)
    is_computed = serializers.SerializerMethodField()
    moved_by = serializers.CharField(source="moved_by.username", read_only=True)

    class Meta:
        model = Alias
        fields = ["name", "version", "version_id", "state", "is_protected", "is_computed", "moved_by", "moved_at"]

    def get_is_computed(self, alias: Alias) -> bool:
        """Return whether nobody sets it."""
        return alias.name == LATEST


class AliasWrite(serializers.Serializer[Any]):
    """Where the alias shall point: a number, or another alias. ``is_protected`` left out stays as it is."""

    version = VersionReference()
    is_protected = serializers.BooleanField(required=False, allow_null=True, default=None)
    comment = serializers.CharField(required=False, allow_blank=True, default="", max_length=500)
