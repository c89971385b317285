"""Sets of declarative files as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from registry.models import ApplySet
from registry.services.apply_sets import MAX_MEMBERS


class MemberOfSet(serializers.Serializer[Any]):
    """One thing that a set owns."""

    kind = serializers.CharField(max_length=40)
    name = serializers.CharField(max_length=300)


class ApplySetSerializer(serializers.ModelSerializer[ApplySet]):
    """A set and what it owns; ``project`` null: of the site."""

    project = serializers.CharField(source="project.slug", read_only=True, default=None)
    members = MemberOfSet(many=True, read_only=True)
    applied_by = serializers.CharField(source="applied_by.username", read_only=True, default=None)

    class Meta:
        model = ApplySet
        fields = ["name", "project", "members", "applied_by", "applied_at"]


class ApplySetWrite(serializers.Serializer[Any]):
    """What the set owns from now on."""

    members = serializers.ListField(child=MemberOfSet(), max_length=MAX_MEMBERS)
