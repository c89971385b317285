from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from registry.domain.actors import Actor
from registry.errors import Conflict, InvalidTransition, PermissionDenied, StorageFailed, ValidationFailed
from registry.models import JoinToken, ServingNode
from registry.selectors.blobs import node_may_read
from registry.selectors.desired import desired_state
from registry.selectors.fleet import (
    fleets_of,
    is_reachable,
    join_tokens,
    node_get,
    node_rows,
    nodes_behind,
    nodes_of,
    nodes_visible_to,
)
from registry.services import fleet
from registry.services.sealing import seal, unseal
from serving_node.contract.control import Desired

SYSTEM = Actor.system("test")
JOIN: dict[str, Any] = {
    "name": "n",
    "endpoints": {"admin": "http://127.0.0.1:8003", "http": "http://10.0.0.5:8000", "grpc": "grpc://10.0.0.5:8001"},
    "admin_secret": "s" * 32,
    "inventory": {"cpu": 4},
    "contract_version": 1,
}


def token(**labels: str) -> str:
    return fleet.join_token_create(labels=labels or {"environment": "development"}, actor=SYSTEM)[1]


def test_a_join_token_works_once(world: Any) -> None:
    text = token()
    node, own = fleet.node_join(token=text, **JOIN)
    assert node.labels == {"environment": "development"}
    assert fleet.node_authenticate(own) == node
    assert fleet.node_authenticate(own + "x") is None
    assert fleet.node_authenticate("") is None
    assert fleet.node_admin_secret(node) == "s" * 32
    assert "s" * 32 not in node.admin_secret_sealed
    with pytest.raises(PermissionDenied):
        fleet.node_join(token=text, **{**JOIN, "name": "m"})
    assert not join_tokens().exists()


def test_an_expired_or_unknown_token_does_not_join(world: Any) -> None:
    text = token()
    JoinToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    for bad in (text, "floj_nonsense", ""):
        with pytest.raises(PermissionDenied):
            fleet.node_join(token=bad, **JOIN)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "a b"},
        {"contract_version": 99},
        {"admin_secret": "short"},
        {"endpoints": {}},
        {"endpoints": {"admin": "http://10.0.0.5:8003"}},
        {"endpoints": {"admin": "ftp://127.0.0.1"}},
        {"endpoints": {"admin": "http://127.0.0.1:8003", "extra": "http://x"}},
        {"endpoints": {"admin": "http://127.0.0.1:99999999"}},
        {"kind": "toaster"},
    ],
)
def test_bad_facts_do_not_join_and_leave_the_token_unused(world: Any, change: dict[str, Any]) -> None:
    text = token()
    with pytest.raises(ValidationFailed):
        fleet.node_join(token=text, **{**JOIN, **change})
    assert fleet.node_join(token=text, **{**JOIN, "endpoints": {"admin": "https://10.0.0.5:8003"}})


def test_a_name_is_free_again_after_retirement(world: Any) -> None:
    node, own = fleet.node_join(token=token(), **JOIN)
    with pytest.raises(Conflict):
        fleet.node_join(token=token(), **JOIN)
    fleet.node_retire(node=node, actor=world.actor(world.alice))
    assert fleet.node_authenticate(own) is None
    again, _own = fleet.node_join(token=token(), **JOIN)
    assert again.name == "n"
    assert [row.node for row in node_rows()] == [again]


def test_only_site_operators_change_the_fleet(world: Any) -> None:
    node = world.node()
    carol = world.actor(world.carol)
    for call in (
        lambda: fleet.node_drain(node=node, actor=carol),
        lambda: fleet.node_cordon(node=node, actor=carol),
        lambda: fleet.node_retire(node=node, actor=carol),
        lambda: fleet.join_token_create(labels={}, actor=carol),
        lambda: fleet.environment_create(slug="x", name="x", actor=carol),
        lambda: fleet.fleet_create(
            slug="x", name="x", environment=world.development.environment, selector={}, actor=carol
        ),
    ):
        with pytest.raises(PermissionDenied):
            call()
    alice = world.actor(world.alice)
    environment = fleet.environment_create(slug="staging", name="Staging", actor=alice)
    made = fleet.fleet_create(slug="edge", name="", environment=environment, selector={"zone": "a"}, actor=alice)
    assert list(nodes_of(made)) == []
    with pytest.raises(Conflict):
        fleet.fleet_create(slug="edge", name="", environment=environment, selector={}, actor=alice)
    changed = fleet.environment_update(
        environment=environment, requires_approval=False, required_approvals=2, actor=alice
    )
    assert not changed.requires_approval


def test_selectors_choose_nodes(world: Any) -> None:
    node = world.node("a", "development")
    world.node("b", "production")
    assert list(nodes_of(world.development)) == [node]
    assert fleets_of(node) == [world.development]
    everything = fleet.fleet_create(
        slug="all", name="All", environment=world.development.environment, selector={}, actor=SYSTEM
    )
    assert nodes_of(everything).count() == 2


def test_observation_extends_the_lease_and_tells_of_changes_only(world: Any) -> None:
    node = world.node(seen=False)
    assert node.state == "joining"
    assert node.id in nodes_behind()
    assert world.observe(node)
    node.refresh_from_db()
    assert node.state == "ready"
    now = timezone.now()
    assert not world.observe(node, now=now)
    node.refresh_from_db()
    assert is_reachable(node, now + timedelta(seconds=29))
    assert not is_reachable(node, now + timedelta(seconds=31))
    assert node.id not in nodes_behind()
    # Back after silence is a change even when it says the same as before.
    assert world.observe(node, now=now + timedelta(minutes=5))
    # An answer that arrives late does not overwrite a newer one.
    assert not world.observe(node, applied=0, now=now)
    assert node.id not in nodes_behind()


def test_a_reason_of_silence_is_kept_and_forgotten(world: Any) -> None:
    node = world.node()
    fleet.node_unreachable(node=node, error="connection refused", now=timezone.now())
    assert node_rows()[0].error == "connection refused"
    world.observe(node, now=timezone.now())
    assert node_rows()[0].error == ""
    fresh = world.node("other", seen=False)
    fleet.node_unreachable(node=fresh, error="no route", now=timezone.now())
    fleet.node_unreachable(node=fresh, error="no route", now=timezone.now())
    assert {row.error for row in node_rows()} == {"", "no route"}


def test_hello_replaces_what_changed(world: Any) -> None:
    node = world.node(seen=False)
    fleet.node_hello(node=node, endpoints={"admin": "http://127.0.0.1:9003"}, admin_secret="t" * 32, inventory={"a": 1})
    node.refresh_from_db()
    assert (node.state, node.endpoints["admin"]) == ("ready", "http://127.0.0.1:9003")
    assert fleet.node_admin_secret(node) == "t" * 32


def deployed(world: Any, node: ServingNode) -> tuple[Any, Any]:
    model = world.model("mlp")
    version = world.ready(model, content=b"bytes")
    deployment = world.deploy(model, world.development, world.spec({"version": 1, "weight": 100})).deployment
    node.refresh_from_db()
    return deployment, version


def test_desired_state_holds_everything_that_the_node_needs(world: Any) -> None:
    node = world.node()
    before = node.desired_generation
    deployment, version = deployed(world, node)
    assert node.desired_generation == before + 1
    assert nodes_behind() == [node.id]
    desired = desired_state(node)
    assert Desired.from_json(desired.to_json()) == desired
    (model,) = desired.models
    (unit,) = model.units
    (route,) = model.routes
    assert (desired.epoch, desired.generation, desired.drain) == (1, node.desired_generation, None)
    assert (model.name, route.unit, route.weight) == ("mlp", unit.unit, 100)
    assert unit.unit == deployment.routes.get().unit
    assert unit.manifest_digest == version.manifest_digest
    assert [(file.path, file.size) for file in unit.files] == [("model.onnx", 5)]
    assert node_may_read(node, unit.files[0].sha256)


def test_a_served_name_goes_into_the_config(world: Any) -> None:
    from serving_node.contract.digests import config_digest
    from serving_node.contract.model_config import parse_json

    node = world.node()
    model = world.model("mlp")
    world.ready(model)
    world.deploy(model, world.development, world.spec({"version": 1, "weight": 100}, served_name="scorer"))
    (wanted,) = desired_state(node).models
    assert wanted.name == "scorer"
    assert wanted.units[0].config["name"] == "scorer"
    assert config_digest(parse_json(wanted.units[0].config)) == wanted.units[0].config_digest


def test_a_node_reads_only_what_it_should_have(world: Any) -> None:
    node, stranger = world.node("a"), world.node("b", "production")
    _deployment, version = deployed(world, node)
    digest = version.files.get().blob.sha256
    assert node_may_read(node, digest)
    assert not node_may_read(stranger, digest)
    secret = world.ready(world.model(), content=b"not deployed").files.get().blob.sha256
    assert not node_may_read(node, secret)


def test_a_node_that_joins_later_gets_what_is_deployed(world: Any) -> None:
    first = world.node("a")
    deployed(world, first)
    late = world.node("b", seen=False)
    assert late.desired_generation > 0
    assert [model.name for model in desired_state(late).models] == ["mlp"]


def test_draining_is_part_of_desired_until_it_is_over(world: Any) -> None:
    node = world.node()
    deployed(world, node)
    generation = node.desired_generation
    fleet.node_drain(node=node, deadline_seconds=5, actor=world.actor(world.alice))
    desired = desired_state(node)
    assert desired.generation == generation + 1
    assert desired.drain is not None
    assert desired.drain.deadline_seconds == 5
    assert desired.models
    world.observe(node, applied=generation, draining=True)
    node.refresh_from_db()
    assert node.state == "draining"
    world.observe(node, draining=True)
    node.refresh_from_db()
    assert node.state == "drained"
    gone = desired_state(node)
    assert gone.drain is not None
    assert gone.models == ()
    with pytest.raises(InvalidTransition):
        fleet.node_drain(node=node, actor=world.actor(world.alice))
    fleet.node_uncordon(node=node, actor=world.actor(world.alice))
    back = desired_state(node)
    assert back.drain is None
    assert back.models
    assert back.generation > gone.generation


def test_a_cordoned_node_keeps_what_it_has(world: Any) -> None:
    node = world.node()
    deployed(world, node)
    fleet.node_cordon(node=node, actor=world.actor(world.alice))
    other = world.model("later")
    world.ready(other)
    world.deploy(other, world.development, world.spec({"version": 1, "weight": 100}))
    assert [model.name for model in desired_state(node).models] == ["mlp"]
    fleet.node_uncordon(node=node, actor=world.actor(world.alice))
    assert [model.name for model in desired_state(node).models] == ["later", "mlp"]


def test_secrets_are_sealed_with_the_secret_key(settings: Any) -> None:
    sealed = seal("hush")
    assert unseal(sealed) == "hush"
    assert "hush" not in sealed
    settings.SECRET_KEY = "another key"
    with pytest.raises(StorageFailed):
        unseal(sealed)


def test_nodes_are_for_people_who_signed_in(world: Any) -> None:
    node = world.node()
    assert node_get(world.actor(world.dan), node.id) == node
    assert not nodes_visible_to(Actor("nobody")).exists()
