"""Keys and identities whose signatures over versions a project believes."""

from __future__ import annotations

import uuid
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.etag import matched, tagged
from console.api.pagination import Listing
from console.api.schema import paged
from console.api.views import ApiView
from registry.models import SigningIdentity, SigningKey
from registry.selectors import signing as selectors
from registry.services import signing as services
from registry.services import signing_identities
from serving_node.contract.signing import SignerKind


class SigningKeySerializer(serializers.ModelSerializer[SigningKey]):
    """A trusted key. ``fingerprint``: SHA-256 of its PEM text, in hex."""

    project = serializers.CharField(source="project.slug", read_only=True)
    created_by = serializers.CharField(source="created_by.username", default=None, read_only=True)

    class Meta:
        model = SigningKey
        fields = ["id", "project", "name", "public_key", "fingerprint", "created_by", "created_at"]


class SigningKeyWrite(serializers.Serializer[Any]):
    """A key to trust: an elliptic curve public key (P-256, P-384, P-521) in PEM."""

    name = serializers.CharField(max_length=100)
    public_key = serializers.CharField(max_length=services.MAX_PEM_CHARACTERS)


class SigningKeyList(ApiView):
    """Keys that the project trusts. Whether signatures must be is ``signing_policy`` of the project."""

    listing = Listing(("name", "fingerprint"), order=("name",), orderings=("name", "created_at"))
    write_scope = "admin"
    asks_again = True

    @extend_schema(summary="List signing keys", responses=paged(SigningKeySerializer))
    def get(self, request: Request, project: str) -> Response:
        return self.page(selectors.signing_keys(self.project), SigningKeySerializer)

    @extend_schema(summary="Trust a signing key", request=SigningKeyWrite, responses={201: SigningKeySerializer})
    def post(self, request: Request, project: str) -> Response:
        key = services.signing_key_add(project=self.project, actor=self.actor, **self.read(SigningKeyWrite))
        return Response(_document(key), status=201)


class SigningKeyItem(ApiView):
    """One key."""

    write_scope = "admin"
    asks_again = True

    @extend_schema(summary="Read a signing key", responses=SigningKeySerializer)
    def get(self, request: Request, project: str, key: uuid.UUID) -> Response:
        return tagged(request, _document(selectors.signing_key_get(self.project, key)))

    @extend_schema(
        summary="Trust a signing key no longer",
        description="Verdicts that were given stay until the check is made again.",
        responses={204: None},
    )
    def delete(self, request: Request, project: str, key: uuid.UUID) -> Response:
        with matched(request, selectors.signing_key_get(self.project, key), _document) as row:
            services.signing_key_remove(key=row, actor=self.actor)
        return Response(status=204)


class SigningIdentitySerializer(serializers.ModelSerializer[SigningIdentity]):
    """A trusted identity. ``fingerprint``: SHA-256 of identity, issuer and certificates as canonical JSON, in hex."""

    project = serializers.CharField(source="project.slug", read_only=True)
    kind = serializers.ChoiceField(choices=[SignerKind.CERTIFICATE.value, SignerKind.KEYLESS.value], read_only=True)
    created_by = serializers.CharField(source="created_by.username", default=None, read_only=True)

    class Meta:
        model = SigningIdentity
        fields = [
            *("id", "project", "name", "kind", "identity", "issuer", "certificates", "fingerprint"),
            *("created_by", "created_at"),
        ]


class SigningIdentityWrite(serializers.Serializer[Any]):
    """Whom to trust: by the certificates of an authority (PEM, with lists of revoked ones), or by a keyless issuer."""

    name = serializers.CharField(max_length=100)
    identity = serializers.CharField(max_length=signing_identities.MAX_IDENTITY)
    certificates = serializers.CharField(
        max_length=signing_identities.MAX_CERTIFICATES_CHARACTERS, required=False, allow_blank=True
    )
    issuer = serializers.CharField(max_length=signing_identities.MAX_IDENTITY, required=False, allow_blank=True)


class SigningIdentityList(ApiView):
    """Identities that the project trusts, by certificates of its own authorities or keyless."""

    listing = Listing(("name", "issuer", "identity"), order=("name",), orderings=("name", "created_at"))
    write_scope = "admin"
    asks_again = True

    @extend_schema(summary="List signing identities", responses=paged(SigningIdentitySerializer))
    def get(self, request: Request, project: str) -> Response:
        return self.page(selectors.signing_identities(self.project), SigningIdentitySerializer)

    @extend_schema(
        summary="Trust a signing identity",
        description="Either `certificates` or `issuer`.",
        request=SigningIdentityWrite,
        responses={201: SigningIdentitySerializer},
    )
    def post(self, request: Request, project: str) -> Response:
        body = self.read(SigningIdentityWrite)
        row = signing_identities.signing_identity_add(project=self.project, actor=self.actor, **body)
        return Response(_identity(row), status=201)


class SigningIdentityItem(ApiView):
    """One identity."""

    write_scope = "admin"
    asks_again = True

    @extend_schema(summary="Read a signing identity", responses=SigningIdentitySerializer)
    def get(self, request: Request, project: str, signer: uuid.UUID) -> Response:
        return tagged(request, _identity(selectors.signing_identity_get(self.project, signer)))

    @extend_schema(
        summary="Trust a signing identity no longer",
        description="Verdicts that were given stay until the check is made again.",
        responses={204: None},
    )
    def delete(self, request: Request, project: str, signer: uuid.UUID) -> Response:
        with matched(request, selectors.signing_identity_get(self.project, signer), _identity) as row:
            signing_identities.signing_identity_remove(identity=row, actor=self.actor)
        return Response(status=204)


def _identity(row: SigningIdentity) -> dict[str, Any]:
    return dict(SigningIdentitySerializer(row).data)


def _document(key: SigningKey) -> dict[str, Any]:
    return dict(SigningKeySerializer(key).data)
