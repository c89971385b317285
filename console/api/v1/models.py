"""Registered models."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.etag import matched, tagged
from console.api.pagination import Listing
from console.api.schema import paged
from console.api.v1.serializers.catalog import ModelChange, ModelSerializer, ModelWrite
from console.api.views import ApiView
from registry.models import RegisteredModel
from registry.selectors.models import models_visible_to
from registry.services import models as services


class ModelList(ApiView):
    """Models of a project."""

    listing = Listing(("slug", "owner__username"), orderings=("slug", "created_at"))

    @extend_schema(summary="List models", responses=paged(ModelSerializer))
    def get(self, request: Request, project: str) -> Response:
        rows = models_visible_to(self.actor).filter(project=self.project)
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

    @extend_schema(summary="Change description or tags", request=ModelChange, responses=ModelSerializer)
    def patch(self, request: Request, project: str, model: str) -> Response:
        with matched(request, self.model, _document) as row:
            changed = services.model_update(model=row, **self.read(ModelChange), actor=self.actor)
        return tagged(request, _document(changed))


def _document(model: RegisteredModel) -> dict[str, Any]:
    return dict(ModelSerializer(model).data)
