"""Sign-ins of command lines as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from registry.domain.login_codes import MAX_TOKEN_DAYS


class LoginAsk(serializers.Serializer[Any]):
    """What a command line asks for; ``project`` empty: all projects of the person."""

    client = serializers.CharField(max_length=200, help_text="Name of the machine, shown to the person.")
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=["read", "write", "admin"]), min_length=1, max_length=3
    )
    project = serializers.SlugField(required=False, allow_blank=True, default="", max_length=63)
    token_days = serializers.IntegerField(default=30, min_value=1, max_value=MAX_TOKEN_DAYS)


class LoginAsked(serializers.Serializer[Any]):
    """What to show, and the secret that fetches the token."""

    user_code = serializers.CharField()
    verification_url = serializers.CharField()
    verification_url_complete = serializers.CharField()
    secret = serializers.CharField()
    expires_at = serializers.DateTimeField()
    interval_seconds = serializers.IntegerField()


class LoginClaim(serializers.Serializer[Any]):
    """The secret of the sign-in."""

    secret = serializers.CharField(max_length=100)


class LoginWaiting(serializers.Serializer[Any]):
    """Nobody has decided yet."""

    state = serializers.ChoiceField(choices=["waiting"])
    interval_seconds = serializers.IntegerField()


class LoginClaimed(serializers.Serializer[Any]):
    """The token, given this once."""

    token = serializers.CharField()
    username = serializers.CharField()
    scopes = serializers.ListField(child=serializers.CharField())
    project = serializers.CharField(allow_null=True)
    expires_at = serializers.DateTimeField()
