"""Accounts by the API: who may change what, what blocking stops, links and sessions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from registry.models import AuditEvent, Environment, User
from registry.services import accounts, people, tokens
from tests.console.conftest import PASSWORD, Cast

ANY = {"If-Match": "*"}


def sign_in(name: str) -> Client:
    client = Client()
    assert client.post("/login/", {"login": name, "password": PASSWORD}).status_code == 302
    return client


def test_an_administrator_changes_and_blocks(cast: Cast, api: Callable[..., APIClient]) -> None:
    alice, browser = api("alice"), sign_in("bob")
    seen = alice.get("/api/v1/users/bob/")
    body = {"email": "bob@example.com", "site_role": "operator"}
    changed = alice.patch("/api/v1/users/bob/", body, headers={"If-Match": seen.headers["ETag"]})
    assert (changed.json()["email"], changed.json()["site_role"]) == ("bob@example.com", "operator")
    event = AuditEvent.objects.get(action="user.update")
    assert event.before == {"email": "", "site_role": "none"}
    token = api("bob", "read")
    blocked = alice.patch("/api/v1/users/bob/", {"is_active": False}, headers=ANY)
    assert blocked.json()["is_active"] is False
    assert token.get("/api/v1/me/").status_code == 401
    assert browser.get("/").status_code == 302
    assert AuditEvent.objects.get(action="user.set_active").after == {"is_active": False, "tokens_revoked": 1}
    refused = Client()
    refused.post("/login/", {"login": "bob", "password": PASSWORD})
    assert refused.get("/").status_code == 302


def test_nothing_from_before_comes_back_with_an_account(cast: Cast, api: Callable[..., APIClient]) -> None:
    alice, browser, token = api("alice"), sign_in("bob"), api("bob", "read")
    for wanted in (False, True):
        answer = alice.patch("/api/v1/users/bob/", {"is_active": wanted}, headers=ANY)
        assert answer.json()["is_active"] is wanted
    assert token.get("/api/v1/me/").status_code == 401
    assert browser.get("/").status_code == 302
    assert api("bob", "read").get("/api/v1/me/").status_code == 200
    assert sign_in("bob").get("/settings/security/").status_code == 200


def test_keys_that_a_blocked_account_kept_do_not_come_back(cast: Cast, api: Callable[..., APIClient]) -> None:
    """Of accounts that were blocked by an earlier version, or made a key at the same moment."""
    token = api("bob", "read")
    User.objects.filter(pk=cast.bob.pk).update(is_active=False)
    assert api("alice").patch("/api/v1/users/bob/", {"is_active": True}, headers=ANY).status_code == 200
    assert token.get("/api/v1/me/").status_code == 401


def test_service_accounts_are_switched_with_their_keys(cast: Cast, api: Callable[..., APIClient]) -> None:
    robot = cast.trust_rule().service_account
    _row, text = tokens.token_create(owner=robot, name="ci", scopes=["read"], actor=cast.actor("alice"))
    caller = APIClient()
    caller.credentials(HTTP_AUTHORIZATION=f"Bearer {text}")
    for verb, status in (("disable", 401), ("enable", 200)):
        assert api("alice").post(f"/api/v1/service-accounts/robot/{verb}").status_code == 200
        assert caller.get("/api/v1/me/").status_code == status


@pytest.mark.parametrize("body", [{"site_role": "none"}, {"is_active": False}])
def test_nobody_locks_everybody_out(cast: Cast, api: Callable[..., APIClient], body: dict[str, Any]) -> None:
    alice = api("alice")
    assert alice.patch("/api/v1/users/alice/", body, headers=ANY).status_code == 409
    people.user_update(user=cast.vera, site_role="admin", actor=cast.actor("alice"))
    assert api("vera").patch("/api/v1/users/alice/", body, headers=ANY).status_code == 200
    assert api("vera").patch("/api/v1/users/vera/", body, headers=ANY).status_code == 409


def test_others_may_not(cast: Cast, api: Callable[..., APIClient]) -> None:
    bob = api("bob")
    assert bob.patch("/api/v1/users/vera/", {"is_active": False}, headers=ANY).status_code == 403
    assert bob.patch("/api/v1/users/bob/", {"site_role": "admin"}, headers=ANY).status_code == 403
    for verb in ("password-link", "reset-second-factors", "sessions/end"):
        assert bob.post(f"/api/v1/users/vera/{verb}").status_code == 403
    assert bob.get("/api/v1/users/vera/impact").status_code == 403
    assert bob.get("/api/v1/users/vera/sessions/").status_code == 403
    assert bob.get("/api/v1/users/charlie/").status_code == 404
    assert api("alice", "write").post("/api/v1/users/vera/password-link").status_code == 403


def test_impact_counts_what_stops(cast: Cast, api: Callable[..., APIClient]) -> None:
    sign_in("bob")
    cast.token("bob")
    accounts.membership_set(project=cast.project, user=cast.bob, role="admin", actor=cast.actor("alice"))
    accounts.membership_set(project=cast.project, user=cast.alice, role="viewer", actor=cast.actor("bob"))
    place = Environment.objects.create(slug="prod", name="Prod")
    place.approvers.add(cast.bob)
    assert api("alice").get("/api/v1/users/bob/impact").json() == {
        "sessions": 1,
        "tokens": 1,
        "uploads": 0,
        "open_requests": 0,
        "last_admin_of": ["wren"],
        "named_in": ["prod"],
    }


def test_a_link_sets_a_password_once_and_dies_with_a_sign_in(
    cast: Cast, api: Callable[..., APIClient], settings: Any
) -> None:
    made = api("alice").post("/api/v1/users/bob/password-link")
    assert made.status_code == 201
    link = made.json()["link"]
    assert link.startswith(f"{settings.PUBLIC_URL}/login/new-password/")
    assert link not in str(list(AuditEvent.objects.values_list("after", flat=True)))
    path = link.removeprefix(settings.PUBLIC_URL)
    client = Client()
    form, new = client.get(path)["Location"], "another long sentence"
    assert client.post(form, {"password1": new, "password2": new}).status_code == 302
    assert Client().post("/login/", {"login": "bob", "password": new}).status_code == 302
    User.objects.filter(pk=cast.bob.pk).update(last_login=timezone.now() - timedelta(hours=1))
    second = api("alice").post("/api/v1/users/bob/password-link").json()["link"].removeprefix(settings.PUBLIC_URL)
    Client().post("/login/", {"login": "bob", "password": new})
    assert 'data-testid="link-dead"' in Client().get(second).text
    User.objects.filter(pk=cast.bob.pk).update(is_active=False)
    assert api("alice").post("/api/v1/users/bob/password-link").status_code == 409


def test_sessions_are_seen_and_ended_by_their_owner_and_administrators(
    cast: Cast, api: Callable[..., APIClient]
) -> None:
    first, second = sign_in("bob"), sign_in("bob")
    bob = api("bob")
    rows = bob.get("/api/v1/users/bob/sessions/").json()["results"]
    assert len(rows) == 2
    assert "session_key" not in rows[0]
    ended = bob.post("/api/v1/users/bob/sessions/end", {"id": rows[0]["id"]})
    assert ended.json() == {"ended": 1}
    assert sorted(one.get("/").status_code for one in (first, second)) == [200, 302]
    assert api("alice").post("/api/v1/users/bob/sessions/end", {}).json() == {"ended": 1}
    assert bob.post("/api/v1/users/bob/sessions/end", {"id": rows[0]["id"]}).status_code == 404


def test_access_is_read_and_accounts_elsewhere_are_disconnected(cast: Cast, api: Callable[..., APIClient]) -> None:
    identity = SocialAccount.objects.create(user=cast.bob, provider="okta", uid="00u1")
    bob, alice = api("bob"), api("alice")
    found = bob.get("/api/v1/users/bob/access").json()
    assert found["memberships"] == [{"project": "wren", "role": "publisher", "given_by": None}]
    assert (found["has_password"], found["second_factors"]) == (True, [])
    assert [(one["provider"], one["subject"]) for one in found["identities"]] == [("okta", "00u1")]
    assert alice.get("/api/v1/users/bob/access").json() == found
    assert api("vera").get("/api/v1/users/bob/access").status_code == 403
    address = f"/api/v1/users/bob/identities/{identity.pk}/"
    assert alice.delete(address, headers=ANY).status_code == 403
    assert alice.get(f"/api/v1/users/vera/identities/{identity.pk}/").status_code == 404
    tag = bob.get(address).headers["ETag"]
    assert bob.delete(address, headers={"If-Match": tag}).status_code == 204
    assert bob.get(address).status_code == 404
    cast.bob.set_unusable_password()
    cast.bob.save()
    last = SocialAccount.objects.create(user=cast.bob, provider="okta", uid="00u1")
    assert bob.delete(f"/api/v1/users/bob/identities/{last.pk}/", headers=ANY).status_code == 409


def test_accounts_are_searched(cast: Cast, api: Callable[..., APIClient]) -> None:
    User.objects.filter(pk=cast.bob.pk).update(last_name="Breve")
    found = api("alice").get("/api/v1/users/?search=breVE").json()["results"]
    assert [row["username"] for row in found] == ["bob"]
    assert api("charlie").get("/api/v1/users/?search=bob").json()["results"] == []


def test_pages_for_administrators(cast: Cast, browse_as: Callable[[str], Client]) -> None:
    alice = browse_as("alice")
    page = alice.get("/settings/people/?q=bo").text
    assert "bob" in page and "charlie" not in page
    person = "/settings/people/bob/"
    assert 'data-testid="person-block"' in alice.get(person).text
    linked = alice.post(f"{person}act/", {"act": "password-link"})
    assert 'data-testid="password-link"' in linked.text
    assert linked["Cache-Control"] == "no-store"
    assert alice.post(f"{person}act/", {"act": "block"}).status_code == 302
    assert not User.objects.get(username="bob").is_active
    assert alice.post(f"{person}act/", {"act": "let-in"}).status_code == 302
    saved = alice.post(person, {"username": "bob", "site_role": "none", "email": "not an address"})
    assert saved.status_code == 422
    vera = browse_as("vera")
    assert vera.get(person).status_code == 403
    assert "charlie" not in vera.get("/settings/people/").text


@pytest.fixture
def browse_as(cast: Cast) -> Callable[[str], Client]:
    return sign_in
