"""What holds for every address: nobody gets in, outsiders learn nothing, and the description is complete."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from rest_framework.test import APIClient

from console.api.v1.urls import urlpatterns
from console.description import document
from tests.console.conftest import Cast

METHODS = ("get", "post", "put", "patch", "delete")
FILLED = {
    "project": "wren",
    "model": "finch",
    "version": "1",
    "username": "bob",
    "number": "1",
    "sha256": "0" * 64,
    "identity": "1",
}
ANY = {"If-Match": "*"}  # whatever is there now
PUBLIC = {
    ("nodes/join/", "post"),
    ("login-requests/", "post"),
    ("login-requests/claim", "post"),
    ("oidc/exchange", "get"),
    ("oidc/exchange", "post"),
}


def routes() -> Iterator[tuple[str, str]]:
    for pattern in urlpatterns:
        view = getattr(pattern.callback, "view_class", None)
        for method in METHODS:
            if view is not None and hasattr(view, method):
                yield str(pattern.pattern), method


def filled(route: str) -> str:
    def value(match: re.Match[str]) -> str:
        kind, _colon, name = match[1].partition(":")
        return str(uuid.UUID(int=7)) if kind == "uuid" else FILLED.get(name, "anything")

    return "/api/v1/" + re.sub(r"<([^>]+)>", value, route)


@pytest.mark.django_db
@pytest.mark.parametrize(("route", "method"), sorted(set(routes()) - PUBLIC))
def test_nobody_gets_in_without_identity(route: str, method: str) -> None:
    answer = getattr(APIClient(), method)(filled(route))
    assert answer.status_code == 401
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_outsiders_learn_nothing_about_a_project(cast: Cast, api: Callable[..., Any]) -> None:
    cast.version("finch")
    charlie = api("charlie")
    bodies: dict[str, Any] = {
        "projects/<slug:project>/members/": {"username": "charlie", "role": "admin"},
        "projects/<slug:project>/models/": {"slug": "finch"},
        "projects/<slug:project>/deployments/": {"model": "finch", "fleet": "none", "spec": {}},
        "projects/<slug:project>/deployments/plan": {"model": "finch", "fleet": "none", "spec": {}},
    }
    tried = 0
    for route, method in routes():
        if not route.startswith("projects/<slug:project>/"):
            continue
        present = getattr(charlie, method)(filled(route), bodies.get(route, {}), headers=ANY)
        absent = getattr(charlie, method)(
            filled(route).replace("/wren/", "/no-such/"), bodies.get(route, {}), headers=ANY
        )
        assert present.status_code == absent.status_code, (route, method, present.content)
        assert present.status_code in {404, 400}, (route, method, present.content)
        tried += 1
    assert tried > 25


def test_description_has_every_route() -> None:
    described = {(path, method) for path, operations in document()["paths"].items() for method in operations}
    for route, method in routes():
        if route != "openapi.json":
            path = "/api/v1/" + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", route)
            assert (path, method) in described
    assert ("/api/v1/uploads/{upload}", "patch") in described
    assert ("/api/v1/operations/{operation}/events", "get") in described


def test_description_is_served_and_its_operations_have_unique_names(cast: Cast, api: Callable[..., Any]) -> None:
    served = api("vera", "read").get("/api/v1/openapi.json").json()
    names = [operation["operationId"] for item in served["paths"].values() for operation in item.values()]
    assert len(names) == len(set(names))
    assert served["openapi"].startswith("3.1")
    checked_in = Path(__file__).parents[3] / "docs/reference/openapi.json"
    assert served == json.loads(checked_in.read_text())


def test_every_operation_says_how_it_refuses_and_what_it_takes() -> None:
    for path, item in document()["paths"].items():
        for method, operation in item.items():
            statuses, names = set(operation["responses"]), str(operation["parameters"])
            where = (path, method)
            assert operation["summary"] and operation["tags"], where
            assert method == "options" or {"400", "429", "503"} <= statuses, where
            if operation.get("security"):
                assert {"401", "403"} <= statuses, where
            if method in {"put", "patch", "delete"} and "uploads" not in path:
                assert {"412", "428"} <= statuses and "IfMatch" in names, where
            if method in {"post", "put", "patch"}:
                assert {"409", "413", "415"} <= statuses, where
            if path.endswith("/") and "results" in str(operation["responses"].get("200", {})):
                assert "Cursor" in names and "PageSize" in names, where


@pytest.mark.parametrize("address", ["no-such-thing", "projects/wren/models/a%0Ab/no-such-thing", "%0A"])
def test_unknown_address_is_a_problem(client: Client, address: str) -> None:
    answer = client.get(f"/api/v1/{address}")
    assert answer.status_code == 404
    assert answer.json()["code"] == "not_found"
