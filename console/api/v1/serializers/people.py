"""Changes of accounts, what blocking one stops, and sessions as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from registry.models import Role, SiteRole


class UserChange(serializers.Serializer[Any]):
    """What changes; what is left out stays."""

    username = serializers.CharField(max_length=150, required=False)
    email = serializers.EmailField(required=False, allow_blank=True)
    first_name = serializers.CharField(max_length=150, required=False, allow_blank=True)
    last_name = serializers.CharField(max_length=150, required=False, allow_blank=True)
    site_role = serializers.ChoiceField(choices=SiteRole.choices, required=False)
    is_active = serializers.BooleanField(required=False)


class ImpactSerializer(serializers.Serializer[Any]):
    """What stops when an account is blocked."""

    sessions = serializers.IntegerField()
    tokens = serializers.IntegerField()
    uploads = serializers.IntegerField()
    open_requests = serializers.IntegerField()
    last_admin_of = serializers.ListField(child=serializers.CharField())
    named_in = serializers.ListField(child=serializers.CharField())


class IdentitySerializer(serializers.Serializer[Any]):
    """An account elsewhere by which somebody signs in: ``subject`` is what the provider calls it."""

    id = serializers.IntegerField()
    provider = serializers.CharField()
    subject = serializers.CharField(source="uid")
    connected_at = serializers.DateTimeField(source="date_joined")


class PlaceSerializer(serializers.Serializer[Any]):
    """A role in a project; ``given_by`` is the provider whose group gave it."""

    project = serializers.CharField(source="project.slug")
    role = serializers.ChoiceField(choices=Role.choices)
    given_by = serializers.CharField(source="mapped_by.slug", allow_null=True, default=None)


class FactorSerializer(serializers.Serializer[Any]):
    """A second factor, without its secret."""

    kind = serializers.ChoiceField(choices=["totp", "webauthn", "recovery_codes"], source="type")
    created_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True)


class AccessSerializer(serializers.Serializer[Any]):
    """Where somebody has roles, and how they sign in."""

    site_role = serializers.ChoiceField(choices=SiteRole.choices)
    site_role_given_by = serializers.CharField(allow_null=True)
    has_password = serializers.BooleanField()
    memberships = PlaceSerializer(many=True)
    identities = IdentitySerializer(many=True)
    second_factors = FactorSerializer(many=True)


class SessionSerializer(serializers.Serializer[Any]):
    """Where somebody is signed in."""

    id = serializers.IntegerField()
    ip = serializers.CharField()
    user_agent = serializers.CharField()
    created_at = serializers.DateTimeField()
    last_seen_at = serializers.DateTimeField()


class SessionsEnd(serializers.Serializer[Any]):
    """Which session ends; without an id all of them."""

    id = serializers.IntegerField(required=False, allow_null=True, default=None, min_value=1, max_value=2**63 - 1)


class SessionsEnded(serializers.Serializer[Any]):
    """How many sessions ended."""

    ended = serializers.IntegerField()


class PasswordLink(serializers.Serializer[Any]):
    """A link with which the person sets a password, shown only this once."""

    link = serializers.CharField()
