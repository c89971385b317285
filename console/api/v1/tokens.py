"""API keys: bearer tokens of people and of service accounts."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.etag import matched, tagged
from console.api.pagination import Listing
from console.api.schema import paged
from console.api.v1.serializers.tokens import (
    TokenChange,
    TokenCreated,
    TokenRotation,
    TokenSerializer,
    TokenWrite,
)
from console.api.views import ApiView
from registry.models import ApiToken, User
from registry.selectors import accounts as selectors
from registry.services import tokens as services

# What each request with the token changes.
_BY_USE = frozenset({"last_used_at", "last_used_ip", "previous_used_at"})


class OwnToken(ApiView):
    """The token that calls."""

    write_scope = "read"
    keeps_answers = False

    @extend_schema(
        summary="Revoke the token that is used",
        description="What signing out of a command line does. 404 for a session of a browser.",
        request=None,
        responses={204: None},
    )
    def post(self, request: Request) -> Response:
        if not isinstance(request.auth, ApiToken):
            raise Http404
        services.token_revoke(token=request.auth, actor=self.actor)
        return Response(status=204)


class TokenList(ApiView):
    """Bearer tokens of the caller, and of service accounts for those who manage them."""

    listing = Listing(("name", "project__slug", "owner__username"), ("created_at",), orderings=("name", "created_at"))
    write_scope = "admin"
    asks_again = True
    keeps_answers = False

    @extend_schema(
        summary="List tokens",
        responses=paged(TokenSerializer),
    )
    def get(self, request: Request) -> Response:
        rows = selectors.tokens_visible_to(self.actor)
        return self.page(rows, TokenSerializer)

    @extend_schema(summary="Create a token", request=TokenWrite, responses={201: TokenCreated})
    def post(self, request: Request) -> Response:
        given = self.read(TokenWrite)
        owner_name = given.pop("owner") or request.user.get_username()
        owner = User.objects.filter(username=owner_name).first()
        if owner is None:
            raise Http404
        if given["project"]:
            given["project"] = selectors.project_get(self.actor, given["project"])
        row, token = services.token_create(owner=owner, **given, actor=self.actor)
        return Response({**TokenSerializer(row).data, "token": token}, status=201)


class TokenItem(ApiView):
    """One token."""

    write_scope = "admin"

    @extend_schema(summary="Read a token", responses=TokenSerializer)
    def get(self, request: Request, token: uuid.UUID) -> Response:
        row = selectors.token_get(self.actor, token)
        return tagged(request, TokenSerializer(row).data, version=_version_of(row))

    @extend_schema(
        summary="Change a token",
        description="Its name, from where it may be used, and when it ends. The secret stays.",
        request=TokenChange,
        responses=TokenSerializer,
    )
    def patch(self, request: Request, token: uuid.UUID) -> Response:
        with matched(request, selectors.token_get(self.actor, token), _version_of) as row:
            changed = services.token_update(token=row, actor=self.actor, **self.read(TokenChange))
        return tagged(request, TokenSerializer(changed).data, version=_version_of(changed))

    @extend_schema(summary="Revoke a token", responses={204: None})
    def delete(self, request: Request, token: uuid.UUID) -> Response:
        with matched(request, selectors.token_get(self.actor, token), _version_of) as row:
            services.token_revoke(token=row, actor=self.actor)
        return Response(status=204)


class TokenRotate(ApiView):
    """A new secret of a token."""

    write_scope = "admin"
    asks_again = True
    keeps_answers = False

    @extend_schema(
        summary="Renew the secret of a token",
        description="The present one works beside it for `overlap_hours` (0 to 168, by default 24).",
        request=TokenRotation,
        responses=TokenCreated,
    )
    def post(self, request: Request, token: uuid.UUID) -> Response:
        given = self.read(TokenRotation)
        overlap = timedelta(hours=given.pop("overlap_hours"))
        with matched(request, selectors.token_get(self.actor, token), _version_of) as row:
            changed, text = services.token_rotate(token=row, overlap=overlap, actor=self.actor, **given)
        return Response({**TokenSerializer(changed).data, "token": text})


def _version_of(token: ApiToken) -> dict[str, Any]:
    """What If-Match protects: all but when it was used last, which each request changes."""
    return {name: value for name, value in TokenSerializer(token).data.items() if name not in _BY_USE}
