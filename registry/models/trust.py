"""Whose jobs may work here without a secret: issuers outside, and what each project trusts them with."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from registry.models.accounts import Project
from registry.models.base import Row


class IssuerKind(models.TextChoices):
    """Whose names the claims of an issuer's tokens have."""

    GITHUB = "github", _("GitHub Actions")
    GITLAB = "gitlab", _("GitLab CI/CD")


class Issuer(Row):
    """Somebody whose tokens CI jobs may exchange for ours. Only issuers of this list count.

    ``keys``: its public keys (JWK) as fetched at ``keys_fetched_at``; ``keys_tried_at`` is the last attempt, which
    ``keys_problem`` tells of when it failed.
    """

    slug = models.SlugField(max_length=63, unique=True)
    kind = models.CharField(max_length=16, choices=IssuerKind)
    url = models.CharField(max_length=500, unique=True)
    max_age_minutes = models.PositiveIntegerField()
    is_enabled = models.BooleanField(default=True)
    keys = models.JSONField(default=list, blank=True)
    keys_fetched_at = models.DateTimeField(null=True, blank=True)
    keys_tried_at = models.DateTimeField(null=True, blank=True)
    keys_problem = models.TextField(blank=True)

    def __str__(self) -> str:
        return self.slug


class TrustRule(Row):
    """Jobs of one repository, from a protected ref or an environment, may act as a service account in a project.

    ``repository_id`` and ``owner_id`` are the issuer's numbers, which no renaming changes and nobody gets again;
    ``repository`` is what people call it, and is only shown. Empty ``ref``, ``environment`` and ``workflow``: any.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="trust_rules")
    issuer = models.ForeignKey(Issuer, on_delete=models.PROTECT, related_name="trust_rules")
    name = models.CharField(max_length=100)
    service_account = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="trust_rules")
    repository = models.CharField(max_length=200, blank=True)
    repository_id = models.CharField(max_length=32)
    owner_id = models.CharField(max_length=32)
    protected_ref = models.BooleanField(default=True)
    ref = models.CharField(max_length=255, blank=True)
    environment = models.CharField(max_length=255, blank=True)
    workflow = models.CharField(max_length=500, blank=True)
    events = models.JSONField(default=list)
    scopes = models.JSONField(default=list)
    lifetime_minutes = models.PositiveIntegerField(default=15)
    is_enabled = models.BooleanField(default=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="trust_rule_name_once")]
        indexes = [models.Index(fields=["issuer", "repository_id"], name="trust_by_repository")]

    def __str__(self) -> str:
        return self.name


class IssuerTokenUse(Row):
    """One token of an issuer that was exchanged: never twice. Kept until the token could not be used anyway."""

    issuer = models.ForeignKey(Issuer, on_delete=models.CASCADE, related_name="uses")
    jti_sha256 = models.CharField(max_length=64)
    expires_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["issuer", "jti_sha256"], name="issuer_token_once")]
