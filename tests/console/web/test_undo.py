"""Undo: what the toast of a mutation posts takes it back, and touches nothing that somebody else changed meanwhile."""

from __future__ import annotations

import json
from typing import Any

from registry.domain.plans import DeploymentSpec, RouteSpec
from registry.models import Alias, Membership, RegisteredModel, Route, ServingNode
from registry.services import aliases, deployments
from tests.console.web.conftest import Browse, Served
from tests.console.web.test_try_it import two_units


def undo_of(client: Any, answer: Any) -> tuple[str, dict[str, str]]:
    """Return what the toast on the next page would post."""
    assert answer.status_code == 302
    page = client.get(answer["Location"], follow=True)
    found = json.loads(list(page.context["messages"])[-1].extra_tags)
    assert "data-undo=" in page.text
    return found["address"], found["fields"]


def test_archiving_a_version_and_a_model_is_taken_back(served: Served, browse: Browse) -> None:
    alice = browse("alice")
    spare = served.cast.ready_version("spare")
    path = f"/p/wren/models/spare/versions/{spare.pk}/act/"
    address, fields = undo_of(alice, alice.post(path, {"act": "archive"}))
    spare.refresh_from_db()
    assert spare.state == "archived"
    assert undo_of(alice, alice.post(address, fields))[1] == {"act": "archive"}
    spare.refresh_from_db()
    assert spare.state == "ready"
    address, fields = undo_of(alice, alice.post("/p/wren/models/spare/act/", {"act": "archive"}))
    alice.post(address, fields)
    assert RegisteredModel.objects.get(slug="spare").state == "active"


def test_a_cordoned_node_takes_deployments_again(served: Served, browse: Browse) -> None:
    alice = browse("alice")
    address, fields = undo_of(alice, alice.post(f"/fleet/nodes/{served.node.pk}/act/", {"act": "cordon"}))
    assert not ServingNode.objects.get().is_schedulable
    alice.post(address, fields)
    assert ServingNode.objects.get().is_schedulable


def move_alias(client: Any, version: int) -> Any:
    page = "/p/wren/models/finch/aliases/"
    form = client.get(f"{page}?name=champion").context["form"]
    sent = {"name": "champion", "version": version, "is_protected": "on", "comment": "", "was_protected": "on"}
    return client.post(page, {**sent, "seen": form["seen"].value()})


def test_a_moved_alias_goes_back_unless_somebody_moved_it_since(served: Served, browse: Browse) -> None:
    second = served.cast.ready_version("finch", b"second")
    alice = browse("alice")
    address, fields = undo_of(alice, move_alias(alice, 2))
    assert Alias.objects.get(name="champion").version == second
    assert alice.post(address, fields).status_code == 302
    alias = Alias.objects.get(name="champion")
    assert (alias.version, alias.is_protected) == (served.version, True)
    address, fields = undo_of(alice, move_alias(alice, 2))
    third = served.cast.ready_version("finch", b"third")
    aliases.alias_set(
        model=served.version.model, name="champion", version=third, is_protected=True, actor=served.cast.actor("alice")
    )
    assert alice.post(address, fields).status_code == 422
    assert Alias.objects.get(name="champion").version == third


def test_a_deleted_alias_comes_back(served: Served, browse: Browse) -> None:
    alice = browse("alice")
    answer = alice.post("/p/wren/models/finch/aliases/delete/", {"name": "champion"})
    address, fields = undo_of(alice, answer)
    assert not Alias.objects.exists()
    assert alice.post(address, fields).status_code == 302
    assert Alias.objects.get(name="champion").is_protected


def weights(served: Served) -> list[int]:
    return [route.weight for route in Route.objects.filter(deployment=served.deployment).order_by("role")]


def test_moved_traffic_goes_back_unless_the_deployment_was_changed_since(served: Served, browse: Browse) -> None:
    two_units(served)
    alice, path = browse("alice"), f"/p/wren/deployments/{served.deployment.pk}/traffic/"
    assert weights(served) == [10, 90]
    address, fields = undo_of(alice, alice.post(path, {"weight-0": "50", "weight-1": "50"}))
    assert weights(served) == [50, 50]
    alice.post(address, fields)
    assert weights(served) == [10, 90]
    address, fields = undo_of(alice, alice.post(path, {"weight-0": "20", "weight-1": "80"}))
    spec = DeploymentSpec(routes=(RouteSpec(version=1, role="live", weight=100),))
    actor = served.cast.actor("alice")
    deployments.deployment_change(model=served.version.model, fleet=served.dev, spec=spec, actor=actor)
    alice.post(address, {"weight-0": "100", **fields})
    assert weights(served) == [100]


def test_who_may_not_do_it_may_not_undo_it(served: Served, browse: Browse) -> None:
    alice = browse("alice")
    address, fields = undo_of(alice, alice.post(f"/fleet/nodes/{served.node.pk}/act/", {"act": "cordon"}))
    assert browse("vera").post(address, fields).status_code == 403
    assert not ServingNode.objects.get().is_schedulable


def test_a_page_that_reads_itself_again_takes_no_message_from_the_next(served: Served, browse: Browse) -> None:
    alice = browse("alice")
    answer = alice.post(f"/fleet/nodes/{served.node.pk}/act/", {"act": "cordon"})
    behind = alice.get("/fleet/", headers={"Flotilla-Refresh": "1"})
    assert "New deployments stay off this node." not in behind.text
    assert "New deployments stay off this node." in alice.get(answer["Location"]).text


def test_a_role_and_a_membership_come_back(served: Served, browse: Browse) -> None:
    alice, of_bob = browse("alice"), Membership.objects.filter(user=served.cast.bob, project=served.cast.project)
    seen = {"user": "bob", "seen": "publisher"}
    answer = alice.post("/settings/members/", {"form": "role", "role": "approver", **seen})
    address, fields = undo_of(alice, answer)
    assert of_bob.get().role == "approver"
    alice.post(address, fields)
    assert of_bob.get().role == "publisher"
    address, fields = undo_of(alice, alice.post("/settings/members/remove/", seen))
    assert not of_bob.exists()
    alice.post(address, fields)
    assert of_bob.get().role == "publisher"
