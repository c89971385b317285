from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied as DjangoDenied
from django.db import OperationalError
from django.http import Http404
from django.test import Client, RequestFactory
from rest_framework import exceptions

from console.api.exceptions import handle
from console.middleware.problem_codes import catalogue
from console.middleware.problems import STATUS_BY_CODE, pointer
from registry import errors
from serving_node.contract.errors import ContractError


def answer(error: Exception) -> Any:
    response = handle(error, {"request": RequestFactory().get("/")})
    assert response is not None
    assert response.content_type == "application/problem+json"
    assert response.data["status"] == response.status_code
    assert response.data["request_id"]
    return response


@pytest.mark.parametrize("kind", errors.RegistryError.__subclasses__())
def test_every_error_of_the_domain_has_a_status(kind: type[errors.RegistryError]) -> None:
    assert answer(kind("A sentence.")).status_code == STATUS_BY_CODE[kind.code]


def test_fields_and_extras_reach_the_caller() -> None:
    fields = [{"field": "slug", "message": "Taken."}]
    document = answer(errors.ValidationFailed("Bad.", errors=fields, hint="try another")).data
    assert document["errors"] == [{**fields[0], "pointer": "#/slug"}]
    assert document["hint"] == "try another"
    assert document["code"] == "validation_failed"


def test_nested_problems_of_the_framework_get_dotted_paths() -> None:
    error = exceptions.ValidationError({"routes": [{"weight": ["Too big."]}, {}], "non_field_errors": ["Odd."]})
    assert answer(error).data["errors"] == [
        {"field": "routes[0].weight", "message": "Too big.", "pointer": "#/routes/0/weight"},
        {"field": "", "message": "Odd.", "pointer": "#"},
    ]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Http404(), 404, "not_found"),
        (DjangoDenied(), 403, "permission_denied"),
        (exceptions.NotAuthenticated(), 401, "not_authenticated"),
        (exceptions.MethodNotAllowed("PUT"), 405, "method_not_allowed"),
        (exceptions.UnsupportedMediaType("text/plain"), 415, "unsupported_media_type"),
        (exceptions.ParseError(), 400, "parse_error"),
        (ContractError("bad", field="max_batch_size"), 400, "validation_failed"),
        (OperationalError("connection refused to host secret-db"), 503, "service_unavailable"),
        (ZeroDivisionError("secret detail"), 500, "internal_server_error"),
    ],
)
def test_other_errors_become_problems_without_inner_details(error: Exception, status: int, code: str) -> None:
    response = answer(error)
    assert (response.status_code, response.data["code"]) == (status, code)
    assert "secret" not in str(response.data)


@pytest.mark.django_db
@pytest.mark.parametrize("address", ["/api/v1/projects/", "/api/v1/nothing", "/scim/v2/Users"])
def test_a_foreign_host_name_is_refused_in_a_sentence(client: Client, address: str) -> None:
    refused = client.get(address, headers={"Host": "evil.example"})
    assert (refused.status_code, refused.headers["Content-Type"]) == (400, "application/problem+json")
    assert refused.json()["detail"] == "This server does not answer to that host name."


@pytest.mark.django_db
def test_people_get_a_page_for_a_foreign_host_name(client: Client) -> None:
    refused = client.get("/login/", headers={"Host": "evil.example"})
    assert (refused.status_code, refused.headers["Content-Type"]) == (400, "text/html; charset=utf-8")


def test_every_code_that_is_raised_is_in_the_catalogue() -> None:
    """A code in ``problem(..., code="x")`` or ``ProtocolError(400, sentence, "x")`` needs a row in problem_codes."""
    known, found = catalogue(), set()
    for file in (Path(__file__).parents[3] / "console").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"problem", "ProtocolError"}:
                given = [keyword.value for keyword in node.keywords if keyword.arg == "code"] + node.args[2:3]
                found |= {one.value for one in given if isinstance(one, ast.Constant) and one.value}
    assert len(found) > 15
    assert found <= set(known)
    for code, row in known.items():
        assert row.title and row.meaning.endswith("."), code
    assert {row.code: row.status for row in known.values() if row.code in STATUS_BY_CODE} == STATUS_BY_CODE


@pytest.mark.parametrize(
    ("path", "wanted"),
    [("", "#"), ("slug", "#/slug"), ("a.b[2].c", "#/a/b/2/c"), ("a/b~c", "#/a~1b~0c"), ("[0][1]", "#/0/1")],
)
def test_a_dotted_path_becomes_a_pointer(path: str, wanted: str) -> None:
    assert pointer(path) == wanted
