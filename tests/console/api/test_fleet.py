"""Environments, fleets, and how nodes join and identify themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rest_framework.test import APIClient

from registry.models import JoinToken, ServingNode
from tests.console.conftest import NODE_ENDPOINTS, Cast, join_node


def words(**more: Any) -> dict[str, Any]:
    return {
        "name": "node-1",
        "endpoints": NODE_ENDPOINTS,
        "admin_secret": "s" * 40,
        "inventory": {"cpus": 2},
        "contract_version": 1,
        **more,
    }


def test_administrator_makes_environments_and_fleets_and_others_may_not(cast: Cast, api: Callable[..., Any]) -> None:
    alice, bob = api("alice"), api("bob")
    staging = {"slug": "staging", "name": "Staging", "requires_approval": True, "required_approvals": 2}
    assert bob.post("/api/v1/environments/", staging).status_code == 403
    assert alice.post("/api/v1/environments/", staging).status_code == 201
    assert alice.post("/api/v1/environments/", staging).status_code == 409
    body = {"slug": "edge", "name": "Edge", "environment": "staging", "selector": {"site": "edge"}}
    assert bob.post("/api/v1/fleets/", body).status_code == 403
    assert alice.post("/api/v1/fleets/", body).status_code == 201
    assert bob.get("/api/v1/fleets/edge/").json()["environment"] == "staging"
    change = {"requires_approval": False, "required_approvals": 1}
    assert bob.patch("/api/v1/environments/staging/", change, HTTP_IF_MATCH="*").status_code == 403
    assert alice.patch("/api/v1/environments/staging/", change, HTTP_IF_MATCH="*").json()["requires_approval"] is False


def test_node_joins_once_and_says_hello_with_its_own_token(cast: Cast, api: Callable[..., Any]) -> None:
    made = api("alice").post("/api/v1/join-tokens/", {"labels": {"environment": "development"}})
    assert made.status_code == 201
    token = made.json()["token"]
    assert token not in str(api("alice").get("/api/v1/join-tokens/").json())
    stranger = APIClient()
    joined = stranger.post("/api/v1/nodes/join/", words(token=token))
    assert joined.status_code == 201, joined.json()
    node = joined.json()["node"]
    assert JoinToken.objects.get().used_at is not None
    assert stranger.post("/api/v1/nodes/join/", words(token=token, name="node-2")).status_code == 403
    row = ServingNode.objects.get(pk=node)
    assert row.labels == {"environment": "development"}
    assert "s" * 40 not in row.admin_secret_sealed
    itself = APIClient()
    itself.credentials(HTTP_AUTHORIZATION=f"Bearer {joined.json()['node_token']}")
    hello = itself.post(f"/api/v1/nodes/{node}/hello/", words(inventory={"cpus": 4}))
    assert hello.json() == {"node": node, "epoch": 1}
    row.refresh_from_db()
    assert row.inventory == {"cpus": 4}
    listed = api("bob").get("/api/v1/nodes/").json()["results"]
    assert [(one["name"], one["is_reachable"]) for one in listed] == [("node-1", listed[0]["is_reachable"])]
    assert "admin_secret" not in str(listed)


def test_node_reaches_nothing_but_its_own_addresses(cast: Cast) -> None:
    node, token = join_node(cast)
    other, _token = join_node(cast, "node-2")
    itself = APIClient()
    itself.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
    for address in ("me/", "projects/", "nodes/", f"nodes/{node.pk}/", "fleets/", "audit/", "openapi.json"):
        assert itself.get(f"/api/v1/{address}").status_code == 401, address
    assert itself.post(f"/api/v1/nodes/{other.pk}/hello/", words()).status_code == 404
    assert itself.post(f"/api/v1/nodes/{node.pk}/retire", {}).status_code == 401


def test_people_cannot_speak_for_a_node(cast: Cast, api: Callable[..., Any]) -> None:
    node, _token = join_node(cast)
    assert api("alice").post(f"/api/v1/nodes/{node.pk}/hello/", words()).status_code == 404


def test_join_with_a_bad_token_or_incomplete_words_is_refused(cast: Cast) -> None:
    stranger = APIClient()
    assert stranger.post("/api/v1/nodes/join/", words(token="floj_unknown")).status_code == 403
    answer = stranger.post("/api/v1/nodes/join/", {"token": "floj_unknown"})
    assert answer.status_code == 400
    assert {problem["field"] for problem in answer.json()["errors"]} >= {"name", "endpoints", "admin_secret"}
    assert not ServingNode.objects.exists()


def test_operator_cordons_drains_and_retires(cast: Cast, api: Callable[..., Any]) -> None:
    node, token = join_node(cast)
    address = f"/api/v1/nodes/{node.pk}/"
    assert api("bob").post(f"{address}cordon").status_code == 403
    alice = api("alice")
    assert alice.post(f"{address}cordon").json()["is_schedulable"] is False
    assert alice.post(f"{address}uncordon").json()["is_schedulable"] is True
    ServingNode.objects.filter(pk=node.pk).update(state="ready")
    assert alice.post(f"{address}drain", {"deadline_seconds": 5}).json()["state"] == "draining"
    assert alice.post(f"{address}retire").json()["state"] == "retired"
    assert alice.post(f"{address}drain", {}).status_code == 409
    gone = APIClient()
    gone.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
    assert gone.post(f"{address}hello/", words()).status_code == 401
