"""Where people sign in elsewhere: OpenID Connect providers, what their groups give, and tokens for provisioning."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from registry.models.accounts import Project, User
from registry.models.base import Row


class SignUp(models.TextChoices):
    """Who gets an account by signing in elsewhere for the first time."""

    OFF = "off", _("Nobody")
    MAPPED = "mapped", _("People in a mapped group")
    ALL = "all", _("Everybody there")


class SsoProvider(Row):
    """An OpenID Connect provider. Issuer and subject claim never change: accounts are linked by these two."""

    slug = models.SlugField(max_length=63, unique=True)
    name = models.CharField(max_length=100)
    issuer = models.CharField(max_length=500, unique=True)
    client_id = models.CharField(max_length=200)
    secret_sealed = models.TextField()
    subject_claim = models.CharField(max_length=100, default="sub")
    groups_claim = models.CharField(max_length=100, blank=True, default="groups")
    scopes = models.CharField(max_length=200, default="openid profile email")
    sign_up = models.CharField(max_length=16, choices=SignUp, default=SignUp.OFF)
    is_enabled = models.BooleanField(default=True)

    def __str__(self) -> str:
        return self.slug


class GroupMapping(Row):
    """A group of a provider gives a role in a project, or (without one) a role on the site."""

    provider = models.ForeignKey(SsoProvider, on_delete=models.CASCADE, related_name="mappings")
    group = models.CharField(max_length=200)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    role = models.CharField(max_length=16)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["provider", "group", "project"], name="group_mapping_once", nulls_distinct=False
            )
        ]

    def __str__(self) -> str:
        return f"{self.group} ({self.provider.slug})"


class ScimToken(Row):
    """A bearer token ``scim_<public_id>_<secret>`` with which a provider keeps accounts; its SHA-256 is kept."""

    name = models.CharField(max_length=100)
    # Whose people it provisions: its external ids are the subjects of this provider.
    provider = models.ForeignKey(SsoProvider, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    public_id = models.CharField(max_length=16, unique=True)
    secret_sha256 = models.CharField(max_length=64)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.name} ({self.public_id})"


class ScimGroup(Row):
    """A group that a provider keeps here; mappings name it by its display name or by the provider's own id of it."""

    provider = models.ForeignKey(SsoProvider, on_delete=models.CASCADE, related_name="scim_groups")
    display_name = models.CharField(max_length=200)
    external_id = models.CharField(max_length=200, blank=True)
    members = models.ManyToManyField(User, related_name="scim_groups", blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["provider", "display_name"], name="scim_group_once")]

    @property
    def keys(self) -> frozenset[str]:
        """By which names mappings mean it."""
        return frozenset(key for key in (self.display_name, self.external_id) if key)

    def __str__(self) -> str:
        return f"{self.display_name} ({self.provider.slug})"
