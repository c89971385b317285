from __future__ import annotations

import random
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connections
from django.utils import timezone

from registry.domain.actors import Actor
from registry.models import Deployment, Operation, Rollout, ServingNode
from registry.services.deployments import ChangeOutcome, deployment_rollback
from registry.services.fleet import node_retire
from serving_node.contract.control import Desired, Reason
from serving_node.contract.states import UnitState
from tests.workers import factories
from workers.node_client.errors import NodeClientError, NodeErrorCode
from workers.node_client.fake import FakeNode
from workers.reconcile import NodeOutcome, reconcile_deployment, reconcile_node

pytestmark = pytest.mark.django_db(transaction=True)


class World:
    """One deployed version, one fake node, and a broker whose messages the test delivers as it likes."""

    def __init__(self) -> None:
        self.fleet = factories.make_fleet()
        self.version = factories.make_ready_version()
        self.model = self.version.model
        self.node = factories.make_node()
        self.fake = FakeNode("n1")

    def push(self) -> NodeOutcome:
        return reconcile_node(self.node.pk, connect=self.fake.connect)

    def look(self, outcome: ChangeOutcome) -> tuple[Deployment, Rollout, Operation]:
        assert outcome.rollout is not None
        assert outcome.operation is not None
        reconcile_deployment(outcome.deployment.pk)
        return (
            Deployment.objects.get(pk=outcome.deployment.pk),
            Rollout.objects.get(pk=outcome.rollout.pk),
            Operation.objects.get(pk=outcome.operation.pk),
        )


@pytest.fixture
def world(hints: list[tuple[str, str]]) -> World:
    return World()


def test_a_deployment_goes_from_wanted_to_serving(world: World) -> None:
    outcome = factories.deploy(world.model, world.fleet, v1=100)
    deployment, rollout, operation = world.look(outcome)
    assert (rollout.phase, operation.state) == ("progressing", "running")
    assert world.node.pk in reconcile_deployment(deployment.pk)
    assert world.push() is NodeOutcome.PUSHED
    [model] = world.fake.pushes[-1].models
    [unit] = model.units
    assert [file.path for file in unit.files] == ["model.onnx"]
    assert (model.routes[0].weight, unit.version) == (100, 1)
    seen = set()
    for _ in range(5):
        world.fake.advance()
        world.push()
        deployment, rollout, operation = world.look(outcome)
        seen.add((operation.progress_percent, deployment.health))
    assert (deployment.sync, deployment.health, rollout.phase, operation.state) == (
        "synced",
        "healthy",
        "succeeded",
        "succeeded",
    )
    assert len(seen) > 1
    assert reconcile_deployment(deployment.pk) == ()


def test_a_unit_that_fails_shows_the_nodes_reason_and_the_old_one_comes_back(world: World) -> None:
    first = factories.deploy(world.model, world.fleet, v1=100)
    world.push()
    world.fake.advance(5)
    world.push()
    world.look(first)
    factories.make_ready_version(world.model, width=4)
    second = factories.deploy(world.model, world.fleet, v2=100)
    world.push()
    wanted = {unit.unit: unit.version for model in world.fake.pushes[-1].models for unit in model.units}
    [unit_two] = [unit for unit, version in wanted.items() if version == 2]
    world.fake.failing[unit_two] = Reason("load_failed", "CUDA out of memory")
    world.fake.advance(5)
    world.push()
    _deployment, rollout, _operation = world.look(second)
    assert "CUDA out of memory" in rollout.phase_reason
    world.push()
    world.fake.advance(5)
    world.push()
    deployment, rollout, operation = world.look(second)
    assert (rollout.phase, operation.state) == ("rolled_back", "failed")
    assert [route.version.number for route in deployment.routes.select_related("version")] == [1]
    assert (deployment.sync, deployment.health) == ("synced", "healthy")


@pytest.mark.parametrize("seed", range(6))
def test_lost_doubled_and_reordered_messages_cost_only_time(world: World, seed: int) -> None:
    """Whatever happens to hints and to single calls, sweeping passes end in the wanted state, pushed once each."""
    chance = random.Random(seed)
    factories.make_ready_version(world.model)
    outcomes = [
        factories.deploy(world.model, world.fleet, v1=100),
        factories.deploy(world.model, world.fleet, v1=90, v2=10),
        factories.deploy(world.model, world.fleet, v1=50, v2=50),
    ]
    deployment = outcomes[-1].deployment

    def lose_request() -> None:
        world.fake.refuse_requests = 1

    def lose_answer() -> None:
        world.fake.lose_answers = 1

    happenings: list[Callable[[], object]] = [
        world.push,
        world.push,
        lambda: reconcile_deployment(deployment.pk),
        world.fake.advance,
        world.fake.restart,
        lose_request,
        lose_answer,
    ]
    for _ in range(25):
        chance.choice(happenings)()
    for _ in range(8):
        world.fake.refuse_requests = world.fake.lose_answers = 0
        world.push()
        world.fake.advance()
        reconcile_deployment(deployment.pk)
    world.push()
    final, rollout, operation = world.look(outcomes[-1])
    assert (final.sync, final.health, rollout.phase, operation.state) == ("synced", "healthy", "succeeded", "succeeded")
    generations = [push.generation for push in world.fake.pushes]
    assert generations == sorted(set(generations))
    assert {outcome.operation.state for outcome in outcomes[:-1] if outcome.operation} <= {"pending", "running"}
    for outcome in outcomes[:-1]:
        assert outcome.operation is not None
        outcome.operation.refresh_from_db()
        assert outcome.operation.state == "cancelled"


def test_roll_back_is_one_more_push(world: World) -> None:
    factories.make_ready_version(world.model)
    first = factories.deploy(world.model, world.fleet, v1=100)
    world.push()
    world.fake.advance(5)
    world.push()
    world.look(first)
    second = factories.deploy(world.model, world.fleet, v1=50, v2=50)
    world.push()
    world.fake.advance(5)
    world.push()
    deployment, rollout, _operation = world.look(second)
    assert rollout.phase == "succeeded"
    back = deployment_rollback(deployment=deployment, actor=Actor.person(world.model.owner))
    world.push()
    world.fake.advance(5)
    world.push()
    deployment, rollout, operation = world.look(back)
    assert (rollout.phase, operation.state) == ("succeeded", "succeeded")
    [model] = world.fake.pushes[-1].models
    assert [(route.weight, unit.version) for route, unit in zip(model.routes, model.units, strict=True)] == [(100, 1)]


def test_an_unreachable_node_is_noted_and_costs_nothing_else(world: World) -> None:
    outcome = factories.deploy(world.model, world.fleet, v1=100)
    world.fake.refuse_requests = 1
    assert world.push() is NodeOutcome.UNREACHABLE
    assert "connection refused" in ServingNode.objects.get(pk=world.node.pk).observation.error
    assert world.push() is NodeOutcome.PUSHED
    assert ServingNode.objects.get(pk=world.node.pk).observation.error == ""
    assert world.look(outcome)[1].phase == "progressing"


def test_a_lost_answer_is_healed_by_the_next_push(world: World) -> None:
    factories.deploy(world.model, world.fleet, v1=100)
    world.fake.lose_answers = 1
    assert world.push() is NodeOutcome.UNREACHABLE
    assert world.push() is NodeOutcome.PUSHED
    assert len(world.fake.pushes) == 1


def test_a_restored_database_is_refused_with_a_way_out(world: World) -> None:
    factories.deploy(world.model, world.fleet, v1=100)
    world.push()
    known = world.fake.desired
    assert known is not None
    ServingNode.objects.filter(pk=world.node.pk).update(desired_generation=known.generation - 1)
    assert world.push() is NodeOutcome.REFUSED
    assert "raise the node's epoch" in ServingNode.objects.get(pk=world.node.pk).observation.error
    ServingNode.objects.filter(pk=world.node.pk).update(epoch=2)
    assert world.push() is NodeOutcome.PUSHED


def test_a_conflict_with_a_push_that_overtook_is_retried_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    factories.deploy(world.model, world.fleet, v1=100)
    accept = world.fake.accept
    refused: list[int] = []

    def overtake() -> None:
        ServingNode.objects.filter(pk=world.node.pk).update(desired_generation=50)
        connections.close_all()

    def overtaken(desired: Desired) -> None:
        if not refused:
            refused.append(desired.generation)
            # The fake runs in an event loop, where the ORM refuses to work.
            thread = threading.Thread(target=overtake)
            thread.start()
            thread.join()
            raise NodeClientError(NodeErrorCode.CONFLICT, "the generation is older")
        accept(desired)

    monkeypatch.setattr(world.fake, "accept", overtaken)
    assert world.push() is NodeOutcome.PUSHED
    assert (len(refused), world.fake.pushes[-1].generation) == (1, 50)


def test_a_retired_node_is_told_to_let_go(world: World) -> None:
    factories.deploy(world.model, world.fleet, v1=100)
    world.push()
    node_retire(node=ServingNode.objects.get(pk=world.node.pk), actor=factories.SYSTEM)
    assert world.push() is NodeOutcome.PUSHED
    assert world.fake.pushes[-1].models == ()


def test_unknown_ids_do_nothing(world: World) -> None:
    assert reconcile_node(world.model.pk, connect=world.fake.connect) is NodeOutcome.GONE
    assert reconcile_deployment(world.model.pk) == ()


def test_a_silent_node_makes_the_deployment_worse_once_its_lease_ends(world: World) -> None:
    outcome = factories.deploy(world.model, world.fleet, v1=100)
    world.push()
    world.fake.advance(5)
    world.push()
    assert world.look(outcome)[0].health == "healthy"
    ServingNode.objects.filter(pk=world.node.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    deployment, _rollout, _operation = world.look(outcome)
    assert deployment.health != "healthy"
    assert deployment.health_reason
    assert UnitState.READY in world.fake.states.values()
