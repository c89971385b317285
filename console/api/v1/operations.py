"""Long work."""

from __future__ import annotations

import uuid

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.schema import paged
from console.api.v1.serializers.operations import OperationSerializer
from console.api.views import ApiView
from registry.selectors import operations as selectors
from registry.services import operations as services


class OperationList(ApiView):
    """Operations of the caller's projects."""

    @extend_schema(
        summary="List operations",
        parameters=[OpenApiParameter("state"), OpenApiParameter("kind"), OpenApiParameter("subject_id")],
        responses=paged(OperationSerializer),
    )
    def get(self, request: Request) -> Response:
        rows = selectors.operations_visible_to(self.actor)
        return self.page(rows, OperationSerializer, filters=("state", "kind", "subject_type", "subject_id"))


class OperationItem(ApiView):
    """One operation."""

    @extend_schema(summary="Read an operation", responses=OperationSerializer)
    def get(self, request: Request, operation: uuid.UUID) -> Response:
        return Response(OperationSerializer(selectors.operation_get(self.actor, operation)).data)


class OperationCancel(ApiView):
    """Ask an operation to stop."""

    @extend_schema(summary="Cancel an operation", request=None, responses=OperationSerializer)
    def post(self, request: Request, operation: uuid.UUID) -> Response:
        row = selectors.operation_get(self.actor, operation)
        row = services.operation_cancel(operation=row, actor=self.actor)
        return Response(OperationSerializer(row).data)
