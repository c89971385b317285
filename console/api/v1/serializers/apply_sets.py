"""Sets of declarative files as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from registry.models import ApplySet
from registry.selectors.apply_sets import OwnedThing, Touched
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


class ThingsQuery(serializers.Serializer[Any]):
    """Which things of a set: from the one at ``start`` on, in the order in which the set has them."""

    start = serializers.IntegerField(min_value=0, max_value=MAX_MEMBERS, default=0)


class TouchedSerializer(serializers.Serializer[Touched]):
    """The last change of a thing since the set was applied."""

    by = serializers.CharField()
    action = serializers.CharField()
    at = serializers.DateTimeField()


class ThingSerializer(serializers.Serializer[OwnedThing]):
    """One thing of a set as it is now."""

    kind = serializers.CharField()
    name = serializers.CharField()
    standing = serializers.ChoiceField(["applied", "touched", "gone"])
    touched = TouchedSerializer(allow_null=True)
    also_in = serializers.ListField(child=serializers.CharField(), help_text="Other sets that own it.")
    may_be_pruned = serializers.BooleanField(help_text="`apply --prune` deletes it once the files leave it out.")
    if_pruned = serializers.CharField(help_text="What that would do, in a sentence.")


class ThingsSerializer(serializers.Serializer[Any]):
    """A part of a set; ``next`` is the start of the next one."""

    count = serializers.IntegerField()
    next = serializers.IntegerField(allow_null=True)
    things = ThingSerializer(many=True)
