"""The links of the description lead somewhere: whatever links is called, and every link of its answer followed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction

from console.description import document
from tests.console.api.test_permission_matrix import REFUSED, bearer
from tests.console.api.test_routes import routes
from tests.console.api.world import QUERIES, World, body_for, cut_off, make_world
from tests.console.conftest import Cast

pytestmark = pytest.mark.django_db

Json = dict[str, Any]
# Of these the world has none, or what they are called with is refused; their links are judged by form alone.
_NOT_HERE = {
    *(f"post {route}" for route in REFUSED),
    "post rollouts/<uuid:rollout>/retry",
    "post projects/<slug:project>/models/<str:model>/versions/<str:version>/uploads/",
    "post projects/<slug:project>/models/<str:model>/versions/<str:version>/submit",
    "post projects/<slug:project>/models/<str:model>/versions/<str:version>/measurements/",
    "post webhooks/<uuid:webhook>/deliveries/<uuid:delivery>/replay",
    "post projects/<slug:project>/models/<str:model>/versions/<str:version>/files/",
    "post projects/<slug:project>/models/<str:model>/versions/<str:version>/checks/<slug:kind>/rerun",
    "post operations/<uuid:operation>/cancel",
    "post projects/<slug:project>/deployments/<uuid:deployment>/rollback",
    "post approvals/<uuid:approval>/bypass",
}
# What is new has none of these.
_NOT_YET = {"card_item_get", "version_download_get", "version_preview_get", "version_compare_get", "config_item_get"}
# A stream does not end by itself.
_STREAMS = {"operations_events"}


def linked() -> Iterator[tuple[str, str, str, Json]]:
    """Yield method, path, status and links of each answer that has some."""
    for path, item in document()["paths"].items():
        for method, operation in item.items():
            for status, answer in operation["responses"].items():
                if "links" in answer:
                    yield method, path, status, answer


def by_id() -> dict[str, tuple[str, str, Json]]:
    """Return method, path and description of each operation."""
    return {
        operation["operationId"]: (method, path, operation)
        for path, item in document()["paths"].items()
        for method, operation in item.items()
    }


def resolve(schema: Json) -> Json:
    """Return what a schema refers to."""
    name = schema.get("$ref", "").rpartition("/")[2]
    return document()["components"]["schemas"][name] if name else schema


def test_every_link_names_an_operation_and_all_of_its_parameters() -> None:
    known, count = by_id(), 0
    for method, path, status, answer in linked():
        fields = resolve(answer["content"]["application/json"]["schema"])["properties"]
        for name, link in answer["links"].items():
            where = f"{method} {path} {status} -> {name}"
            _method, target, _operation = known[link["operationId"]]
            assert set(link["parameters"]) == set(re.findall(r"\{(\w+)\}", target)), where
            for value in link["parameters"].values():
                pointer = value.partition("$response.body#/")[2]
                first, _slash, rest = pointer.partition("/")
                if not pointer:
                    assert f"{{{value.removeprefix('$request.path.')}}}" in path, where
                elif rest:
                    assert rest.removeprefix("0/") in resolve(fields[first]["items"])["properties"], where
                else:
                    assert first in fields, where
            count += 1
    assert count > 250


def test_what_is_made_is_read_where_the_links_of_the_answer_lead(
    shared_cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(monkeypatch)
    world, known, followed, lost = make_world(shared_cast), by_id(), 0, []
    alice = bearer(shared_cast.token("alice"))
    found = {(method, path): answer for method, path, _status, answer in linked()}
    for route, method in sorted(set(routes())):
        path = "/api/v1/" + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", route)
        if (method, path) not in found or f"{method} {route}" in _NOT_HERE:
            continue
        with transaction.atomic():
            sent = getattr(alice, method)(
                world.address(route) + QUERIES.get(route, ""), body_for(world, method, route), format="json", **_MATCH
            )
            assert 200 <= sent.status_code < 300, (method, route, sent.content)
            for link in found[method, path]["links"].values():
                verb, target, _operation = known[link["operationId"]]
                if verb != "get" or link["operationId"] in _STREAMS:
                    continue
                address = _address(world, route, target, link["parameters"], sent.json())
                if address is not None:
                    answer = alice.get(address + _query(target))
                    followed += 1
                    if answer.status_code != 200 and link["operationId"] not in _NOT_YET:
                        lost.append((route, address, answer.content))
            transaction.set_rollback(True)
    assert lost == []
    assert followed > 80


_MATCH = {"HTTP_IF_MATCH": "*"}


def _query(target: str) -> str:
    plain = {re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", route): query for route, query in QUERIES.items()}
    return plain.get(target.removeprefix("/api/v1/"), "")


def _address(world: World, route: str, target: str, parameters: Json, body: Json) -> str | None:
    """Return the address of a link; None where the answer names nothing there."""
    for name, value in parameters.items():
        at: Any = world.values.get(value.removeprefix("$request.path."))
        if value.startswith("$response.body#/"):
            at = body
            for step in value.removeprefix("$response.body#/").split("/"):
                if isinstance(at, list) and not at:
                    return None
                at = at[int(step)] if isinstance(at, list) else at[step]
        if at is None:
            return None
        target = target.replace(f"{{{name}}}", str(at))
    return target
