"""Groups by SCIM 2.0, as Okta and Microsoft Entra send them, over real HTTP: what they give comes and goes at once."""

from __future__ import annotations

import threading
from typing import Any

import httpx2
import pytest
from allauth.socialaccount.models import SocialAccount
from django.db import connections

from registry.domain.scim import PATCH
from registry.domain.scim_groups import GROUP, MemberStep
from registry.models import AuditEvent, Membership, ScimGroup, SsoProvider, User
from registry.services import scim_groups, scim_tokens, sso
from registry.services.sso_sign_in import groups_apply
from tests.console.conftest import Cast, RunningConsole


@pytest.fixture
def rules(shared_cast: Cast, okta: SsoProvider) -> None:
    """Members of ml publish in wren; those of the group with the provider's id 8aa1 approve; ops operate the site."""
    alice = shared_cast.actor("alice")
    for group, role in (("ml", "publisher"), ("8aa1", "approver")):
        sso.group_mapping_create(provider=okta, group=group, project=shared_cast.project, role=role, actor=alice)
    sso.group_mapping_create(provider=okta, group="ops", role="operator", actor=alice)


def make(scim: httpx2.Client, **more: Any) -> str:
    made = scim.post("Groups", json={"schemas": [GROUP], **more})
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def patch(scim: httpx2.Client, group: str, *operations: dict[str, Any]) -> None:
    answer = scim.patch(f"Groups/{group}", json={"schemas": [PATCH], "Operations": list(operations)})
    assert answer.status_code == 204, answer.text


def roles(user: User) -> dict[str, str]:
    return dict(Membership.objects.filter(user=user).values_list("project__slug", "role"))


def members(*users: User) -> list[dict[str, Any]]:
    return [{"$ref": None, "value": str(user.pk)} for user in users]


@pytest.mark.usefixtures("rules")
def test_okta_pushes_a_group_renames_and_deletes_it(scim: httpx2.Client, shared_cast: Cast) -> None:
    charlie = shared_cast.charlie
    empty = scim.get("Groups", params={"startIndex": 1, "count": 100}).json()
    assert (empty["totalResults"], empty["Resources"]) == (0, [])
    group = make(scim, displayName="ml", members=[{"value": str(charlie.pk), "display": "charlie"}])
    assert roles(charlie) == {"elsewhere": "admin", "wren": "publisher"}
    found = scim.get("Groups", params={"filter": 'displayName eq "ml"'}).json()["Resources"]
    assert [(one["id"], one["members"][0]["display"]) for one in found] == [(group, "charlie")]
    patch(
        scim,
        group,
        {"op": "remove", "path": f'members[value eq "{charlie.pk}"]'},
        {"op": "add", "path": "members", "value": [{"value": str(shared_cast.vera.pk), "display": "vera"}]},
    )
    assert "wren" not in roles(charlie)
    patch(scim, group, {"op": "add", "path": "members", "value": members(charlie)})
    patch(scim, group, {"op": "replace", "value": {"id": group, "displayName": "was ml"}})
    assert "wren" not in roles(charlie)
    whole = {"schemas": [GROUP], "displayName": "ml", "members": members(charlie)}
    replaced = scim.put(f"Groups/{group}", json=whole)
    assert (replaced.status_code, len(replaced.json()["members"])) == (200, 1)
    assert roles(charlie)["wren"] == "publisher"
    assert scim.delete(f"Groups/{group}").status_code == 204
    assert "wren" not in roles(charlie) and scim.get(f"Groups/{group}").status_code == 404
    assert roles(shared_cast.vera) == {"wren": "viewer"}, "what a person gave stays"
    events = AuditEvent.objects.filter(object_id=group).order_by("created_at").values_list("action", flat=True)
    assert [*events] == ["scim_group.create", *["scim_group.update"] * 4, "scim_group.delete"]


@pytest.mark.usefixtures("rules")
def test_entra_provisions_a_group_by_its_object_id(scim: httpx2.Client, shared_cast: Cast) -> None:
    charlie = shared_cast.charlie
    extra = "http://schemas.microsoft.com/2006/11/ResourceManagement/ADSCIM/2.0/Group"
    body = {
        "schemas": [GROUP, extra],
        "externalId": "8aa1",
        "displayName": "Reviewers",
        "meta": {"resourceType": "Group"},
    }
    group = scim.post("Groups", json={**body, "meta": {"resourceType": "Group"}}).json()["id"]
    looked = {"excludedAttributes": "members", "filter": 'displayName eq "Reviewers"'}
    assert "members" not in scim.get("Groups", params=looked).json()["Resources"][0]
    assert "members" not in scim.get(f"Groups/{group}", params={"excludedAttributes": "members"}).json()
    patch(scim, group, {"op": "Add", "path": "members", "value": members(charlie)})
    assert roles(charlie)["wren"] == "approver"
    held = {"filter": f'id eq "{group}" and members eq "{charlie.pk}"', "attributes": "id"}
    assert scim.get("Groups", params=held).json()["totalResults"] == 1
    patch(scim, group, {"op": "Replace", "path": "displayName", "value": "Checkers"})
    assert roles(charlie)["wren"] == "approver"
    patch(scim, group, {"op": "Remove", "path": "members", "value": members(charlie)})
    assert "wren" not in roles(charlie)
    assert scim.get("Groups", params=held).json()["totalResults"] == 0
    assert scim.delete(f"Groups/{group}").status_code == 204


@pytest.mark.usefixtures("rules")
def test_whoever_leaves_can_do_nothing_with_the_next_request(
    scim: httpx2.Client,
    shared_cast: Cast,
    console: RunningConsole,
) -> None:
    group = make(scim, displayName="ml", members=members(shared_cast.charlie))
    with console.client(shared_cast.token("charlie")) as charlie:
        assert charlie.post("/api/v1/projects/wren/models/", json={"slug": "owl"}).status_code == 201
        patch(scim, group, {"op": "remove", "path": "members"})
        assert charlie.get("/api/v1/projects/wren/models/").status_code == 404


@pytest.mark.usefixtures("rules")
def test_site_roles_come_and_go_and_a_mapping_works_at_once(
    scim: httpx2.Client,
    shared_cast: Cast,
    okta: SsoProvider,
) -> None:
    make(scim, displayName="ops", members=members(shared_cast.bob))
    assert User.objects.get(pk=shared_cast.bob.pk).site_role == "operator"
    sso.group_mapping_delete(mapping=okta.mappings.get(group="ops"), actor=shared_cast.actor("alice"))
    assert User.objects.get(pk=shared_cast.bob.pk).site_role == "none"
    sso.group_mapping_create(provider=okta, group="ops", role="operator", actor=shared_cast.actor("alice"))
    assert User.objects.get(pk=shared_cast.bob.pk).site_role == "operator"


@pytest.mark.usefixtures("rules")
def test_old_claims_of_a_kept_group_count_no_more_and_other_claims_do(
    scim: httpx2.Client,
    shared_cast: Cast,
    okta: SsoProvider,
) -> None:
    charlie = shared_cast.charlie
    said = {"userinfo": {"groups": ["ml", "ops"]}}
    SocialAccount.objects.create(user=charlie, provider="okta", uid="00u1", extra_data=said)
    groups_apply(user=charlie, provider=okta, groups=["ml", "ops"])
    group = make(scim, displayName="ml", members=members(charlie))
    patch(scim, group, {"op": "remove", "path": "members"})
    assert "wren" not in roles(charlie)
    assert User.objects.get(pk=charlie.pk).site_role == "operator"
    groups_apply(user=charlie, provider=okta, groups=["ml"])
    assert "wren" not in roles(charlie), "SCIM decides about a group that it keeps"
    assert User.objects.get(pk=charlie.pk).site_role == "none"
    patch(scim, group, {"op": "add", "path": "members", "value": members(charlie)})
    assert scim.delete(f"Groups/{group}").status_code == 204
    assert "wren" not in roles(charlie), "the claim is as old as the group"


def test_what_cannot_be_is_refused(scim: httpx2.Client, shared_cast: Cast, console: RunningConsole) -> None:
    group = make(scim, displayName="ml")
    taken = scim.post("Groups", json={"displayName": "ml"})
    assert (taken.status_code, taken.json()["scimType"]) == (409, "uniqueness")
    assert scim.post("Groups", json={"members": []}).status_code == 400
    robot = User.objects.create(username="robot", is_service=True)
    for user in (robot, User(username="nobody")):
        refused = scim.post("Groups", json={"displayName": "x", "members": members(user)})
        assert (refused.status_code, refused.json()["scimType"]) == (400, "invalidValue"), refused.text
    assert not ScimGroup.objects.filter(display_name="x").exists(), "nothing half-made"
    assert scim.get("Groups", params={"filter": 'displayName co "m"'}).json()["scimType"] == "invalidFilter"
    other = sso.sso_provider_create(
        slug="entra",
        name="E",
        issuer="https://e.example",
        client_id="x",
        client_secret="y",
        actor=shared_cast.actor("alice"),
    )
    for provider, status in ((other, 201), (None, 403)):
        _row, token = scim_tokens.scim_token_create(name="t", provider=provider, actor=shared_cast.actor("alice"))
        with console.client(token) as stranger:
            assert stranger.get(f"/scim/v2/Groups/{group}").status_code == 404
            assert stranger.get("/scim/v2/Groups").json()["totalResults"] == 0
            assert stranger.post("/scim/v2/Groups", json={"displayName": "ml"}).status_code == status


def test_the_service_describes_groups(scim: httpx2.Client) -> None:
    types = scim.get("ResourceTypes").json()["Resources"]
    assert [one["endpoint"] for one in types] == ["/Users", "/Groups"]
    assert scim.get("ResourceTypes/Group").json() == types[1]
    assert scim.get(f"Schemas/{GROUP}").json()["name"] == "Group"
    assert scim.get("Schemas/urn:none").status_code == 404


@pytest.mark.usefixtures("rules")
def test_many_who_change_one_group_at_once_lose_nothing(shared_cast: Cast, okta: SsoProvider) -> None:
    people = [User.objects.create(username=f"person-{number}") for number in range(6)]
    actor = shared_cast.actor("alice")
    group = scim_groups.scim_group_create(provider=okta, names={"display_name": "ml"}, steps=(), actor=actor)
    failures: list[BaseException] = []

    def join(user: User) -> None:
        try:
            step = MemberStep("add", frozenset({user.pk}))
            scim_groups.scim_group_update(group=group, names={}, steps=[step], actor=actor)
        except BaseException as error:
            failures.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=join, args=(user,)) for user in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert set(group.members.all()) == set(people)
    assert Membership.objects.filter(user__in=people, role="publisher", mapped_by=okta).count() == 6
