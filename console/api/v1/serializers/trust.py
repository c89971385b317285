"""Issuers, trust rules and the exchange of tokens as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from registry.domain.ci_trust import MAX_AGE_MINUTES, MAX_ASSERTION_BYTES, MAX_EVENTS, MAX_LIFETIME_MINUTES, SCOPES
from registry.models import Issuer, IssuerKind, TrustRule


class IssuerSerializer(serializers.ModelSerializer[Issuer]):
    """An issuer. ``keys`` is how many public keys are known, ``rules`` how many rules name it."""

    keys = serializers.SerializerMethodField()
    rules = serializers.IntegerField(read_only=True)

    class Meta:
        model = Issuer
        fields = [
            "id",
            "slug",
            "kind",
            "url",
            "max_age_minutes",
            "is_enabled",
            "keys",
            "keys_fetched_at",
            "keys_problem",
            "rules",
            "created_at",
        ]

    def get_keys(self, row: Issuer) -> int:
        return len(row.keys)


class IssuerWrite(serializers.Serializer[Any]):
    """An issuer for the list. ``url`` empty: that of the kind itself."""

    slug = serializers.SlugField(max_length=63)
    kind = serializers.ChoiceField(choices=IssuerKind.choices)
    url = serializers.CharField(max_length=500, required=False, allow_blank=True, default="")
    max_age_minutes = serializers.IntegerField(
        min_value=1, max_value=MAX_AGE_MINUTES, required=False, allow_null=True, default=None
    )


class IssuerChange(serializers.Serializer[Any]):
    """What is to change; the rest stays."""

    max_age_minutes = serializers.IntegerField(min_value=1, max_value=MAX_AGE_MINUTES, required=False)
    is_enabled = serializers.BooleanField(required=False)


class TrustRuleSerializer(serializers.ModelSerializer[TrustRule]):
    """A rule: jobs of which repository may act as whom, and for how long."""

    project = serializers.CharField(source="project.slug", read_only=True)
    issuer = serializers.CharField(source="issuer.slug", read_only=True)
    service_account = serializers.CharField(source="service_account.username", read_only=True)
    created_by = serializers.CharField(source="created_by.username", read_only=True, allow_null=True, default=None)
    events = serializers.ListField(child=serializers.CharField(), read_only=True)
    scopes = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = TrustRule
        fields = [
            "id",
            "project",
            "name",
            "issuer",
            "service_account",
            "repository",
            "repository_id",
            "owner_id",
            "protected_ref",
            "ref",
            "environment",
            "workflow",
            "events",
            "scopes",
            "lifetime_minutes",
            "is_enabled",
            "last_used_at",
            "created_by",
            "created_at",
        ]


class TrustRuleChange(serializers.Serializer[Any]):
    """What is to change; the rest stays. ``repository`` is only shown; the numbers are what binds."""

    name = serializers.CharField(max_length=100, required=False)
    service_account = serializers.CharField(max_length=150, required=False)
    repository = serializers.CharField(max_length=200, required=False, allow_blank=True)
    repository_id = serializers.CharField(max_length=32, required=False)
    owner_id = serializers.CharField(max_length=32, required=False)
    protected_ref = serializers.BooleanField(required=False)
    ref = serializers.CharField(max_length=255, required=False, allow_blank=True)
    environment = serializers.CharField(max_length=255, required=False, allow_blank=True)
    workflow = serializers.CharField(max_length=500, required=False, allow_blank=True)
    events = serializers.ListField(child=serializers.CharField(max_length=40), max_length=MAX_EVENTS, required=False)
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=SCOPES), min_length=1, required=False)
    lifetime_minutes = serializers.IntegerField(min_value=1, max_value=MAX_LIFETIME_MINUTES, required=False)
    is_enabled = serializers.BooleanField(required=False)


class TrustRuleWrite(TrustRuleChange):
    """A new rule. Without ``events`` those that run code of the repository itself, as push."""

    issuer = serializers.SlugField(max_length=63)
    name = serializers.CharField(max_length=100)
    service_account = serializers.CharField(max_length=150)
    repository_id = serializers.CharField(max_length=32)
    owner_id = serializers.CharField(max_length=32)
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=SCOPES), min_length=1)


class ExchangeRequest(serializers.Serializer[Any]):
    """A job's token of its issuer."""

    assertion = serializers.CharField(max_length=MAX_ASSERTION_BYTES)
    project = serializers.SlugField(max_length=63, required=False, allow_blank=True, default="")
    rule = serializers.CharField(max_length=100, required=False, allow_blank=True, default="")


class ExchangeAnswer(serializers.Serializer[Any]):
    """A token of ours; it ends by itself."""

    token = serializers.CharField()
    expires_at = serializers.DateTimeField()
    project = serializers.CharField()
    rule = serializers.CharField()
    service_account = serializers.CharField()
    scopes = serializers.ListField(child=serializers.CharField())


class ExchangeFacts(serializers.Serializer[Any]):
    """What the job's token must name as its audience."""

    audience = serializers.CharField()
