"""Projects, members and accounts as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from registry.models import Membership, Project, Role, SiteRole, User


class ProjectSerializer(serializers.ModelSerializer[Project]):
    """A project."""

    class Meta:
        model = Project
        fields = [
            "id",
            "slug",
            "name",
            "description",
            "quota_bytes",
            "code_formats",
            "pickles_known_only",
            "signing_policy",
            "created_at",
        ]


class ProjectWrite(serializers.Serializer[Any]):
    """A new project."""

    slug = serializers.SlugField(max_length=63)
    name = serializers.CharField(max_length=200)
    description = serializers.CharField(required=False, allow_blank=True, default="")


class ProjectChange(serializers.Serializer[Any]):
    """What changes of a project; what is not given stays."""

    name = serializers.CharField(max_length=200, required=False)
    description = serializers.CharField(required=False, allow_blank=True)


class UserSerializer(serializers.ModelSerializer[User]):
    """An account."""

    class Meta:
        model = User
        fields = [
            "id",
            "username",
            "email",
            "first_name",
            "last_name",
            "site_role",
            "is_service",
            "is_active",
            "date_joined",
            "last_login",
        ]


class UserWrite(serializers.Serializer[Any]):
    """A new account. Without a password it cannot sign in."""

    username = serializers.CharField(max_length=150)
    password = serializers.CharField(required=False, allow_null=True, default=None, write_only=True)
    email = serializers.EmailField(required=False, allow_blank=True, default="")
    site_role = serializers.ChoiceField(choices=SiteRole.choices, default=SiteRole.NONE.value)
    is_service = serializers.BooleanField(default=False)


class MemberSerializer(serializers.ModelSerializer[Membership]):
    """A user's role in a project."""

    username = serializers.CharField(source="user.username", read_only=True)
    is_service = serializers.BooleanField(source="user.is_service", read_only=True)

    class Meta:
        model = Membership
        fields = ["username", "is_service", "role", "created_at"]


class MemberWrite(serializers.Serializer[Any]):
    """Gives an account a role."""

    username = serializers.CharField(max_length=150)
    role = serializers.ChoiceField(choices=Role.choices)


class MeSerializer(serializers.Serializer[Any]):
    """Who calls, and where they may do what."""

    username = serializers.CharField()
    site_role = serializers.CharField()
    is_service = serializers.BooleanField()
    token = serializers.CharField(allow_null=True)
    scopes = serializers.ListField(child=serializers.CharField())
    roles = serializers.DictField(child=serializers.CharField())
