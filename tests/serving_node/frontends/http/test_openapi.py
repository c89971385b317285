"""The OpenAPI document: valid, complete, and true about what is served."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from openapi_spec_validator import validate

from serving_node.frontends.http import HttpFrontend, openapi
from serving_node.frontends.restricted_access import RestrictedAccess, parse_group

jsonschema: Any = pytest.importorskip("jsonschema")
RESTRICTED = RestrictedAccess.for_http([parse_group("trace,model-repository:Admin-Key=secret")])


@pytest.fixture
def frontend() -> HttpFrontend:
    return HttpFrontend(cast(Any, MagicMock()))


def test_the_document_is_valid(frontend: HttpFrontend) -> None:
    validate(openapi.build(frontend.routes, version="1"))
    validate(openapi.build(frontend.routes, version="1", restricted=RESTRICTED, tls=True))


def test_every_route_is_described_and_no_other(frontend: HttpFrontend) -> None:
    served = {
        (route.pattern, method)
        for route in frontend.routes.routes
        for method in set(route.handlers) - {"HEAD"}
        if route.pattern not in openapi.UNDESCRIBED
    }
    assert served == set(openapi.OPERATIONS)
    document = openapi.build(frontend.routes, version="1")
    for path, item in document["paths"].items():
        concrete = path.replace("{version}", "1").encode()
        match = frontend.routes.match(concrete)
        assert match is not None, path
        assert {method.upper() for method in item} <= set(match.handlers)
    assert "/v2/models/{model}/versions/{version}/generate_stream" in document["paths"]


def test_restrictions_are_said_without_their_values(frontend: HttpFrontend) -> None:
    document = openapi.build(frontend.routes, version="1", restricted=RESTRICTED, tls=True)
    assert document["paths"]["/v2/trace/setting"]["get"]["security"] == [{"restricted-trace": []}]
    assert "403" in document["paths"]["/v2/trace/setting"]["get"]["responses"]
    assert "security" not in document["paths"]["/v2"]["get"]
    schemes = document["components"]["securitySchemes"]
    assert schemes["restricted-trace"] == {"type": "apiKey", "in": "header", "name": "Admin-Key"}
    assert set(schemes) == {"restricted-trace", "restricted-model-repository"}
    assert "secret" not in json.dumps(document)
    assert "speaks TLS" in document["info"]["description"]


@pytest.fixture
def connection(dataplane: Any, loop_thread: Any) -> Iterator[http.client.HTTPConnection]:
    frontend = loop_thread.call(lambda: HttpFrontend(dataplane))
    server = loop_thread.run(frontend.serve("127.0.0.1", 0))
    connection = http.client.HTTPConnection("127.0.0.1", server.sockets[0].getsockname()[1], timeout=60)
    yield connection
    connection.close()
    loop_thread.run(frontend.stop(1.0))


def ask(connection: http.client.HTTPConnection, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    connection.request(method, path, None if body is None else json.dumps(body))
    answer = connection.getresponse()
    content = answer.read()
    return answer.status, json.loads(content) if content else None


@pytest.mark.parametrize(
    ("method", "path", "described", "body"),
    [
        ("GET", "/v2", "/v2", None),
        ("GET", "/v2/models/echo", "/v2/models/{model}", None),
        ("GET", "/v2/models/nope", "/v2/models/{model}", None),
        ("GET", "/v2/models/stats", "/v2/models/stats", None),
        ("GET", "/v2/logging", "/v2/logging", None),
        ("POST", "/v2/repository/index", "/v2/repository/index", None),
        ("GET", "/v2/systemsharedmemory/status", "/v2/systemsharedmemory/status", None),
        ("POST", "/v2/systemsharedmemory/unregister", "/v2/systemsharedmemory/unregister", None),
        ("GET", "/v2/models/echo/config", "/v2/models/{model}/config", None),
        (
            "POST",
            "/v2/models/echo/infer",
            "/v2/models/{model}/infer",
            {"id": "1", "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]},
        ),
        ("POST", "/v2/models/echo/infer", "/v2/models/{model}/infer", {}),
        ("POST", "/v2/models/echo/generate", "/v2/models/{model}/generate", {"INPUT0": [1, 2, 3, 4]}),
    ],
)
def test_answers_are_as_described(
    connection: http.client.HTTPConnection, method: str, path: str, described: str, body: Any
) -> None:
    status, document = ask(connection, "GET", "/openapi.json")
    assert status == 200
    operation = document["paths"][described][method.lower()]
    schemas = {"components": document["components"]}
    if body:
        request = operation["requestBody"]["content"]["application/json"]["schema"]
        jsonschema.validate(body, {**schemas, **request})
    status, answer = ask(connection, method, path, body)
    content = operation["responses"][str(status)].get("content", {})
    assert bool(content) == (answer is not None)
    if content:
        jsonschema.validate(answer, {**schemas, **content["application/json"]["schema"]})
