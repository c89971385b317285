"""Aliases through the API, and wherever an alias stands for a version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from registry.models import ModelVersion
from tests.console.conftest import Cast

MODEL = "/api/v1/projects/wren/models/finch/"
ALIASES = f"{MODEL}aliases/"
CHAMPION = f"{ALIASES}champion/"
DEPLOYMENTS = "/api/v1/projects/wren/deployments/"


@pytest.fixture
def version(cast: Cast) -> ModelVersion:
    cast.ready_version(content=b"one")
    return cast.ready_version(content=b"two")


def put(client: Any, body: dict[str, Any], **headers: str) -> Any:
    present = client.get(CHAMPION)
    tag = {"HTTP_IF_MATCH": present["ETag"]} if present.status_code == 200 else {"HTTP_IF_NONE_MATCH": "*"}
    return client.put(CHAMPION, body, **{**tag, **headers})


def test_an_alias_is_made_moved_listed_and_deleted(version: ModelVersion, cast: Cast, api: Callable[..., Any]) -> None:
    bob = api("bob")
    made = put(bob, {"version": 1})
    assert (made.status_code, made.json()["version"], made.json()["moved_by"]) == (201, 1, "bob")
    assert bob.put(CHAMPION, {"version": 2}).status_code == 428
    assert bob.put(CHAMPION, {"version": 2}, HTTP_IF_NONE_MATCH="*").status_code == 412
    moved = put(bob, {"version": "latest", "comment": "newest"})
    assert (moved.status_code, moved.json()["version"]) == (200, 2)
    assert put(bob, {"version": 1}, HTTP_IF_MATCH=made["ETag"]).status_code == 412
    assert [row["name"] for row in api("vera").get(ALIASES).json()["results"]] == ["champion"]
    assert api("vera").get(f"{MODEL}versions/2/").json()["aliases"] == ["champion"]
    assert bob.delete(CHAMPION, HTTP_IF_MATCH=made["ETag"]).status_code == 412
    assert bob.delete(CHAMPION, HTTP_IF_MATCH=moved["ETag"]).status_code == 204
    assert bob.get(CHAMPION).status_code == 404


def test_latest_is_computed_and_cannot_be_set(version: ModelVersion, cast: Cast, api: Callable[..., Any]) -> None:
    bob = api("bob")
    latest = bob.get(f"{ALIASES}latest/")
    assert latest.json()["version"] == 2 and latest.json()["is_computed"] is True
    answer = bob.put(f"{ALIASES}latest/", {"version": 1}, HTTP_IF_MATCH=latest["ETag"])
    assert answer.status_code == 400 and answer.json()["errors"][0]["field"] == "name"


@pytest.mark.parametrize(
    ("body", "status"),
    [({}, 400), ({"version": True}, 400), ({"version": 0}, 400), ({"version": 99}, 404), ({"version": "nobody"}, 404),
     ({"version": 1, "is_protected": "maybe"}, 400), ({"version": 1, "is_protected": True}, 403)],
)  # fmt: skip
def test_what_cannot_be_is_refused(
    body: dict[str, Any], status: int, version: ModelVersion, cast: Cast, api: Callable[..., Any]
) -> None:
    assert put(api("bob"), body).status_code == status
    assert api("bob").get(CHAMPION).status_code == 404


def test_it_stands_where_a_version_is_named(version: ModelVersion, cast: Cast, api: Callable[..., Any]) -> None:
    bob = api("bob")
    assert put(bob, {"version": 1}).status_code == 201
    assert bob.get(f"{MODEL}versions/champion/").json()["number"] == 1
    one = bob.get(f"{MODEL}versions/1/download?path=model.onnx")["ETag"]
    assert bob.get(f"{MODEL}versions/champion/download?path=model.onnx")["ETag"] == one
    assert bob.get(f"{MODEL}versions/nobody/").status_code == 404

    cast.environment("dev", approvals=0)
    spec = {"routes": [{"version": "champion", "role": "live", "weight": 100}]}
    body = {"model": "finch", "fleet": "dev", "spec": spec}
    planned = bob.post(f"{DEPLOYMENTS}plan", body).json()
    assert planned["spec"]["routes"][0]["version"] == 1
    deployed = bob.post(DEPLOYMENTS, body)
    assert deployed.status_code == 202, deployed.content
    address = f"{DEPLOYMENTS}{deployed.json()['deployment']}/"
    tried = bob.post(f"{address}infer", {"version": "champion", "inputs": [{"name": "x"}]})
    assert tried.status_code == 202, tried.content

    # What is deployed stays what it was.
    assert put(bob, {"version": 2}).status_code == 200
    assert bob.get(address).json()["deployment"]["spec"]["routes"][0]["version"] == 1
    assert bob.post(f"{address}infer", {"version": "champion", "inputs": [{"name": "x"}]}).status_code == 400
    other = {"routes": [{"version": "nobody", "weight": 100}]}
    refused = bob.post(f"{address}plan", {"spec": other})
    assert refused.json()["errors"][0]["field"] == "routes[0].version"


def test_traffic_is_moved_by_alias(version: ModelVersion, cast: Cast, api: Callable[..., Any]) -> None:
    bob = api("bob")
    put(bob, {"version": 1})
    cast.environment("dev", approvals=0)
    first = {"model": "finch", "fleet": "dev", "spec": {"routes": [{"version": 1, "weight": 100}]}}
    address = f"{DEPLOYMENTS}{bob.post(DEPLOYMENTS, first).json()['deployment']}/"
    routes = [{"version": 1, "weight": 90}, {"version": 2, "role": "canary", "weight": 10}]
    assert bob.post(DEPLOYMENTS, {**first, "spec": {"routes": routes}}).status_code == 202
    moved = bob.post(f"{address}routes", {"weights": {"champion": 60, "latest": 40}})
    assert moved.status_code == 202, moved.content
    spec = bob.get(address).json()["deployment"]["spec"]
    assert [(route["version"], route["weight"]) for route in spec["routes"]] == [(1, 60), (2, 40)]
