"""Tokens as JSON: everything but their secrets."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from registry.domain.api_keys import MAX_NETWORKS, MAX_OVERLAP, SCOPES
from registry.models import ApiToken

_MOST_HOURS = int(MAX_OVERLAP.total_seconds() // 3600)


def _networks(**options: Any) -> serializers.ListField:
    return serializers.ListField(child=serializers.CharField(max_length=60), max_length=MAX_NETWORKS, **options)


class TokenSerializer(serializers.ModelSerializer[ApiToken]):
    """A token without its secret. ``public_id`` begins its text; until ``previous_until`` the one before works too."""

    owner = serializers.CharField(source="owner.username", read_only=True)
    project = serializers.CharField(source="project.slug", read_only=True, allow_null=True, default=None)
    scopes = serializers.ListField(child=serializers.CharField(), read_only=True)
    allowed_networks = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = ApiToken
        fields = [
            "id",
            "public_id",
            "name",
            "owner",
            "project",
            "scopes",
            "allowed_networks",
            "created_at",
            "expires_at",
            "last_used_at",
            "last_used_ip",
            "rotated_at",
            "previous_public_id",
            "previous_until",
            "previous_used_at",
            "revoked_at",
        ]


class TokenCreated(TokenSerializer):
    """A token with its new secret, shown only this once."""

    token = serializers.CharField(read_only=True)

    class Meta(TokenSerializer.Meta):
        fields = [*TokenSerializer.Meta.fields, "token"]


class TokenWrite(serializers.Serializer[Any]):
    """A new token; ``owner`` other than oneself needs a site administrator and a service account.

    ``allowed_networks``: from where it may be used, as 10.1.0.0/16; none: from everywhere.
    """

    name = serializers.CharField(max_length=200)
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=SCOPES), min_length=1)
    project = serializers.SlugField(required=False, allow_null=True, default=None)
    owner = serializers.CharField(required=False, allow_blank=True, default="")
    expires_at = serializers.DateTimeField(required=False, allow_null=True, default=None)
    allowed_networks = _networks(required=False, default=list)


class TokenChange(serializers.Serializer[Any]):
    """What is to change; the rest stays."""

    name = serializers.CharField(max_length=200, required=False)
    allowed_networks = _networks(required=False)
    expires_at = serializers.DateTimeField(required=False, allow_null=True)


class TokenRotation(serializers.Serializer[Any]):
    """How long the present secret works beside the new one, and possibly another end of the token."""

    overlap_hours = serializers.IntegerField(min_value=0, max_value=_MOST_HOURS, default=24)
    expires_at = serializers.DateTimeField(required=False, allow_null=True)
