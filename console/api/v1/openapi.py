"""The API's own description: OpenAPI 3.1, made from the views, and what is served beside them."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.examples import add_examples
from console.api.links import add_links
from console.api.schema import PARAMETERS, PROBLEM, STRICT, refusals, refused_with, tags
from console.api.views import ApiView
from console.description import document

_TUS = {"name": "Tus-Resumable", "in": "header", "required": True, "schema": {"type": "string", "enum": ["1.0.0"]}}
_UUID = {"type": "string", "format": "uuid"}
_UPLOAD = {"name": "upload", "in": "path", "required": True, "schema": _UUID}
_OPERATION = {"name": "operation", "in": "path", "required": True, "schema": _UUID}
_LENGTH = {"name": "Upload-Length", "in": "header", "required": True, "schema": {"type": "integer", "minimum": 0}}
_OFFSET = {"name": "Upload-Offset", "in": "header", "required": True, "schema": {"type": "integer", "minimum": 0}}
_METADATA = {
    "name": "Upload-Metadata",
    "in": "header",
    "required": True,
    "description": (
        "Pairs of a key and a value in base64, with commas: `version` (id) and `path`; `sha256` of the whole; `part`, "
        "the number of a part; `xxh3` (128 bits) of what parts become, when they are joined."
    ),
    "schema": {"type": "string"},
}
_CHECKSUM = {
    "name": "Upload-Checksum",
    "in": "header",
    "description": (
        "`sha256` or `sha1`, and the digest of this chunk in base64; or `sha256-prefix` or `xxh3-prefix` (XXH3 of 128 "
        "bits, the bytes in canonical order), and that of everything up to its end. 460 when it differs."
    ),
    "schema": {"type": "string"},
}
_CONCAT = {
    "name": "Upload-Concat",
    "in": "header",
    "description": (
        "`partial`: a part, which goes beside others. `final;` and the addresses of parts, with spaces: one upload out "
        "of them, without Upload-Length; a worker joins them and requires the digest in the metadata."
    ),
    "schema": {"type": "string"},
}
_CHUNK = {"application/offset+octet-stream": {"schema": {"type": "string", "format": "binary"}}}


def _entry(
    operation_id: str,
    summary: str,
    status: str,
    parameters: list[Any],
    refused: tuple[int, ...],
    content: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "operationId": operation_id,
        "summary": summary,
        "tags": [operation_id.partition("_")[0]],
        "parameters": parameters,
        "security": [{"cookieAuth": []}, {"bearer": []}],
        "responses": {
            status: {"description": summary, **({"content": content} if content else {})},
            **refused_with(*refused),
        },
    }


def add_raw_routes(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Add what is served outside the framework: resumable uploads (tus 1.0.0) and the events of an operation.

    Has the signature of a post-processing hook of drf-spectacular.
    """
    known, one = (400, 401, 403, 404, 429, 503), [_TUS, _UPLOAD]
    result["paths"]["/api/v1/uploads/"] = {
        "options": {**_entry("uploads_capabilities", "What the server supports", "204", [], ()), "security": []},
        "post": _entry(
            "uploads_create",
            "Begin a resumable upload (tus 1.0.0)",
            "201",
            [_TUS, {**_LENGTH, "required": False}, _METADATA, _CONCAT],
            (*known, 409, 412, 413, 415, 507),
        ),
    }
    append = _entry(
        "uploads_append",
        "Send bytes at Upload-Offset",
        "204",
        [*one, _OFFSET, _CHECKSUM],
        (*known, 408, 409, 410, 412, 413, 415, 423, 460, 507),
    )
    result["paths"]["/api/v1/uploads/{upload}"] = {
        "head": _entry("uploads_offset", "Where the upload stands", "200", one, (*known, 410, 412)),
        "patch": {**append, "requestBody": {"required": True, "content": _CHUNK}},
        "delete": _entry("uploads_terminate", "End the upload", "204", one, (*known, 409, 410, 412, 423)),
    }
    result["paths"]["/api/v1/operations/{operation}/events"] = {
        "get": _entry(
            "operations_events",
            "Follow an operation (server-sent events)",
            "200",
            [_OPERATION],
            known,
            {"text/event-stream": {"schema": {"type": "string"}}},
        )
    }
    add_examples(result["paths"])
    add_links(result["paths"])
    components = result["components"]
    _close_bodies(result["paths"], components["schemas"])
    for schema in components["schemas"].values():
        _mend(schema.get("properties", {}))
    components["schemas"]["Problem"] = PROBLEM
    components["parameters"] = PARAMETERS
    _fill_queries(result["paths"])
    components["responses"] = refusals()
    used = {tag for item in result["paths"].values() for entry in item.values() for tag in entry["tags"]}
    result["tags"] = tags(used)
    return result


def _close_bodies(paths: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Say of the bodies that ``ApiView.read`` reads that they hold nothing else."""
    for item in paths.values():
        for entry in item.values():
            is_strict = entry.pop(STRICT, False)
            body = entry.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            name = str(body.get("$ref", "")).rpartition("/")[2]
            if is_strict and name and "properties" in schemas[name]:
                schemas[name]["additionalProperties"] = False


def _fill_queries(paths: dict[str, Any]) -> None:
    """Say that a parameter of the address has a value: without one it is refused."""
    entries = [entry for item in paths.values() for entry in item.values()]
    for one in (one for entry in entries for one in entry.get("parameters", []) if one.get("in") == "query"):
        schema = one["schema"]
        if schema.get("type") == "array":
            one["schema"] = {**schema, "minItems": 1}
        elif schema.get("type") == "string" and not {"enum", "format"} & set(schema):
            one["schema"] = {**schema, "minLength": 1}


def _mend(properties: dict[str, Any]) -> None:
    """Mend what the generator says of columns: anything or null but not both, and patterns in Python's dialect."""
    for schema in properties.values():
        if "\\w" in schema.get("pattern", ""):
            del schema["pattern"]  # letters of any script here, ASCII alone in the patterns of JSON Schema
        if schema.get("oneOf") == [{}, {"type": "null"}]:
            del schema["oneOf"]


class SchemaView(ApiView):
    """OpenAPI 3.1."""

    @extend_schema(exclude=True)
    def get(self, request: Request) -> Response:
        return Response(document())
