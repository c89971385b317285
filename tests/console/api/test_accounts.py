"""Accounts, members, tokens and the audit log through the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from registry.models import ApiToken, AuditEvent, Membership, User
from tests.console.conftest import PASSWORD, Cast

MEMBERS = "/api/v1/projects/wren/members/"


def test_second_user_is_made_and_given_a_role(cast: Cast, api: Callable[..., Any]) -> None:
    alice = api("alice")
    body = {"username": "dora", "password": PASSWORD}
    assert api("bob").post("/api/v1/users/", body).status_code == 403
    made = alice.post("/api/v1/users/", body)
    assert made.status_code == 201, made.json()
    assert PASSWORD not in made.content.decode()
    weak = alice.post("/api/v1/users/", {"username": "emil", "password": "password"})
    assert (weak.status_code, weak.json()["errors"][0]["field"]) == (400, "password")
    assert alice.post(MEMBERS, {"username": "dora", "role": "approver"}).json()["role"] == "approver"
    assert api("bob").post(MEMBERS, {"username": "bob", "role": "admin"}).status_code == 403
    assert {row["username"]: row["role"] for row in alice.get(MEMBERS).json()["results"]}["dora"] == "approver"
    assert alice.delete(f"{MEMBERS}dora/", HTTP_IF_MATCH="*").status_code == 204
    assert not Membership.objects.filter(user__username="dora").exists()
    assert User.objects.filter(username="dora").exists()


def test_token_shows_its_secret_once_and_is_revoked(cast: Cast, api: Callable[..., Any]) -> None:
    bob = api("bob")
    body = {"name": "ci", "scopes": ["read", "write"], "project": "wren"}
    made = bob.post("/api/v1/api-keys/", body, HTTP_IDEMPOTENCY_KEY=f"token-{cast.project.pk}")
    assert made.status_code == 201, made.json()
    secret, key = made.json()["token"], made.json()["id"]
    assert secret not in bob.get("/api/v1/api-keys/").content.decode()
    assert secret.rpartition("_")[2] not in str(list(AuditEvent.objects.values()))
    assert api("charlie").delete(f"/api/v1/api-keys/{key}/", HTTP_IF_MATCH="*").status_code == 404
    assert bob.delete(f"/api/v1/api-keys/{key}/", HTTP_IF_MATCH="*").status_code == 204
    assert ApiToken.objects.get(pk=key).revoked_at is not None
    foreign = bob.post("/api/v1/api-keys/", {"name": "x", "scopes": ["read"], "owner": "alice"})
    assert foreign.status_code == 403
    outside = bob.post("/api/v1/api-keys/", {"name": "x", "scopes": ["read"], "project": "elsewhere"})
    assert outside.status_code == 404


def test_audit_is_filtered_by_membership(cast: Cast, api: Callable[..., Any]) -> None:
    api("bob").post("/api/v1/projects/wren/models/", {"slug": "finch"})
    seen = api("vera").get("/api/v1/audit/?action=model.create").json()["results"]
    assert [(event["actor_name"], event["object_label"]) for event in seen] == [("bob", "finch")]
    assert api("charlie").get("/api/v1/audit/?action=model.create").json()["results"] == []


def test_projects_of_others_are_not_listed(cast: Cast, api: Callable[..., Any]) -> None:
    for name, slugs in (("bob", ["wren"]), ("charlie", ["elsewhere"])):
        assert [row["slug"] for row in api(name).get("/api/v1/projects/").json()["results"]] == slugs
    assert {row["username"] for row in api("charlie").get("/api/v1/users/").json()["results"]} == {"charlie"}


def test_a_token_of_one_project_sees_no_more_than_that_project(cast: Cast, api: Callable[..., Any]) -> None:
    cast.token("alice")
    narrow = api("alice")
    narrow.credentials(HTTP_AUTHORIZATION=f"Bearer {cast.token('alice', project=cast.project)}")
    assert "charlie" not in {row["username"] for row in narrow.get("/api/v1/users/").json()["results"]}
    assert {row["project"] for row in narrow.get("/api/v1/api-keys/").json()["results"]} == {"wren"}
