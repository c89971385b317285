"""The OpenAPI document of the HTTP surface: the route table, and what is said here about each of its routes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from serving_node.frontends.http.openapi_schemas import SCHEMAS, Schema, ref
from serving_node.frontends.http.routes import Route, RouteTable
from serving_node.frontends.restricted_access import ApiCategory, RestrictedAccess

_JSON, _BINARY, _EVENTS = "application/json", "application/octet-stream", "text/event-stream"


@dataclass(frozen=True, slots=True)
class Operation:
    """What is said about one method of one route. ``request`` and ``response`` name schemas; "" means no body."""

    summary: str
    request: str = ""
    response: str = ""
    errors: tuple[int, ...] = ()


_INFERENCE_ERRORS = (400, 404, 500, 501, 503)
# By pattern and method. A test compares this with the route table: neither may have more than the other.
OPERATIONS: dict[tuple[str, str], Operation] = {
    ("/v2", "GET"): Operation("Name, version and extensions of the server", "", "ServerMetadata"),
    ("/v2/health/live", "GET"): Operation("200 while the server lives", errors=(400,)),
    ("/v2/health/ready", "GET"): Operation("200 while everything that should serve does", errors=(400,)),
    ("/v2/models/{m}{v}/ready", "GET"): Operation("200 while the model takes requests", errors=(400,)),
    ("/v2/models/{m}{v}", "GET"): Operation("Inputs and outputs of a model", "", "ModelMetadata", (404, 503)),
    ("/v2/models/{m}{v}/config", "GET"): Operation("Config of a model", "", "ModelConfig", (404, 503)),
    ("/v2/models/stats", "GET"): Operation("Statistics of all models", "", "Statistics"),
    ("/v2/models/{m}{v}/stats", "GET"): Operation("Statistics of a model", "", "Statistics", (400,)),
    ("/v2/models/{m}{v}/infer", "POST"): Operation(
        "Run a model on tensors", "InferRequest", "InferResponse", _INFERENCE_ERRORS
    ),
    ("/v2/models/{m}{v}/generate", "POST"): Operation(
        "Run a model on plain JSON, for one response", "GenerateRequest", "GenerateResponse", _INFERENCE_ERRORS
    ),
    ("/v2/models/{m}{v}/generate_stream", "POST"): Operation(
        "Run a model on plain JSON, with an event for each response",
        "GenerateRequest",
        "GenerateResponse",
        _INFERENCE_ERRORS,
    ),
    ("/v2/trace/setting", "GET"): Operation("Trace settings", "", "TraceSettings"),
    ("/v2/trace/setting", "POST"): Operation(
        "Change trace settings; null restores a default", "TraceSettings", "TraceSettings", (400, 501)
    ),
    ("/v2/models/{m}/trace/setting", "GET"): Operation("Trace settings of a model", "", "TraceSettings", (400,)),
    ("/v2/models/{m}/trace/setting", "POST"): Operation(
        "Change trace settings of a model", "TraceSettings", "TraceSettings", (400, 501)
    ),
    ("/v2/logging", "GET"): Operation("Log settings", "", "LogSettings"),
    ("/v2/logging", "POST"): Operation("Change log settings", "LogSettings", "LogSettings", (400, 501)),
    ("/v2/repository{repo}/index", "POST"): Operation("List the models", "IndexRequest", "Index", (400,)),
    ("/v2/repository/models/{m}/load", "POST"): Operation(
        "Load or reload a model; answers when it serves", "LoadRequest", "", (400, 500, 503)
    ),
    ("/v2/repository/models/{m}/unload", "POST"): Operation(
        "Stop serving a model", "UnloadRequest", "", (400, 500, 503)
    ),
    ("/openapi.json", "GET"): Operation("This document", "", ""),
}
for _kind, _schema in (("system", "SystemRegion"), ("cuda", "CudaRegion")):
    _prefix = f"/v2/{_kind}sharedmemory{{region}}"
    OPERATIONS[f"{_prefix}/status", "GET"] = Operation("Registered regions", "", "Regions", (404,))
    OPERATIONS[f"{_prefix}/register", "POST"] = Operation("Register a region", _schema, "", (400, 500, 501))
    OPERATIONS[f"{_prefix}/unregister", "POST"] = Operation("Unregister a region, or all", "", "", (501,))
# Forms of paths that are always refused are not described.
UNDESCRIBED = frozenset({"/v2/repository/[^/]+/models/{m}/(?:load|unload)"})
_OPTIONAL = {"{v}": "/versions/{version}", "{repo}": "/{repository}", "{region}": "/region/{region}"}
_DESCRIPTIONS = {
    "model": "Name of a model.",
    "version": "A version; without it the newest that is ready.",
    "repository": "Ignored: all repositories are listed.",
    "region": "Name of a shared memory region.",
}


def build(table: RouteTable, *, version: str, restricted: RestrictedAccess | None = None, tls: bool = False) -> Schema:
    """Return the document as JSON-ready dicts.

    ``restricted`` adds the headers that parts of the protocol ask for; ``tls`` is said in the description.
    """
    paths: dict[str, Schema] = {}
    for route in table.routes:
        if route.pattern in UNDESCRIBED:
            continue
        for path in _expand(route.pattern):
            item = paths.setdefault(path, {})
            for method in route.handlers:
                if (route.pattern, method) in OPERATIONS:
                    item[method.lower()] = _operation(route, method, path, restricted)
    document: Schema = {
        "openapi": "3.1.0",
        "info": {
            "title": "Inference",
            "version": version,
            "description": "The open inference protocol, version 2, with Triton's extensions. "
            + ("This port speaks TLS." if tls else "This port does not speak TLS.")
            + " What is served by GET is served by HEAD too. Errors have a JSON body.",
        },
        "paths": paths,
        "components": {"schemas": SCHEMAS, **_security_schemes(restricted)},
    }
    return document


def _expand(pattern: str) -> Iterator[str]:
    """Yield the paths of a pattern: with and without each optional part."""
    paths = [pattern.replace("{m}", "{model}")]
    for placeholder, text in _OPTIONAL.items():
        if placeholder in pattern:
            paths = [path.replace(placeholder, chosen) for path in paths for chosen in ("", text)]
    yield from paths


def _operation(route: Route, method: str, path: str, restricted: RestrictedAccess | None) -> Schema:
    said = OPERATIONS[route.pattern, method]
    operation: Schema = {
        "operationId": f"{method.lower()}{re.sub('[^A-Za-z0-9]+', '_', path).rstrip('_')}",
        "summary": said.summary,
        "tags": [route.category.value if route.category else "about"],
        "responses": {"200": _response(said, path)},
    }
    names = re.findall(r"{(\w+)}", path)
    if names:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "description": _DESCRIPTIONS[name], **_schema_of(name)}
            for name in names
        ]
    if said.request:
        operation["requestBody"] = _request(said, path)
    errors = said.errors
    if restricted is not None and route.category is not None and restricted.is_restricted(route.category):
        operation["security"] = [{_scheme_of(route.category): []}]
        errors = (*errors, 403)
    for status in sorted(errors):
        operation["responses"][str(status)] = {
            "description": "Refused",
            "content": {_JSON: {"schema": ref("Error")}},
        }
    return operation


def _request(said: Operation, path: str) -> Schema:
    content: Schema = {_JSON: {"schema": ref(said.request)}}
    if path.endswith("/infer"):
        content[_BINARY] = {
            "schema": {
                "type": "string",
                "format": "binary",
                "description": "JSON, as long as the header Inference-Header-Content-Length says, and the bytes of"
                " tensors behind it; all of the only input when the header is 0.",
            }
        }
    required = path.endswith(("/infer", "/generate", "/generate_stream", "/register"))
    return {"required": required, "content": content}


def _response(said: Operation, path: str) -> Schema:
    if path.endswith("/generate_stream"):
        stream: Schema = {"type": "string", "description": "`data: <GenerateResponse or Error>` for each response."}
        return {"description": "Events", "content": {_EVENTS: {"schema": stream}}}
    if path == "/openapi.json":
        return {"description": "Done", "content": {_JSON: {"schema": {"type": "object"}}}}
    if not said.response:
        return {"description": "Done"}
    content: Schema = {_JSON: {"schema": ref(said.response)}}
    if path.endswith("/infer"):
        content[_BINARY] = {"schema": {"type": "string", "format": "binary"}}
    return {"description": "Done", "content": content}


def _schema_of(name: str) -> Schema:
    return {"schema": {"type": "string", **({"pattern": "^[0-9]+$"} if name == "version" else {})}}


def _scheme_of(category: ApiCategory) -> str:
    return f"restricted-{category}"


def _security_schemes(restricted: RestrictedAccess | None) -> dict[str, Any]:
    """Return the headers of restricted parts, without their values."""
    if restricted is None:
        return {}
    schemes = {
        _scheme_of(category): {"type": "apiKey", "in": "header", "name": restricted.header_of(category)}
        for category in ApiCategory
        if restricted.is_restricted(category)
    }
    return {"securitySchemes": schemes}
