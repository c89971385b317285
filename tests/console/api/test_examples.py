"""The description shows an example of every operation, and each is what the description says.

After a change of what is sent or answered: ``FLOTILLA_UPDATE_EXAMPLES=1 pytest tests/console/api/test_examples.py``,
which calls everything in the world of tests/console/api/world.py, then ``make docs``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from console.api.examples import FILE, success_of
from console.description import document
from tests.console.api.test_permission_matrix import bearer, call
from tests.console.api.test_routes import routes
from tests.console.api.world import World, body_for, cut_off, make_world
from tests.console.conftest import Cast

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)")
_SECRET = re.compile(r"(flo(?:n|j|s)?_[0-9a-f]{4,}|whsec)_[\w+/=.~-]+")
_PEM = re.compile(r"(-----BEGIN [A-Z ]+-----\n).*?(\n-----END)", re.DOTALL)
_CURSOR = re.compile(r"cursor=[\w%=-]+")
# What people would send where the world's body is only there to be refused for the right reason.
REQUESTS: dict[str, Any] = {
    "post /api/v1/nodes/join/": {
        "token": "floj_...",
        "name": "node-2",
        "endpoints": {"http": "http://10.0.0.5:8000", "admin": "http://10.0.0.5:8003"},
        "admin_secret": "a text of at least 32 characters that only this node knows",
        "contract_version": 1,
    },
    "post /api/v1/oidc/exchange": {"assertion": "eyJhbGciOiJSUzI1NiIs...", "project": "wren"},
    "post /api/v1/login-requests/claim": {"secret": "flor_..."},
    "post /api/v1/projects/{project}/deployments/{deployment}/infer": {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0.1, 0.2, 0.3, 0.4]}]
    },
}


_IDENTITY = {"node": "01a20000-0000-7000-8000-000000000009", "node_token": "flon_...", "epoch": 1}
RESPONSES: dict[str, Any] = {
    "post /api/v1/nodes/join/": _IDENTITY,
    "post /api/v1/nodes/{node}/hello/": _IDENTITY,
    "post /api/v1/oidc/exchange": {
        "token": "floj_...",
        "expires_at": "2026-11-22T09:15:00Z",
        "project": "wren",
        "rule": "push",
        "service_account": "robot",
        "scopes": ["read", "write"],
    },
    "post /api/v1/login-requests/claim": {
        "token": "flo_...",
        "username": "alice",
        "scopes": ["read", "write"],
        "project": None,
        "expires_at": "2026-12-22T09:00:00Z",
    },
    "post /api/v1/projects/{project}/models/{model}/versions/{version}/conversion": {
        "kind": "conversion",
        "verdict": "pass",
        "summary": "Converted from a TorchScript file; the answers agree.",
        "evidence": {},
        "log": "",
        "started_at": "2026-11-22T09:00:00Z",
        "finished_at": "2026-11-22T09:00:01Z",
    },
    "get /api/v1/projects/{project}/models/{model}/versions/{version}/preview": {
        "path": "labels.txt",
        "size": 12,
        "is_text": True,
        "text": "finch\nwren\n",
        "is_cut": False,
    },
}


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name (``post /api/v1/...``) and description of everything that takes or gives JSON."""
    for path, item in document()["paths"].items():
        for method, operation in item.items():
            if request_schema(operation) is not None or response_schema(operation) is not None:
                yield f"{method} {path}", operation


def request_schema(operation: dict[str, Any]) -> Any:
    return operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")


def response_schema(operation: dict[str, Any]) -> Any:
    return success_of(operation).get("content", {}).get("application/json", {}).get("schema")


class Plain:
    """Makes what is new in each run the same in each: ids, times, digests, secrets."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self(key): self(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self(one) for one in value[:2]]
        if isinstance(value, float):
            return round(value, 1)
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        text = _UUID.sub(self._id, text)
        text = _TIME.sub("2026-11-22T09:00:00Z", text)
        text = _SECRET.sub(r"\1_...", text)
        text = _CURSOR.sub("cursor=...", text)
        return _PEM.sub(r"\1...\2", text)

    def _id(self, match: re.Match[str]) -> str:
        return self._seen.setdefault(match[0], f"01a20000-0000-7000-8000-{len(self._seen) + 1:012x}")


def recorded(cast: Cast) -> dict[str, Any]:
    """Return what examples.json holds, by calling everything."""
    world, plain = make_world(cast), Plain()
    alice = bearer(cast.token("alice"))
    found: dict[str, Any] = {}
    described = dict(operations())
    for route, method in sorted(set(routes())):
        name = f"{method} /api/v1/" + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", route)
        if name not in described:
            continue
        example = found[name] = _example(world, alice, method, route, described[name], plain)
        if name in REQUESTS:
            example["request"] = REQUESTS[name]
    _lend(found, described)
    return {"parameters": plain(world.values), "operations": found}


def _example(
    world: World, client: Any, method: str, route: str, operation: dict[str, Any], plain: Plain
) -> dict[str, Any]:
    example: dict[str, Any] = {}
    if request_schema(operation) is not None:
        example["request"] = plain(body_for(world, method, route))
    if response_schema(operation) is not None:
        answer = call(world, client, method, route)
        if answer.status_code < 300:
            example["response"] = plain(answer.json())
    return example


def _lend(found: dict[str, Any], described: dict[str, dict[str, Any]]) -> None:
    """Show where the world refuses what is answered elsewhere in the same shape, alone or as a row of a list."""
    shapes: dict[str, Any] = {}
    for name, one in found.items():
        if "response" in one:
            schema = response_schema(described[name])
            shapes.setdefault(json.dumps(schema), one["response"])
            page = document()["components"]["schemas"].get(schema.get("$ref", "").rpartition("/")[2], {})
            rows = page.get("properties", {}).get("results", {}).get("items")
            if rows and one["response"]["results"]:
                shapes.setdefault(json.dumps(rows), one["response"]["results"][0])
    for name, one in found.items():
        shape = json.dumps(response_schema(described[name]))
        if name in RESPONSES:
            one["response"] = RESPONSES[name]
        elif "response" not in one and shape in shapes:
            one["response"] = shapes[shape]


@pytest.mark.django_db
@pytest.mark.skipif(not os.environ.get("FLOTILLA_UPDATE_EXAMPLES"), reason="writes examples.json only when asked to")
def test_examples_are_recorded(cast: Cast, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    cut_off(monkeypatch)
    settings.IMPORT_SOURCES = ["https://models.example.com/"]
    FILE.write_text(json.dumps(recorded(cast), indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def test_every_operation_has_an_example_that_is_right() -> None:
    known = json.loads(FILE.read_text())["operations"]
    described = dict(operations())
    assert set(known) - set(described) == set(), "These are gone; record anew."
    schemas = {"components": document()["components"]}
    wrong = []
    for name, operation in described.items():
        if "/uploads/" in name:
            continue
        for part, schema in (("request", request_schema(operation)), ("response", response_schema(operation))):
            if schema is None:
                continue
            if part not in known.get(name, {}):
                wrong.append(f"{name}: no example of the {part}")
                continue
            problems = Draft202012Validator(
                {**schema, **schemas}, format_checker=Draft202012Validator.FORMAT_CHECKER
            ).iter_errors(known[name][part])
            wrong += [f"{name} {part}: {one.json_path} {one.message[:200]}" for one in problems]
    assert not wrong, "Record with FLOTILLA_UPDATE_EXAMPLES=1:\n" + "\n".join(wrong)


def test_no_example_tells_a_secret() -> None:
    text = FILE.read_text()
    assert not re.search(r"flo\w*_[0-9a-f]{8,}_[A-Za-z0-9]{8,}", text)
    assert not re.search(r"whsec_[A-Za-z0-9+/]{8,}", text)
