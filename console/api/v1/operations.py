"""Long work."""

from __future__ import annotations

import uuid
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.etag import matched, tagged
from console.api.pagination import Listing
from console.api.schema import paged
from console.api.v1.serializers.operations import OperationSerializer
from console.api.views import ApiView
from registry.models import Operation
from registry.selectors import operations as selectors
from registry.services import operations as services


class OperationList(ApiView):
    """Operations of the caller's projects."""

    listing = Listing(("state", "kind", "subject_type", "subject_id", "project__slug"))

    @extend_schema(
        summary="List operations",
        responses=paged(OperationSerializer),
    )
    def get(self, request: Request) -> Response:
        rows = selectors.operations_visible_to(self.actor)
        return self.page(rows, OperationSerializer)


class OperationItem(ApiView):
    """One operation."""

    @extend_schema(summary="Read an operation", responses=OperationSerializer)
    def get(self, request: Request, operation: uuid.UUID) -> Response:
        return tagged(request, _document(selectors.operation_get(self.actor, operation)))


class OperationCancel(ApiView):
    """Ask an operation to stop."""

    checks_match = True

    @extend_schema(summary="Cancel an operation", request=None, responses=OperationSerializer)
    def post(self, request: Request, operation: uuid.UUID) -> Response:
        with matched(request, selectors.operation_get(self.actor, operation), _document) as row:
            cancelled = services.operation_cancel(operation=row, actor=self.actor)
        return tagged(request, _document(cancelled))


def _document(operation: Operation) -> dict[str, Any]:
    return dict(OperationSerializer(operation).data)
