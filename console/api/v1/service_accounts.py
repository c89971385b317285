"""Service accounts: accounts of machines. Site administrators manage them."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.etag import matched, tagged
from console.api.pagination import Listing
from console.api.schema import paged
from console.api.v1.serializers.service_accounts import (
    ServiceAccountDetail,
    ServiceAccountSerializer,
    ServiceAccountWrite,
)
from console.api.views import ApiView
from registry.models import User
from registry.selectors import service_accounts as selectors
from registry.services import service_accounts as services


class ServiceAccountList(ApiView):
    """Service accounts."""

    listing = Listing(
        ("username", "is_active"), ("date_joined",), order=("username",), orderings=("username", "date_joined")
    )
    write_scope = "admin"

    @extend_schema(
        summary="List service accounts",
        responses=paged(ServiceAccountSerializer),
    )
    def get(self, request: Request) -> Response:
        return self.page(selectors.service_accounts(self.actor), ServiceAccountSerializer)

    @extend_schema(
        summary="Create a service account", request=ServiceAccountWrite, responses={201: ServiceAccountDetail}
    )
    def post(self, request: Request) -> Response:
        made = services.service_account_create(**self.read(ServiceAccountWrite), actor=self.actor)
        return Response(_detail(selectors.service_account_get(self.actor, made.username)), status=201)


class ServiceAccountItem(ApiView):
    """One service account."""

    write_scope = "admin"

    @extend_schema(
        summary="Read a service account",
        description="With what it can do and what it has begun: what stops when it is disabled or deleted.",
        responses=ServiceAccountDetail,
    )
    def get(self, request: Request, account: str) -> Response:
        found = selectors.service_account_get(self.actor, account)
        return tagged(request, _detail(found), version=_version_of(found))

    @extend_schema(
        summary="Delete a service account",
        description="Tokens are revoked, memberships and trust rules removed; the name stays in the history.",
        responses={204: None},
    )
    def delete(self, request: Request, account: str) -> Response:
        found = selectors.service_account_get(self.actor, account)
        with matched(request, found, _version_of) as row:
            services.service_account_delete(account=row, actor=self.actor)
        return Response(status=204)


class ServiceAccountMove(ApiView):
    """Disabling, and enabling again."""

    verb = ""
    write_scope = "admin"

    @extend_schema(
        summary="Disable or enable a service account",
        description="A disabled one can do nothing: its tokens are refused and its trust rules give none.",
        request=None,
        responses=ServiceAccountDetail,
    )
    def post(self, request: Request, account: str) -> Response:
        found = selectors.service_account_get(self.actor, account)
        with matched(request, found, _version_of) as row:
            services.service_account_set_active(account=row, is_active=self.verb == "enable", actor=self.actor)
        found = selectors.service_account_get(self.actor, account)
        return tagged(request, _detail(found), version=_version_of(found))


def _detail(account: User) -> dict[str, Any]:
    reach = selectors.reach_of(account)
    document = ServiceAccountDetail({**ServiceAccountSerializer(account).data, "reach": reach}).data
    return dict(document)


def _version_of(account: User) -> dict[str, Any]:
    """What If-Match protects; what it reaches changes by the acts of others."""
    return {"id": account.id, "site_role": account.site_role, "is_active": account.is_active}
