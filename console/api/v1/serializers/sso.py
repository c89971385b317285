"""Providers of single sign-on, what their groups give, and tokens for provisioning as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from registry.models import GroupMapping, Role, ScimGroup, ScimToken, SignUp, SsoProvider
from registry.services.sso import SUBJECT_CLAIMS


class SsoProviderSerializer(serializers.ModelSerializer[SsoProvider]):
    """A provider without its secret."""

    class Meta:
        model = SsoProvider
        fields = [
            "id",
            "slug",
            "name",
            "issuer",
            "client_id",
            "subject_claim",
            "groups_claim",
            "scopes",
            "sign_up",
            "is_enabled",
            "created_at",
        ]


class SsoProviderWrite(serializers.Serializer[Any]):
    """A new provider. The secret is kept sealed and never shown again."""

    slug = serializers.SlugField(max_length=63)
    name = serializers.CharField(max_length=100)
    issuer = serializers.CharField(max_length=500)
    client_id = serializers.CharField(max_length=200)
    client_secret = serializers.CharField(max_length=1000, write_only=True)
    subject_claim = serializers.ChoiceField(choices=SUBJECT_CLAIMS, default="sub")
    groups_claim = serializers.CharField(max_length=100, required=False, allow_blank=True, default="groups")
    scopes = serializers.CharField(max_length=200, required=False, default="openid profile email")
    sign_up = serializers.ChoiceField(choices=SignUp.choices, default=SignUp.OFF.value)


class SsoProviderChange(serializers.Serializer[Any]):
    """What changes; what is left out stays. Short name and issuer never change."""

    name = serializers.CharField(max_length=100, required=False)
    client_id = serializers.CharField(max_length=200, required=False)
    client_secret = serializers.CharField(max_length=1000, required=False, write_only=True)
    groups_claim = serializers.CharField(max_length=100, required=False, allow_blank=True)
    scopes = serializers.CharField(max_length=200, required=False)
    sign_up = serializers.ChoiceField(choices=SignUp.choices, required=False)
    is_enabled = serializers.BooleanField(required=False)


class GroupMappingSerializer(serializers.ModelSerializer[GroupMapping]):
    """What a group gives; without a project on the site."""

    project = serializers.CharField(source="project.slug", read_only=True, default=None)

    class Meta:
        model = GroupMapping
        fields = ["id", "group", "project", "role", "created_at"]


class GroupMappingWrite(serializers.Serializer[Any]):
    """A new mapping; without a project the role is one of the site (operator, admin)."""

    group = serializers.CharField(max_length=200)
    project = serializers.SlugField(required=False, allow_null=True, default=None)
    role = serializers.ChoiceField(choices=Role.choices)


class ScimGroupSerializer(serializers.ModelSerializer[ScimGroup]):
    """A group that the provider keeps here; ``people`` is how many are in it."""

    people = serializers.IntegerField(read_only=True)

    class Meta:
        model = ScimGroup
        fields = ["id", "display_name", "external_id", "people", "created_at"]


class ScimTokenSerializer(serializers.ModelSerializer[ScimToken]):
    """A token for provisioning, without its secret."""

    provider = serializers.CharField(source="provider.slug", read_only=True, default=None)
    created_by = serializers.CharField(source="created_by.username", read_only=True, default=None)

    class Meta:
        model = ScimToken
        fields = ["id", "public_id", "name", "provider", "created_by", "created_at", "last_used_at", "revoked_at"]


class ScimTokenCreated(ScimTokenSerializer):
    """A new token with its secret, shown only this once."""

    token = serializers.CharField(read_only=True)

    class Meta(ScimTokenSerializer.Meta):
        fields = [*ScimTokenSerializer.Meta.fields, "token"]


class ScimTokenWrite(serializers.Serializer[Any]):
    """A new token. With ``provider`` the external ids of accounts are its subjects."""

    name = serializers.CharField(max_length=100)
    provider = serializers.SlugField(required=False, allow_null=True, default=None)
