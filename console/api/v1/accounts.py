"""The caller, and accounts."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.pagination import Listing
from console.api.schema import paged
from console.api.v1.serializers.accounts import (
    MeSerializer,
    UserSerializer,
    UserWrite,
)
from console.api.views import ApiView
from registry.models import ApiToken
from registry.selectors import accounts as selectors
from registry.selectors.people import matching
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


class UserList(ApiView):
    """Accounts that the caller may know."""

    listing = Listing(
        ("username", "site_role", "is_service", "is_active"),
        ("date_joined",),
        ("-date_joined",),
        ("username", "date_joined"),
        also=("search",),
    )

    write_scope = "admin"
    asks_again = True
    keeps_answers = False

    @extend_schema(
        summary="List accounts",
        parameters=[OpenApiParameter("search", description="In user name, names and address.")],
        responses=paged(UserSerializer),
    )
    def get(self, request: Request) -> Response:
        rows = selectors.users_visible_to(self.actor).filter(matching(request.query_params.get("search", "")))
        return self.page(rows, UserSerializer)

    @extend_schema(summary="Create an account", request=UserWrite, responses={201: UserSerializer})
    def post(self, request: Request) -> Response:
        user = services.user_create(**self.read(UserWrite), actor=self.actor)
        return Response(UserSerializer(user).data, status=201)
