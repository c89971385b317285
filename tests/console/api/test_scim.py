"""Provisioning by SCIM 2.0, as Okta and Microsoft Entra send it, over real HTTP."""

from __future__ import annotations

import uuid
from typing import Any

import httpx2
import pytest
from django.test import Client

from registry.models import AuditEvent, SsoProvider, User
from registry.services import people, scim_tokens
from registry.services.sso_sign_in import account_of_subject
from tests.console.conftest import Cast, RunningConsole

USER = "urn:ietf:params:scim:schemas:core:2.0:User"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
DORA = {
    "schemas": [USER],
    "userName": "dora@corp.example",
    "externalId": "00u1",
    "name": {"givenName": "Dora", "familyName": "Diaz"},
    "emails": [{"value": "dora@corp.example", "type": "work", "primary": True}],
    "active": True,
    "title": "not kept",
    "password": "not taken",
}


def patch(scim: httpx2.Client, user_id: str, *operations: dict[str, Any]) -> Any:
    return scim.patch(f"Users/{user_id}", json={"schemas": [PATCH], "Operations": list(operations)})


def test_the_life_of_an_account(scim: httpx2.Client, shared_cast: Cast, okta: SsoProvider) -> None:
    asked = scim.get("Users", params={"filter": 'userName eq "dora@corp.example"', "startIndex": 1, "count": 1})
    assert asked.headers["Content-Type"].startswith("application/scim+json")
    assert (asked.json()["totalResults"], asked.json()["Resources"]) == (0, [])
    made = scim.post("Users", json=DORA)
    assert made.status_code == 201, made.text
    document = made.json()
    assert made.headers["Location"] == document["meta"]["location"]
    kept = ("userName", "externalId", "name", "emails", "active")
    assert {name: document[name] for name in kept} == {name: DORA[name] for name in kept}
    user = User.objects.get(pk=document["id"])
    assert not user.has_usable_password() and user.site_role == "none"
    assert account_of_subject(provider=okta, subject="00u1") == user
    again = scim.post("Users", json=DORA)
    assert (again.status_code, again.json()["scimType"]) == (409, "uniqueness")
    found = scim.get("Users", params={"filter": 'externalId eq "00u1"'}).json()
    assert [one["id"] for one in found["Resources"]] == [document["id"]]
    assert scim.get(f"Users/{user.pk}").json() == document
    replaced = scim.put(f"Users/{user.pk}", json={**DORA, "name": {"givenName": "D."}, "emails": []}).json()
    assert (replaced["name"], replaced["emails"]) == ({"givenName": "D.", "familyName": ""}, [])
    assert scim.delete(f"Users/{user.pk}").status_code == 204
    assert scim.get(f"Users/{user.pk}").json()["active"] is False
    events = AuditEvent.objects.filter(object_id=str(user.pk)).order_by("created_at")
    assert [event.action for event in events] == ["user.create", "user.update", "user.set_active"]
    assert {event.actor_name for event in events} == {"SCIM: okta"}


@pytest.mark.parametrize("operation", [
    {"op": "replace", "value": {"active": False}},  # Okta
    {"op": "Replace", "path": "active", "value": "False"},  # Microsoft Entra
])  # fmt: skip
def test_blocking_stops_tokens_and_sessions_at_once(
    scim: httpx2.Client, shared_cast: Cast, console: RunningConsole, operation: dict[str, Any]
) -> None:
    bob = shared_cast.bob
    browser = Client()
    browser.post("/login/", {"login": "bob", "password": "correct horse battery"})
    token = console.client(shared_cast.token("bob", "read"))
    assert token.get("/api/v1/me/").status_code == browser.get("/").status_code == 200
    assert patch(scim, str(bob.pk), operation).json()["active"] is False
    assert token.get("/api/v1/me/").status_code == 401
    assert browser.get("/").status_code == 302
    assert patch(scim, str(bob.pk), {"op": "replace", "path": "active", "value": True}).json()["active"] is True
    assert token.get("/api/v1/me/").status_code == 401  # keys do not come back with the account
    assert browser.post("/login/", {"login": "bob", "password": "correct horse battery"}).status_code == 302
    assert browser.get("/").status_code == 200


def test_parts_are_changed(scim: httpx2.Client, shared_cast: Cast) -> None:
    answer = patch(
        scim,
        str(shared_cast.bob.pk),
        {"op": "add", "path": 'emails[type eq "work"].value', "value": "bob@corp.example"},
        {"op": "replace", "path": "name.givenName", "value": "Bob"},
        {"op": "replace", "path": "nickName", "value": "not kept"},
        {"op": "remove", "path": "externalId"},
    ).json()
    assert answer["emails"][0]["value"] == "bob@corp.example"
    assert answer["name"]["givenName"] == "Bob"
    found = scim.get("Users", params={"filter": 'emails.value eq "BOB@corp.example"'}).json()
    assert [one["userName"] for one in found["Resources"]] == ["bob"]


def test_administrators_are_blocked_but_not_changed_and_one_stays(scim: httpx2.Client, shared_cast: Cast) -> None:
    alice = str(shared_cast.alice.pk)
    changed = patch(scim, alice, {"op": "replace", "path": "userName", "value": "mallory"})
    assert changed.status_code == 403
    last = patch(scim, alice, {"op": "replace", "path": "active", "value": False})
    assert (last.status_code, last.json()["schemas"]) == (409, ["urn:ietf:params:scim:api:messages:2.0:Error"])
    people.user_update(user=shared_cast.vera, site_role="admin", actor=shared_cast.actor("alice"))
    assert patch(scim, alice, {"op": "replace", "path": "active", "value": False}).status_code == 200


def test_service_accounts_are_not_shown(scim: httpx2.Client, shared_cast: Cast) -> None:
    machine = User.objects.create(username="machine", is_service=True)
    assert scim.get(f"Users/{machine.pk}").status_code == 404
    names = [one["userName"] for one in scim.get("Users").json()["Resources"]]
    assert "machine" not in names and "bob" in names
    page = scim.get("Users", params={"startIndex": 2, "count": 1}).json()
    assert (page["startIndex"], page["itemsPerPage"], page["totalResults"]) == (2, 1, len(names))


@pytest.mark.parametrize(("body", "kind"), [
    ([], "invalidSyntax"),
    ({"Operations": []}, "invalidSyntax"),
    ({"Operations": [{"op": "jump", "path": "active"}]}, "invalidSyntax"),
    ({"Operations": [{"op": "replace", "path": "active", "value": "perhaps"}]}, "invalidValue"),
    ({"Operations": [{"op": "remove"}]}, "noTarget"),
    ({"Operations": [{"op": "remove", "path": "userName"}]}, "mutability"),
    ({"Operations": [{"op": "replace", "value": "x"}]}, "invalidValue"),
    ({"Operations": [{"op": "replace", "path": "userName", "value": ["x"]}]}, "invalidValue"),
    ({"Operations": [{"op": "replace", "path": "userName", "value": "no spaces allowed"}]}, "invalidValue"),
])  # fmt: skip
def test_bad_changes_say_what_is_wrong(scim: httpx2.Client, shared_cast: Cast, body: Any, kind: str) -> None:
    answer = scim.patch(f"Users/{shared_cast.bob.pk}", json=body)
    assert (answer.status_code, answer.json()["scimType"]) == (400, kind), answer.text
    assert answer.json()["detail"]


def test_other_filters_and_addresses_are_refused(scim: httpx2.Client) -> None:
    for text in ('userName sw "a"', "userName eq alice", 'password eq "x"', 'userName eq "a" or id eq "b"'):
        assert scim.get("Users", params={"filter": text}).json()["scimType"] == "invalidFilter"
    assert scim.get("Devices").status_code == 404
    assert scim.get(f"Users/{uuid.uuid4()}").status_code == 404
    assert scim.get("Users", params={"filter": 'id eq "no id"'}).json()["totalResults"] == 0
    bad = scim.post("Users", content=b"{")
    assert (bad.status_code, bad.json()["status"]) == (400, "400")


def test_the_service_describes_itself(scim: httpx2.Client) -> None:
    config = scim.get("ServiceProviderConfig").json()
    assert (config["patch"]["supported"], config["bulk"]["supported"]) == (True, False)
    assert scim.get("ResourceTypes").json()["Resources"][0]["endpoint"] == "/Users"
    assert scim.get("Schemas").json()["Resources"][0]["id"] == USER


def test_only_its_own_tokens_open_it_and_they_open_nothing_else(
    scim: httpx2.Client, console: RunningConsole, shared_cast: Cast
) -> None:
    address = f"{console.url}/scim/v2/Users"
    for headers in ({}, {"Authorization": f"Bearer {shared_cast.token('alice')}"}, {"Authorization": "Bearer scim_x"}):
        refused = httpx2.get(address, headers=headers, trust_env=False, timeout=30)
        assert (refused.status_code, refused.json()["status"]) == (401, "401")
        assert refused.headers["WWW-Authenticate"].startswith("Bearer")
    own = scim.headers["Authorization"]
    assert (
        httpx2.get(f"{console.url}/api/v1/me/", headers={"Authorization": own}, trust_env=False, timeout=30).status_code
        == 401
    )
    browser = Client()
    browser.force_login(shared_cast.alice)
    assert browser.get("/scim/v2/Users").status_code == 401
    row = scim_tokens.ScimToken.objects.get()
    scim_tokens.scim_token_revoke(token=row, actor=shared_cast.actor("alice"))
    assert scim.get("Users").status_code == 401
