"""The audit log."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.schema import paged
from console.api.v1.serializers.operations import AuditSerializer
from console.api.views import ApiView
from registry.selectors.audit import audit_visible_to

_FILTERS = ("action", "object_type", "object_id", "actor_name", "project_id", "request_id")


class AuditList(ApiView):
    """Events of the caller's projects, newest first."""

    @extend_schema(
        summary="List audit events",
        parameters=[OpenApiParameter(name) for name in _FILTERS],
        responses=paged(AuditSerializer),
    )
    def get(self, request: Request) -> Response:
        return self.page(audit_visible_to(self.actor), AuditSerializer, filters=_FILTERS)
