"""Protection of environments through the API: read, changed, felt, bypassed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from registry.models import AuditEvent
from tests.console.conftest import Cast

PRODUCTION = "/api/v1/environments/production/"
NIGHT = {"name": "night", "effect": "deny", "cron": "0 0 * * *", "duration_minutes": 360, "time_zone": "Europe/Berlin"}
ROUTES = {"routes": [{"version": 1, "weight": 100}]}


@pytest.fixture
def production(cast: Cast) -> Cast:
    cast.environment("production", approvals=1)
    cast.ready_version("finch")
    return cast


def change(client: Any, address: str = PRODUCTION, **body: Any) -> Any:
    return client.patch(address, body, headers={"If-Match": client.get(address).headers["ETag"]})


def ask(client: Any) -> dict[str, Any]:
    body = {"model": "finch", "fleet": "production", "spec": ROUTES}
    answer = client.post("/api/v1/projects/wren/deployments/", body)
    return dict(client.get(f"/api/v1/approvals/{answer.json()['approval']}/").json())


def test_protection_is_read_and_changed(production: Cast, api: Callable[..., Any]) -> None:
    alice, bob = api("alice"), api("bob")
    rules = {
        "approvers": ["bob"],
        "approver_role": "operator",
        "required_checks": [{"kind": "smoke", "allow_warn": True}],
        "wait_minutes": 30,
        "windows": [NIGHT],
        "admins_bypass": True,
        "bypassers": ["alice"],
    }
    changed = change(alice, **rules)
    assert changed.status_code == 200, changed.json()
    assert bob.get(PRODUCTION).json() == {**bob.get(PRODUCTION).json(), **rules}
    listed = {row["slug"]: row for row in bob.get("/api/v1/environments/").json()["results"]}
    assert listed["production"] == bob.get(PRODUCTION).json()
    assert change(bob, wait_minutes=1).status_code == 403
    event = AuditEvent.objects.get(action="environment.update")
    assert (event.before["wait_minutes"], event.after["wait_minutes"]) == (0, 30)
    assert event.after["approvers"] == ["bob"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"approvers": ["nobody"]}, "approvers"),
        ({"wait_minutes": 43_201}, "wait_minutes"),
        ({"windows": [{**NIGHT, "cron": "99 * * * *"}]}, "windows[0].cron"),
        ({"windows": [{**NIGHT, "time_zone": "Europe"}]}, "windows[0].time_zone"),
        ({"required_checks": [{"kind": "nonsense"}]}, "required_checks[0].kind"),
        ({"approver_role": "viewer"}, "approver_role"),
        ({"required_approvals": 2, "approvers": ["bob"]}, "approvers"),
    ],
)
def test_bad_rules_are_refused_with_their_field(
    production: Cast, api: Callable[..., Any], body: dict[str, Any], field: str
) -> None:
    answer = change(api("alice"), **body)
    assert answer.status_code == 400, answer.json()
    assert field in [error["field"] for error in answer.json()["errors"]]


def test_windows_say_when_they_open(production: Cast, api: Callable[..., Any]) -> None:
    alice = api("alice")
    change(alice, windows=[NIGHT])
    closed = alice.get(f"{PRODUCTION}windows?at=2026-06-01T00:30:00Z").json()
    assert closed == {
        "at": "2026-06-01T00:30:00Z",
        "is_open": False,
        "opens_at": "2026-06-01T04:00:00Z",
        "closed_by": "night",
    }
    assert alice.get(f"{PRODUCTION}windows?at=2026-06-01T12:00:00%2B02:00").json()["is_open"] is True
    assert alice.get(f"{PRODUCTION}windows").status_code == 200
    for bad in ("yesterday", "2026-06-01T00:30:00", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "2026-13-01"):
        assert alice.get(f"{PRODUCTION}windows?at={bad}").status_code == 400, bad


def test_a_plan_shows_the_rules_and_the_request_waits(production: Cast, api: Callable[..., Any]) -> None:
    alice, bob = api("alice"), api("bob")
    change(alice, required_checks=[{"kind": "latency"}], wait_minutes=5)
    body = {"model": "finch", "fleet": "production", "spec": ROUTES}
    plan = bob.post("/api/v1/projects/wren/deployments/plan", body).json()
    assert [finding["rule"] for finding in plan["protection"]] == ["approvals", "checks", "wait"]
    request = ask(bob)
    assert {finding["standing"] for finding in request["protection"]} == {"unmet", "waits"}
    assert request["still_asked"] == ["alice"]
    change(alice, required_checks=[])
    address = f"/api/v1/approvals/{request['id']}/"
    decided = alice.post(f"{address}reviews/", {"decision": "approve", "plan_digest": request["plan_digest"]})
    assert decided.status_code == 201, decided.json()
    assert decided.json()["state"] == "approved"
    assert decided.json()["due_at"] is not None
    assert alice.post(f"{address}withdraw").json()["state"] == "withdrawn"


def test_comments_need_words_and_no_digest(production: Cast, api: Callable[..., Any]) -> None:
    request = ask(api("bob"))
    reviews = f"/api/v1/approvals/{request['id']}/reviews/"
    vera = api("vera")
    assert vera.post(reviews, {"decision": "comment", "comment": " "}).status_code == 400
    answer = vera.post(reviews, {"decision": "comment", "comment": "Why now?"})
    assert answer.status_code == 201
    assert answer.json()["state"] == "open"
    assert vera.get(reviews).json()["results"][0]["decision"] == "comment"
    assert api("charlie").post(reviews, {"decision": "comment", "comment": "x"}).status_code == 404


def test_rules_are_bypassed_with_a_reason(production: Cast, api: Callable[..., Any]) -> None:
    alice, bob = api("alice"), api("bob")
    request = ask(bob)
    address = f"/api/v1/approvals/{request['id']}/bypass"
    body = {"reason": "The site is down.", "plan_digest": request["plan_digest"]}
    assert alice.post(address, body).status_code == 403
    change(alice, admins_bypass=True)
    assert alice.get(f"/api/v1/approvals/{request['id']}/").json()["may_bypass"] is True
    assert bob.post(address, body).status_code == 403
    assert alice.post(address, {**body, "reason": ""}).status_code == 400
    assert alice.post(address, {**body, "plan_digest": "0" * 64}).status_code == 412
    done = alice.post(address, body)
    assert done.status_code == 200, done.json()
    assert (done.json()["state"], done.json()["bypassed_by"]) == ("applied", "alice")
    assert done.json()["bypass_reason"] == "The site is down."
    assert alice.post(address, body).status_code == 409


def test_environments_and_fleets_are_deleted_while_unused(production: Cast, api: Callable[..., Any]) -> None:
    alice = api("alice")

    def delete(address: str) -> int:
        return int(alice.delete(address, headers={"If-Match": alice.get(address).headers["ETag"]}).status_code)

    ask(api("bob"))
    assert delete(PRODUCTION) == 409
    assert delete("/api/v1/fleets/production/") == 409
    production.environment("spare", approvals=0)
    moved = change(alice, "/api/v1/fleets/spare/", name="Spare", selector={"site": "edge"})
    assert (moved.json()["name"], moved.json()["selector"]) == ("Spare", {"site": "edge"})
    assert delete("/api/v1/fleets/spare/") == 204
    assert delete("/api/v1/environments/spare/") == 204
    assert alice.get("/api/v1/environments/spare/").status_code == 404
