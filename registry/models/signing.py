"""Whose signatures over versions a project believes."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from registry.models.accounts import Project
from registry.models.base import Row
from registry.models.catalog import ModelVersion
from serving_node.contract.signing import SignerKind


class SigningKey(Row):
    """A public key that a project trusts. It never changes: another key is another row.

    ``public_key``: PEM, as ``registry.services.signing`` writes it. ``fingerprint``: SHA-256 of that text, in hex.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="signing_keys")
    name = models.CharField(max_length=100)
    public_key = models.TextField()
    fingerprint = models.CharField(max_length=64)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], name="signing_key_name_once"),
            models.UniqueConstraint(fields=["project", "fingerprint"], name="signing_key_once"),
        ]

    def __str__(self) -> str:
        return self.name


class SigningIdentity(Row):
    """Whom a project trusts by a name that somebody else vouches for. It never changes.

    Either an authority of one's own vouches: ``certificates`` (PEM, lists of revoked ones among them). Or the keyless
    authority of the site does, for an account or a workflow of the OpenID Connect ``issuer``. ``identity``: whom the
    certificate must name, see ``serving_node.contract.signing.is_named``. ``fingerprint``: SHA-256 of the three.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="signing_identities")
    name = models.CharField(max_length=100)
    identity = models.CharField(max_length=500)
    issuer = models.CharField(max_length=500, blank=True)
    certificates = models.TextField(blank=True)
    fingerprint = models.CharField(max_length=64)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], name="signing_identity_name_once"),
            models.UniqueConstraint(fields=["project", "fingerprint"], name="signing_identity_once"),
            models.CheckConstraint(
                condition=models.Q(issuer="") ^ models.Q(certificates=""), name="signing_identity_one_authority"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def kind(self) -> SignerKind:
        """How its signatures prove who made them."""
        return SignerKind.KEYLESS if self.issuer else SignerKind.CERTIFICATE


class VersionSigner(models.Model):
    """Who was last seen to have signed a version, as nodes verify it again.

    ``signer``: ``serving_node.contract.signing.Signer`` as JSON.
    """

    version = models.OneToOneField(ModelVersion, on_delete=models.CASCADE, primary_key=True, related_name="signed_by")
    signer = models.JSONField()

    def __str__(self) -> str:
        return str(self.signer["name"])
