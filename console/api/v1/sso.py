"""Single sign-on and provisioning, for administrators of the site."""

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
from console.api.v1.serializers.sso import (
    GroupMappingSerializer,
    GroupMappingWrite,
    ScimGroupSerializer,
    ScimTokenCreated,
    ScimTokenSerializer,
    ScimTokenWrite,
    SsoProviderChange,
    SsoProviderSerializer,
    SsoProviderWrite,
)
from console.api.views import ApiView
from registry.models import GroupMapping, Project, ScimToken, SsoProvider
from registry.selectors import sso as selectors
from registry.services import scim_tokens as tokens
from registry.services import sso as services


class _SsoView(ApiView):
    write_scope = "admin"
    asks_again = True
    keeps_answers = False

    def provider(self) -> SsoProvider:
        """Return the provider of the address. Raises NotFound for those who do not manage accounts."""
        return selectors.provider_get(self.actor, self.kwargs["slug"])


def _provider(row: SsoProvider) -> dict[str, Any]:
    return dict(SsoProviderSerializer(row).data)


def _mapping(row: GroupMapping) -> dict[str, Any]:
    return dict(GroupMappingSerializer(row).data)


def _token(row: ScimToken) -> dict[str, Any]:
    return {name: value for name, value in ScimTokenSerializer(row).data.items() if name != "last_used_at"}


class SsoProviderList(_SsoView):
    """OpenID Connect providers."""

    listing = Listing(("slug", "is_enabled"), orderings=("slug", "created_at"))

    @extend_schema(summary="List providers of single sign-on", responses=paged(SsoProviderSerializer))
    def get(self, request: Request) -> Response:
        return self.page(selectors.providers_managed_by(self.actor), SsoProviderSerializer)

    @extend_schema(summary="Add a provider", request=SsoProviderWrite, responses={201: SsoProviderSerializer})
    def post(self, request: Request) -> Response:
        made = services.sso_provider_create(**self.read(SsoProviderWrite), actor=self.actor)
        return Response(_provider(made), status=201)


class SsoProviderItem(_SsoView):
    """One provider."""

    @extend_schema(summary="Read a provider", responses=SsoProviderSerializer)
    def get(self, request: Request, slug: str) -> Response:
        return tagged(request, _provider(self.provider()))

    @extend_schema(
        summary="Change a provider, or switch it off", request=SsoProviderChange, responses=SsoProviderSerializer
    )
    def patch(self, request: Request, slug: str) -> Response:
        with matched(request, self.provider(), _provider) as row:
            changed = services.sso_provider_update(provider=row, actor=self.actor, **self.read(SsoProviderChange))
        return tagged(request, _provider(changed))

    @extend_schema(
        summary="Delete a provider",
        description="With its mappings and the links of accounts to it. Roles that it gave stay.",
        responses={204: None},
    )
    def delete(self, request: Request, slug: str) -> Response:
        with matched(request, self.provider(), _provider) as row:
            services.sso_provider_delete(provider=row, actor=self.actor)
        return Response(status=204)


class GroupMappingList(_SsoView):
    """What the groups of a provider give."""

    listing = Listing(("group", "project__slug"), orderings=("group", "created_at"))

    @extend_schema(summary="List what groups give", responses=paged(GroupMappingSerializer))
    def get(self, request: Request, slug: str) -> Response:
        return self.page(selectors.mappings_of(self.provider()), GroupMappingSerializer)

    @extend_schema(summary="Map a group to a role", request=GroupMappingWrite, responses={201: GroupMappingSerializer})
    def post(self, request: Request, slug: str) -> Response:
        given, provider = self.read(GroupMappingWrite), self.provider()
        if given["project"]:
            given["project"] = Project.objects.filter(slug=given["project"]).first()
            if given["project"] is None:
                raise Http404
        made = services.group_mapping_create(provider=provider, actor=self.actor, **given)
        return Response(_mapping(made), status=201)


class GroupMappingItem(_SsoView):
    """One mapping."""

    @extend_schema(summary="Read a mapping", responses=GroupMappingSerializer)
    def get(self, request: Request, slug: str, mapping: uuid.UUID) -> Response:
        return tagged(request, _mapping(selectors.mapping_get(self.provider(), mapping)))

    @extend_schema(summary="Remove a mapping", responses={204: None})
    def delete(self, request: Request, slug: str, mapping: uuid.UUID) -> Response:
        with matched(request, selectors.mapping_get(self.provider(), mapping), _mapping) as row:
            services.group_mapping_delete(mapping=row, actor=self.actor)
        return Response(status=204)


class ScimGroupList(_SsoView):
    """Groups that a provider keeps here by SCIM."""

    listing = Listing(("display_name", "external_id"), orderings=("display_name", "created_at"))

    @extend_schema(summary="List groups that a provider keeps here", responses=paged(ScimGroupSerializer))
    def get(self, request: Request, slug: str) -> Response:
        return self.page(selectors.scim_groups_of(self.provider()), ScimGroupSerializer)


class ScimTokenList(_SsoView):
    """Tokens for provisioning."""

    listing = Listing(("name",), orderings=("name", "created_at"))

    @extend_schema(summary="List tokens for provisioning", responses=paged(ScimTokenSerializer))
    def get(self, request: Request) -> Response:
        return self.page(selectors.scim_tokens_of(self.actor), ScimTokenSerializer)

    @extend_schema(summary="Create a token for provisioning", request=ScimTokenWrite, responses={201: ScimTokenCreated})
    def post(self, request: Request) -> Response:
        given = self.read(ScimTokenWrite)
        if given["provider"]:
            given["provider"] = selectors.provider_get(self.actor, given["provider"])
        row, text = tokens.scim_token_create(**given, actor=self.actor)
        return Response({**ScimTokenSerializer(row).data, "token": text}, status=201)


class ScimTokenItem(_SsoView):
    """One token for provisioning."""

    @extend_schema(summary="Read a token for provisioning", responses=ScimTokenSerializer)
    def get(self, request: Request, scim_token: uuid.UUID) -> Response:
        row = selectors.scim_token_get(self.actor, scim_token)
        return tagged(request, ScimTokenSerializer(row).data, version=_token(row))

    @extend_schema(summary="Revoke a token for provisioning", responses={204: None})
    def delete(self, request: Request, scim_token: uuid.UUID) -> Response:
        with matched(request, selectors.scim_token_get(self.actor, scim_token), _token) as row:
            tokens.scim_token_revoke(token=row, actor=self.actor)
        return Response(status=204)
