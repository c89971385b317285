"""Registered models."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.etag import matched, tagged
from console.api.pagination import Listing
from console.api.schema import paged
from console.api.v1.serializers.catalog import ModelChange, ModelImpactSerializer, ModelSerializer, ModelWrite
from console.api.views import ApiView
from registry.models import RegisteredModel
from registry.selectors.accounts import member_named
from registry.selectors.models import ModelFilter, model_impact, models_visible_to
from registry.services import models as services


class ModelList(ApiView):
    """Models of a project."""

    listing = Listing(
        ("slug", "state", "task", "owner__username"), orderings=("slug", "created_at"), also=("tag", "search")
    )

    @extend_schema(
        summary="List models",
        parameters=[
            OpenApiParameter("tag", description="A tag's name, or name=value."),
            OpenApiParameter("search", description="In name and description."),
        ],
        responses=paged(ModelSerializer),
    )
    def get(self, request: Request, project: str) -> Response:
        asked = request.query_params
        wanted = ModelFilter(search=asked.get("search", ""), tag=asked.get("tag", ""), state="")
        rows = models_visible_to(self.actor).filter(wanted.condition(), project=self.project)
        return self.page(rows, ModelSerializer)

    @extend_schema(summary="Create a model", request=ModelWrite, responses={201: ModelSerializer})
    def post(self, request: Request, project: str) -> Response:
        model = services.model_create(project=self.project, **self.read(ModelWrite), actor=self.actor)
        return Response(ModelSerializer(model).data, status=201)


class ModelItem(ApiView):
    """One model."""

    @extend_schema(summary="Read a model", responses=ModelSerializer)
    def get(self, request: Request, project: str, model: str) -> Response:
        return tagged(request, _document(self.model))

    @extend_schema(summary="Change what is said about a model", request=ModelChange, responses=ModelSerializer)
    def patch(self, request: Request, project: str, model: str) -> Response:
        with matched(request, self.model, _document) as row:
            changed = services.model_update(model=row, **self._given(), actor=self.actor)
        return tagged(request, _document(changed))

    @extend_schema(
        summary="Delete a model",
        description="Only an archived one. Its versions, configs, card, aliases and ended deployments go with it.",
        responses={204: None},
    )
    def delete(self, request: Request, project: str, model: str) -> Response:
        with matched(request, self.model, _document) as row:
            services.model_delete(model=row, actor=self.actor)
        return Response(status=204)

    def _given(self) -> dict[str, Any]:
        given = self.read(ModelChange)
        if "owner" in given:
            given["owner"] = member_named(self.project, given["owner"])
        return given


class ModelMove(ApiView):
    """Archive or restore a model (``verb`` from the address)."""

    checks_match = True
    verb = ""

    @extend_schema(summary="Archive or restore a model", request=None, responses=ModelSerializer)
    def post(self, request: Request, project: str, model: str) -> Response:
        with matched(request, self.model, _document) as row:
            if self.verb == "archive":
                services.model_archive(model=row, actor=self.actor)
            else:
                services.model_restore(model=row, actor=self.actor)
        return tagged(request, _document(row))


class ModelImpact(ApiView):
    """What deleting a model would take with it."""

    @extend_schema(summary="Preview deleting a model", responses=ModelImpactSerializer)
    def get(self, request: Request, project: str, model: str) -> Response:
        return Response(model_impact(self.model).to_json())


def _document(model: RegisteredModel) -> dict[str, Any]:
    return dict(ModelSerializer(model).data)
