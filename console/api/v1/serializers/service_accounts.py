"""Service accounts as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from console.api.v1.serializers.tokens import TokenSerializer
from registry.models import Membership, SiteRole, TrustRule, User


class ServiceAccountSerializer(serializers.ModelSerializer[User]):
    """An account of a machine, with how many usable tokens and memberships it has."""

    tokens_active = serializers.IntegerField(read_only=True)
    projects_in = serializers.IntegerField(read_only=True)
    last_used_at = serializers.DateTimeField(read_only=True, allow_null=True)

    class Meta:
        model = User
        fields = [
            "id",
            "username",
            "site_role",
            "is_active",
            "date_joined",
            "tokens_active",
            "projects_in",
            "last_used_at",
        ]


class _AccountMembership(serializers.ModelSerializer[Membership]):
    """Its role in a project."""

    project = serializers.CharField(source="project.slug", read_only=True)

    class Meta:
        model = Membership
        fields = ["project", "role", "created_at"]


class _AccountRule(serializers.ModelSerializer[TrustRule]):
    """A rule by which CI jobs act as it."""

    project = serializers.CharField(source="project.slug", read_only=True)
    issuer = serializers.CharField(source="issuer.slug", read_only=True)

    class Meta:
        model = TrustRule
        fields = ["id", "project", "name", "issuer", "repository", "is_enabled"]


class AccountReach(serializers.Serializer[Any]):
    """What it can do, and what it has begun."""

    tokens = TokenSerializer(many=True)
    memberships = _AccountMembership(many=True)
    trust_rules = _AccountRule(many=True)
    open_approvals = serializers.IntegerField()
    open_uploads = serializers.IntegerField()


class ServiceAccountDetail(serializers.Serializer[Any]):
    """A service account with its reach."""

    id = serializers.UUIDField()
    username = serializers.CharField()
    site_role = serializers.ChoiceField(choices=SiteRole.choices)
    is_active = serializers.BooleanField()
    date_joined = serializers.DateTimeField()
    tokens_active = serializers.IntegerField()
    projects_in = serializers.IntegerField()
    last_used_at = serializers.DateTimeField(allow_null=True)
    reach = AccountReach()


class ServiceAccountWrite(serializers.Serializer[Any]):
    """A new service account. It gets roles in projects as members do, and tokens under ``api-keys/``."""

    username = serializers.CharField(max_length=150)
    site_role = serializers.ChoiceField(choices=SiteRole.choices, default=SiteRole.NONE.value)
