"""API keys, service accounts and CI without secrets, through the API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rest_framework.test import APIClient

from registry.models import ApiToken, AuditEvent
from tests.console.conftest import Cast
from tests.registry.issuer import GITHUB, TestIssuer, listening

KEYS = "/api/v1/api-keys/"
ACCOUNTS = "/api/v1/service-accounts/"
EXCHANGE = "/api/v1/oidc/exchange"


def bearer(text: str, address: str = "127.0.0.1", **headers: str) -> APIClient:
    client = APIClient(REMOTE_ADDR=address)
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {text}", **headers)
    return client


@pytest.fixture
def issuer(settings: Any) -> Iterator[TestIssuer]:
    settings.ISSUER_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    with listening() as issuer:
        yield issuer


def test_a_key_is_rotated_with_both_shown_by_their_beginnings(cast: Cast, api: Callable[..., Any]) -> None:
    bob = api("bob")
    made = bob.post(KEYS, {"name": "ci", "scopes": ["read"]}).json()
    answer = bob.post(f"{KEYS}{made['id']}/rotate", {"overlap_hours": 2})
    assert answer.status_code == 200 and answer.headers["Cache-Control"] == "no-store"
    renewed = answer.json()
    assert renewed["token"] != made["token"] and renewed["previous_public_id"] == made["public_id"]
    for text in (made["token"], renewed["token"]):
        assert bearer(text).get("/api/v1/me/").json()["username"] == "bob"
    [row] = [row for row in bob.get(KEYS).json()["results"] if row["id"] == made["id"]]
    assert (row["public_id"], row["previous_public_id"]) == (renewed["public_id"], made["public_id"])
    assert row["previous_until"] and row["previous_used_at"] and row["last_used_ip"] == "127.0.0.1"
    assert "token" not in row
    for wrong in (-1, 169, "soon"):
        assert bob.post(f"{KEYS}{made['id']}/rotate", {"overlap_hours": wrong}).status_code == 400
    assert api("charlie").post(f"{KEYS}{made['id']}/rotate", {}).status_code == 404
    assert api("bob", "write").post(f"{KEYS}{made['id']}/rotate", {}).status_code == 403


def test_a_key_of_a_network_is_refused_elsewhere_also_behind_a_proxy(
    cast: Cast, api: Callable[..., Any], settings: Any
) -> None:
    made = api("bob").post(KEYS, {"name": "ci", "scopes": ["read"], "allowed_networks": ["10.1.0.0/16"]}).json()
    refused = bearer(made["token"], "192.0.2.1").get("/api/v1/me/")
    assert (refused.status_code, refused.json()["code"]) == (403, "permission_denied")
    assert "192.0.2.1" in refused.json()["detail"]
    assert bearer(made["token"], "10.1.2.3").get("/api/v1/me/").status_code == 200
    # Who says by himself that he comes from there is not believed; the site's proxy is.
    forged = bearer(made["token"], "192.0.2.1", HTTP_X_FORWARDED_FOR="10.1.2.3")
    assert forged.get("/api/v1/me/").status_code == 403
    settings.TRUSTED_PROXIES = ["192.0.2.1"]
    assert forged.get("/api/v1/me/").status_code == 200
    assert api("bob").get(f"{KEYS}{made['id']}/").json()["last_used_ip"] == "10.1.2.3"
    bad = api("bob").post(KEYS, {"name": "ci", "scopes": ["read"], "allowed_networks": ["10.1.2.3/8"]})
    assert (bad.status_code, bad.json()["errors"][0]["field"]) == (400, "allowed_networks")


def test_a_service_account_from_its_making_to_its_end(cast: Cast, api: Callable[..., Any]) -> None:
    alice = api("alice")
    assert api("bob").post(ACCOUNTS, {"username": "ci"}).status_code == 403
    assert api("bob").get(ACCOUNTS).json()["results"] == []
    assert api("bob").get(f"{ACCOUNTS}ci/").status_code == 404
    made = alice.post(ACCOUNTS, {"username": "ci"})
    assert made.status_code == 201, made.json()
    assert alice.post(ACCOUNTS, {"username": "ci"}).status_code == 400
    alice.post("/api/v1/projects/wren/members/", {"username": "ci", "role": "publisher"})
    key = alice.post(KEYS, {"name": "push", "scopes": ["write"], "owner": "ci"}).json()
    machine = bearer(key["token"])
    assert machine.post("/api/v1/projects/wren/models/", {"slug": "swift"}).status_code == 201

    found = alice.get(f"{ACCOUNTS}ci/")
    reach = found.json()["reach"]
    assert [row["project"] for row in reach["memberships"]] == ["wren"]
    assert [row["public_id"] for row in reach["tokens"]] == [key["public_id"]]
    assert [row["id"] for row in alice.get(f"{KEYS}?owner__username=ci").json()["results"]] == [key["id"]]

    assert alice.post(f"{ACCOUNTS}ci/disable").json()["is_active"] is False
    assert machine.get("/api/v1/me/").status_code == 401
    assert alice.post(f"{ACCOUNTS}ci/enable").json()["is_active"] is True
    assert machine.get("/api/v1/me/").status_code == 200
    assert alice.delete(f"{ACCOUNTS}ci/", headers={"If-Match": found.headers["ETag"]}).status_code == 204
    assert machine.get("/api/v1/me/").status_code == 401
    assert alice.get(f"{ACCOUNTS}ci/").status_code == 404
    assert alice.get("/api/v1/projects/wren/models/swift/").json()["slug"] == "swift"
    assert alice.post(ACCOUNTS, {"username": "ci"}).status_code == 400


def test_a_job_pushes_without_a_secret(cast: Cast, api: Callable[..., Any], issuer: TestIssuer) -> None:
    alice = api("alice")
    alice.post(ACCOUNTS, {"username": "ci"})
    alice.post("/api/v1/projects/wren/members/", {"username": "ci", "role": "publisher"})
    listed = alice.post("/api/v1/issuers/", {"slug": "own", "kind": "github", "url": issuer.url})
    assert listed.status_code == 201, listed.json()
    assert (listed.json()["keys"], listed.json()["keys_problem"]) == (2, "")
    body = {
        "name": "push",
        "issuer": "own",
        "service_account": "ci",
        "repository": "octo/swift",
        "repository_id": "4711",
        "owner_id": "99",
        "environment": "production",
        "scopes": ["write"],
    }
    rules = "/api/v1/projects/wren/trust-rules/"
    assert api("bob").post(rules, body).status_code == 403
    assert api("charlie").get(rules).status_code == 404
    made = alice.post(rules, body)
    assert made.status_code == 201, made.json()
    assert made.json()["events"] == ["push", "workflow_dispatch", "schedule", "release"]
    assert made.json()["protected_ref"] is True

    job = APIClient()
    audience = job.get(EXCHANGE).json()["audience"]
    got = job.post(EXCHANGE, {"assertion": issuer.token(audience, GITHUB), "project": "wren"})
    assert got.status_code == 201, got.json()
    assert got.headers["Cache-Control"] == "no-store"
    assert (got.json()["service_account"], got.json()["scopes"]) == ("ci", ["write"])
    pushing = bearer(got.json()["token"])
    assert pushing.post("/api/v1/projects/wren/models/", {"slug": "swift"}).status_code == 201
    event = AuditEvent.objects.get(action="model.create")
    assert event.actor_name == "ci: octo/swift@refs/heads/main run 123 via ci"
    assert pushing.post("/api/v1/projects/", {"slug": "x", "name": "X"}).status_code == 403
    assert pushing.get("/api/v1/projects/elsewhere/").status_code == 404
    # Nobody manages it: it ends by itself.
    assert str(ApiToken.objects.exclude(actor_name="").get().pk) not in alice.get(KEYS).content.decode()

    wrong = job.post(EXCHANGE, {"assertion": issuer.token(audience, GITHUB, environment="staging")})
    assert (wrong.status_code, wrong.json()["code"]) == (403, "permission_denied")
    assert "staging" in wrong.json()["detail"] and "production" not in wrong.json()["detail"]
    for assertion in ("rubbish", issuer.token("another", GITHUB), ""):
        refused = job.post(EXCHANGE, {"assertion": assertion})
        assert refused.status_code in (400, 401)
        assert refused.headers["Content-Type"] == "application/problem+json"


def test_an_issuer_that_is_away_is_503_with_a_time_to_try_again(
    cast: Cast, api: Callable[..., Any], issuer: TestIssuer
) -> None:
    issuer.documents.clear()
    listed = api("alice").post("/api/v1/issuers/", {"slug": "own", "kind": "github", "url": issuer.url})
    assert listed.status_code == 201 and "404" in listed.json()["keys_problem"]
    away = APIClient().post(EXCHANGE, {"assertion": issuer.token("x", GITHUB)})
    assert (away.status_code, away.json()["code"]) == (503, "issuer_unavailable")
    assert int(away.headers["Retry-After"]) > 0


def test_only_site_administrators_change_the_list_of_issuers(cast: Cast, api: Callable[..., Any]) -> None:
    cast.trust_rule()
    assert api("bob").post("/api/v1/issuers/", {"slug": "x", "kind": "github"}).status_code == 403
    assert [row["slug"] for row in api("bob").get("/api/v1/issuers/").json()["results"]] == ["github"]
    assert api("bob").post("/api/v1/issuers/github/read-keys").status_code == 403
    alice = api("alice")
    refused = alice.delete("/api/v1/issuers/github/", headers={"If-Match": "*"})
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    private = alice.post("/api/v1/issuers/", {"slug": "x", "kind": "gitlab", "url": "https://10.0.0.7"})
    assert (private.status_code, private.json()["errors"][0]["field"]) == (400, "url")
