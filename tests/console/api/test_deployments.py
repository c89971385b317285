"""Deploying, approving, moving traffic, rolling back and trying out through the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from registry.models import Membership, Role
from registry.selectors.configs import config_latest as newest
from registry.services.configs import config_create
from tests.console.conftest import Cast, join_node

DEPLOYMENTS = "/api/v1/projects/wren/deployments/"


def spec(*weights: int) -> dict[str, Any]:
    roles = ["live", "canary"]
    return {
        "routes": [
            {"version": number, "config": 1, "role": roles[number - 1], "weight": weight}
            for number, weight in enumerate(weights, start=1)
        ]
    }


@pytest.fixture
def development(cast: Cast) -> Cast:
    cast.environment("development", approvals=0)
    cast.environment("production", approvals=1)
    join_node(cast, environment="development")
    cast.ready_version()
    return cast


def change(fleet: str, wanted: dict[str, Any]) -> dict[str, Any]:
    return {"model": "finch", "fleet": fleet, "spec": wanted, "comment": "please"}


def test_deploy_without_approval_starts_a_rollout(development: Cast, api: Callable[..., Any]) -> None:
    bob = api("bob")
    plan = bob.post(f"{DEPLOYMENTS}plan", change("development", spec(100)))
    assert plan.status_code == 200, plan.json()
    assert plan.json()["needs_approval"] is False
    assert bob.get(DEPLOYMENTS).json()["results"] == []
    answer = bob.post(DEPLOYMENTS, change("development", spec(100)))
    assert answer.status_code == 202, answer.json()
    assert answer.json()["plan_digest"] == plan.json()["plan_digest"]
    operation = bob.get(answer.headers["Location"])
    assert (operation.status_code, operation.json()["kind"]) == (200, "deploy")
    address = f"{DEPLOYMENTS}{answer.json()['deployment']}/"
    seen = bob.get(address).json()
    assert [(route["version"], route["weight"]) for route in seen["routes"]] == [(1, 100)]
    assert [node["name"] for node in seen["nodes"]] == ["node-1"]
    assert seen["rollout"]["phase"] in {"pending", "progressing"}
    assert bob.get(f"{address}rollouts/").json()["results"][0]["kind"] == "deploy"
    assert bob.get(DEPLOYMENTS + "?fleet__slug=development").json()["results"][0]["served_name"] == "finch"
    assert bob.post(f"{address}plan", {"spec": spec(100)}).status_code == 200


def test_second_version_gets_traffic_and_is_rolled_back(development: Cast, api: Callable[..., Any]) -> None:
    development.ready_version(content=b"other weights")
    bob = api("bob")
    first = bob.post(DEPLOYMENTS, change("development", spec(100))).json()
    address = f"{DEPLOYMENTS}{first['deployment']}/"
    assert bob.post(DEPLOYMENTS, change("development", spec(90, 10))).status_code == 202
    tag = bob.get(address).headers["ETag"]
    moved = bob.post(f"{address}routes", {"weights": {"1": 50, "2": 50}}, HTTP_IF_MATCH=tag)
    assert moved.status_code == 202, moved.json()
    stale = bob.post(f"{address}routes", {"weights": {"1": 0, "2": 100}}, HTTP_IF_MATCH=tag)
    assert (stale.status_code, stale.json()["code"]) == (412, "stale_write")
    assert sorted(route["weight"] for route in bob.get(address).json()["routes"]) == [50, 50]
    assert bob.post(f"{address}routes", {"weights": {"1": 101}}).status_code == 400
    assert bob.post(f"{address}routes", {"weights": {}}).status_code == 400
    assert bob.post(f"{address}rollback").status_code == 202
    assert api("vera").post(f"{address}rollback").status_code == 403


def test_production_waits_for_somebody_else(development: Cast, api: Callable[..., Any]) -> None:
    bob = api("bob")
    asked = bob.post(DEPLOYMENTS, change("production", spec(100)))
    assert asked.status_code == 202
    address = asked.headers["Location"]
    assert address == f"/api/v1/approvals/{asked.json()['approval']}/"
    Membership.objects.filter(user=development.bob).update(role=Role.ADMIN)
    request = bob.get(address).json()
    assert (request["state"], request["may_review"]) == ("open", False)
    assert request["may_review_reason"]
    decision = {"decision": "approve", "plan_digest": request["plan_digest"], "comment": "fine"}
    assert bob.post(f"{address}reviews/", decision).status_code == 403
    alice = api("alice")
    assert [row["id"] for row in alice.get("/api/v1/approvals/?inbox=1").json()["results"]] == [request["id"]]
    stale = alice.post(f"{address}reviews/", {**decision, "plan_digest": "0" * 64})
    assert (stale.status_code, stale.json()["code"]) == (412, "stale_write")
    approved = alice.post(f"{address}reviews/", decision)
    assert approved.status_code == 201, approved.json()
    assert approved.json()["state"] == "applied"
    assert alice.get(f"{address}reviews/").json()["results"][0]["reviewer"] == "alice"
    assert api("charlie").get(address).status_code == 404
    assert api("charlie").get("/api/v1/approvals/").json()["results"] == []


def test_request_shows_what_it_would_do_and_what_it_did(development: Cast, api: Callable[..., Any]) -> None:
    second = development.ready_version(content=b"other weights")
    config_create(
        model=second.model,
        body={**newest(second.model).body, "max_batch_size": 4},
        format="json",
        comment="Smaller batches",
        actor=development.actor("bob"),
    )
    bob, alice = api("bob"), api("alice")

    def ask(config: int, version: int) -> str:
        route = {"version": version, "config": config, "role": "live", "weight": 100}
        return str(bob.post(DEPLOYMENTS, change("production", {"routes": [route]})).headers["Location"])

    def approve(address: str) -> Any:
        digest = alice.get(address).json()["plan_digest"]
        return alice.post(f"{address}reviews/", {"decision": "approve", "plan_digest": digest}).json()

    first = approve(ask(1, 1))
    assert (first["state"], first["routes_before"], first["configs"][0]["replaces"]) == ("applied", [], None)
    address = ask(2, 2)
    for found in (alice.get(address).json(), approve(address), alice.get(address).json()):
        assert [route["version"] for route in found["routes_before"]] == [1]
        (version,), (config,) = found["versions"], found["configs"]
        assert (version["number"], version["manifest_digest"]) == (2, second.manifest_digest)
        assert version["signer"] is None
        assert {check["verdict"] for check in version["checks"]} <= {"pass", "warn"}
        assert (config["number"], config["replaces"], config["comment"]) == (2, 1, "Smaller batches")
        assert [(one["path"], one["after"]) for one in config["changes"]] == [("max_batch_size", 4)]
        assert set(found["target"]) == {"selector", "nodes", "requests_per_second"}


def test_request_is_taken_back_by_who_asked(development: Cast, api: Callable[..., Any]) -> None:
    address = api("bob").post(DEPLOYMENTS, change("production", spec(100))).headers["Location"]
    assert api("vera").post(f"{address}withdraw").status_code == 403
    assert api("bob").post(f"{address}withdraw").json()["state"] == "withdrawn"
    assert api("bob").post(f"{address}withdraw").status_code == 409


def test_prediction_is_an_operation(development: Cast, api: Callable[..., Any]) -> None:
    bob = api("bob")
    first = bob.post(DEPLOYMENTS, change("development", spec(100))).json()
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
    answer = bob.post(f"{DEPLOYMENTS}{first['deployment']}/infer", body)
    assert answer.status_code == 202, answer.json()
    operation = bob.get(answer.headers["Location"]).json()
    assert (operation["kind"], operation["state"]) == ("infer", "pending")
    assert bob.post(f"{answer.headers['Location']}cancel").json()["state"] == "cancelled"
    assert api("charlie").get(answer.headers["Location"]).status_code == 404
    assert bob.post(f"{DEPLOYMENTS}{first['deployment']}/infer", {"inputs": []}).status_code == 400


@pytest.mark.parametrize(
    "wanted",
    [{}, {"routes": "all"}, {"unknown": 1}, spec(50), {"routes": [{"version": 99, "weight": 100}]}],
)
def test_spec_that_makes_no_sense_is_400_and_leaves_nothing(
    development: Cast, api: Callable[..., Any], wanted: dict[str, Any]
) -> None:
    answer = api("bob").post(DEPLOYMENTS, change("development", wanted))
    assert answer.status_code == 400, answer.json()
    assert api("bob").get(DEPLOYMENTS).json()["results"] == []


def test_metrics_are_for_members(development: Cast, api: Callable[..., Any]) -> None:
    first = api("bob").post(DEPLOYMENTS, change("development", spec(100))).json()
    address = f"/api/v1/metrics/query?metric=request_rate,latency_p99&deployment={first['deployment']}"
    answer = api("bob").get(address)
    assert answer.status_code == 200, answer.json()
    assert [series["metric"] for series in answer.json()["series"]] == ["request_rate", "latency_p99"]
    assert api("charlie").get(address).status_code == 404
    assert api("charlie").get("/api/v1/metrics/query?metric=request_rate&by=version").status_code == 400
    assert api("bob").get("/api/v1/metrics/query?metric=cpu&by=node").status_code == 200
    assert api("bob").get("/api/v1/metrics/query?metric=no_such").status_code == 400
