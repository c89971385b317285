"""Nodes and join tokens as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from registry.models import JoinToken

_Labels = serializers.DictField


class NodeSerializer(serializers.Serializer[Any]):
    """A node as workers saw it last (from a NodeRow); ``age_seconds`` is how long ago that was."""

    id = serializers.UUIDField(source="node.id")
    name = serializers.CharField(source="node.name")
    kind = serializers.CharField(source="node.kind")
    state = serializers.CharField(source="node.state")
    is_schedulable = serializers.BooleanField(source="node.is_schedulable")
    is_reachable = serializers.BooleanField()
    is_current = serializers.BooleanField()
    age_seconds = serializers.FloatField(allow_null=True)
    error = serializers.CharField()
    labels = serializers.DictField(source="node.labels")
    endpoints = serializers.DictField(source="node.endpoints")
    inventory = serializers.DictField(source="node.inventory")
    units_ready = serializers.IntegerField()
    units_failed = serializers.IntegerField()
    units_total = serializers.IntegerField()
    fleets = serializers.ListField(child=serializers.CharField())
    created_at = serializers.DateTimeField(source="node.created_at")


class JoinTokenSerializer(serializers.ModelSerializer[JoinToken]):
    """A join token without its secret."""

    class Meta:
        model = JoinToken
        fields = ["id", "labels", "created_at", "expires_at"]


class JoinTokenCreated(JoinTokenSerializer):
    """A new join token with its secret, shown only this once."""

    token = serializers.CharField(read_only=True)

    class Meta(JoinTokenSerializer.Meta):
        fields = [*JoinTokenSerializer.Meta.fields, "token"]


class JoinTokenWrite(serializers.Serializer[Any]):
    """A new join token; its node gets the labels."""

    labels = _Labels(child=serializers.CharField(), required=False, default=dict)
    valid_hours = serializers.IntegerField(default=24, min_value=1, max_value=24 * 30)


class DrainWrite(serializers.Serializer[Any]):
    """How long running requests may take."""

    deadline_seconds = serializers.IntegerField(default=30, min_value=0, max_value=86400)


class HelloWrite(serializers.Serializer[Any]):
    """What a node says about itself."""

    name = serializers.CharField(max_length=100)
    endpoints = serializers.DictField(child=serializers.CharField(allow_blank=True))
    admin_secret = serializers.CharField(max_length=500, write_only=True)
    inventory = serializers.DictField(required=False, default=dict)
    contract_version = serializers.IntegerField(min_value=1)


class JoinWrite(HelloWrite):
    """A node's request to join, with its one-time token."""

    token = serializers.CharField(max_length=500, write_only=True)
    kind = serializers.CharField(required=False, default="flotilla")


class NodeIdentity(serializers.Serializer[Any]):
    """Who the node is from now on; ``node_token`` is shown only this once."""

    node = serializers.UUIDField()
    node_token = serializers.CharField(required=False)
    epoch = serializers.IntegerField()
