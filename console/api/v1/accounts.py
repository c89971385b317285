"""The caller, accounts and tokens."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.etag import matched, tagged
from console.api.pagination import Listing
from console.api.schema import paged
from console.api.v1.serializers.accounts import (
    MeSerializer,
    TokenCreated,
    TokenSerializer,
    TokenWrite,
    UserSerializer,
    UserWrite,
)
from console.api.views import ApiView
from registry.models import ApiToken, User
from registry.selectors import accounts as selectors
from registry.services import accounts as services


class MeView(ApiView):
    """Who calls."""

    @extend_schema(summary="Who am I", responses=MeSerializer)
    def get(self, request: Request) -> Response:
        token = request.auth if isinstance(request.auth, ApiToken) else None
        document = {
            "username": request.user.get_username(),
            "site_role": getattr(request.user, "site_role", ""),
            "is_service": getattr(request.user, "is_service", False),
            "token": token.public_id if token else None,
            "scopes": token.scopes if token else ["read", "write", "admin"],
            "roles": selectors.roles_of(self.actor),
        }
        return Response(document)


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


class UserList(ApiView):
    """Accounts that the caller may know."""

    listing = Listing(
        ("username", "site_role", "is_service", "is_active"),
        ("date_joined",),
        ("-date_joined",),
        ("username", "date_joined"),
    )

    write_scope = "admin"
    asks_again = True
    keeps_answers = False

    @extend_schema(summary="List accounts", responses=paged(UserSerializer))
    def get(self, request: Request) -> Response:
        rows = selectors.users_visible_to(self.actor)
        return self.page(rows, UserSerializer)

    @extend_schema(summary="Create an account", request=UserWrite, responses={201: UserSerializer})
    def post(self, request: Request) -> Response:
        user = services.user_create(**self.read(UserWrite), actor=self.actor)
        return Response(UserSerializer(user).data, status=201)


class TokenList(ApiView):
    """Bearer tokens of the caller."""

    listing = Listing(("name", "project__slug", "owner__username"), ("created_at",), orderings=("name", "created_at"))

    write_scope = "admin"
    asks_again = True
    keeps_answers = False

    @extend_schema(summary="List tokens", responses=paged(TokenSerializer))
    def get(self, request: Request) -> Response:
        rows = selectors.tokens_visible_to(self.actor).select_related("owner", "project")
        return self.page(rows, TokenSerializer)

    @extend_schema(summary="Create a token", request=TokenWrite, responses={201: TokenCreated})
    def post(self, request: Request) -> Response:
        given = self.read(TokenWrite)
        owner_name = given.pop("owner") or self.actor.name
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

    @extend_schema(summary="Revoke a token", responses={204: None})
    def delete(self, request: Request, token: uuid.UUID) -> Response:
        with matched(request, selectors.token_get(self.actor, token), _version_of) as row:
            services.token_revoke(token=row, actor=self.actor)
        return Response(status=204)


def _version_of(token: ApiToken) -> dict[str, Any]:
    """What If-Match protects: all but when it was used last, which each request changes."""
    return {name: value for name, value in TokenSerializer(token).data.items() if name != "last_used_at"}
