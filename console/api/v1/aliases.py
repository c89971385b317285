"""Aliases of a model."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.etag import matched, tagged
from console.api.pagination import Listing
from console.api.schema import paged
from console.api.v1.serializers.aliases import AliasSerializer, AliasWrite
from console.api.views import ApiView
from registry.errors import NotFound
from registry.models import RegisteredModel
from registry.selectors import aliases as selectors
from registry.services import aliases as services


class AliasList(ApiView):
    """Aliases of a model that were set. ``latest`` is read at its own address."""

    listing = Listing(("name", "is_protected"), orderings=("name", "created_at"))

    @extend_schema(summary="List aliases", responses=paged(AliasSerializer))
    def get(self, request: Request, project: str, model: str) -> Response:
        return self.page(selectors.aliases_of(self.model), AliasSerializer)


class AliasItem(ApiView):
    """One alias, ``latest`` among them, which only reads."""

    @extend_schema(summary="Read an alias", responses=AliasSerializer)
    def get(self, request: Request, project: str, model: str, alias: str) -> Response:
        return tagged(request, AliasSerializer(selectors.alias_get(self.model, alias)).data)

    @extend_schema(
        summary="Set an alias",
        description="Makes it with If-None-Match: *, moves it with If-Match.",
        request=AliasWrite,
        responses={200: AliasSerializer, 201: AliasSerializer},
    )
    def put(self, request: Request, project: str, model: str, alias: str) -> Response:
        given = self.read(AliasWrite)
        version = selectors.version_named(self.model, given.pop("version"))
        with matched(request, self.model, self._document) as row:
            made, is_new = services.alias_set(model=row, name=alias, version=version, **given, actor=self.actor)
        answer = tagged(request, AliasSerializer(made).data)
        answer.status_code = 201 if is_new else 200
        return answer

    @extend_schema(summary="Delete an alias", responses={204: None})
    def delete(self, request: Request, project: str, model: str, alias: str) -> Response:
        selectors.alias_get(self.model, alias)
        with matched(request, self.model, self._document) as row:
            services.alias_delete(model=row, name=alias, actor=self.actor)
        return Response(status=204)

    def _document(self, model: RegisteredModel) -> dict[str, Any] | None:
        try:
            alias = selectors.alias_get(model, self.kwargs["alias"])
        except NotFound:
            return None
        return dict(AliasSerializer(alias).data)
