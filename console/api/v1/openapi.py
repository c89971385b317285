"""The API's own description."""

from __future__ import annotations

from typing import Any, cast

from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.views import ApiView

_TUS = {"name": "Tus-Resumable", "in": "header", "required": True, "schema": {"type": "string", "enum": ["1.0.0"]}}
_UPLOAD = {"name": "upload", "in": "path", "required": True, "schema": {"type": "string", "format": "uuid"}}
_OPERATION = {"name": "operation", "in": "path", "required": True, "schema": {"type": "string", "format": "uuid"}}

_TEXT = {"type": "string"}
_PROBLEM = {
    "type": "object",
    "description": "Problem details (RFC 9457)",
    "properties": {
        "type": _TEXT,
        "title": _TEXT,
        "status": {"type": "integer"},
        "code": _TEXT,
        "detail": _TEXT,
        "errors": {"type": "array", "items": {"type": "object", "properties": {"field": _TEXT, "message": _TEXT}}},
        "request_id": _TEXT,
    },
    "required": ["type", "title", "status", "code", "detail", "errors", "request_id"],
}
_REFUSED = {
    "description": "Refused",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def _entry(operation_id: str, summary: str, status: str, parameters: list[Any], tag: str) -> dict[str, Any]:
    return {
        "operationId": operation_id,
        "summary": summary,
        "tags": [tag],
        "parameters": parameters,
        "responses": {status: {"description": summary}},
    }


def add_raw_routes(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Add what is served outside the framework: resumable uploads (tus 1.0.0) and the events of an operation.

    Has the signature of a post-processing hook of drf-spectacular.
    """
    one = [_TUS, _UPLOAD]
    result["paths"]["/api/v1/uploads/"] = {
        "options": _entry("uploads_capabilities", "What the server supports", "204", [], "uploads"),
        "post": _entry("uploads_create", "Begin a resumable upload (tus 1.0.0)", "201", [_TUS], "uploads"),
    }
    result["paths"]["/api/v1/uploads/{upload}"] = {
        "head": _entry("uploads_offset", "Where the upload stands", "200", one, "uploads"),
        "patch": _entry("uploads_append", "Send bytes at Upload-Offset", "204", one, "uploads"),
        "delete": _entry("uploads_terminate", "End the upload", "204", one, "uploads"),
    }
    result["components"]["schemas"]["Problem"] = _PROBLEM
    for operations in result["paths"].values():
        for operation in operations.values():
            operation["responses"].setdefault("default", _REFUSED)
    events = _entry("operations_events", "Follow an operation (server-sent events)", "200", [_OPERATION], "operations")
    result["paths"]["/api/v1/operations/{operation}/events"] = {"get": events}
    return result


def document() -> dict[str, Any]:
    """Return the OpenAPI 3 document of version 1."""
    return cast(dict[str, Any], SchemaGenerator().get_schema(request=None, public=True))  # type: ignore[no-untyped-call]


class SchemaView(ApiView):
    """OpenAPI 3."""

    @extend_schema(exclude=True)
    def get(self, request: Request) -> Response:
        return Response(document())
