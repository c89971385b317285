from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.utils import timezone

from registry.domain.actors import Actor
from registry.models import Operation, ServingNode
from registry.services.operations import try_it
from tests.workers import factories
from workers.node_client.client import Target
from workers.node_client.errors import NodeClientError, NodeErrorCode
from workers.node_client.fake import FakeNode
from workers.reconcile import reconcile_node
from workers.tasks import interactive
from workers.tasks.operations import work_on

pytestmark = pytest.mark.django_db(transaction=True)

INPUTS = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
ANSWER: dict[str, Any] = {"model_name": "mlp", "outputs": [{"name": "y", "data": [0.5, 0.5]}]}


class World:
    def __init__(self) -> None:
        version = factories.make_ready_version()
        self.outcome = factories.deploy(version.model, factories.make_fleet(), v1=100)
        self.owner = version.model.owner
        self.node = factories.make_node()
        self.fake = FakeNode("n1")

    def serve(self) -> None:
        reconcile_node(self.node.pk, connect=self.fake.connect)
        self.fake.advance(5)
        reconcile_node(self.node.pk, connect=self.fake.connect)

    def ask(self, **arguments: Any) -> Operation:
        operation = try_it(
            deployment=self.outcome.deployment, inputs=INPUTS, actor=Actor.person(self.owner), **arguments
        )
        handler = partial(interactive.infer, connect=self.fake.connect)
        work_on(operation.pk, {"infer": handler})
        operation.refresh_from_db()
        return operation


@pytest.fixture
def world(hints: list[tuple[str, str]]) -> World:
    return World()


def error_of(operation: Operation) -> Mapping[str, Any]:
    assert operation.state == "failed"
    assert operation.error is not None
    return operation.error  # type: ignore[no-any-return]


def test_the_answer_of_the_node_becomes_the_result(world: World) -> None:
    world.serve()
    world.fake.answers.append(ANSWER)
    operation = world.ask(version=1)
    assert operation.state == "succeeded"
    assert operation.result is not None
    assert (operation.result["node"], operation.result["response"]) == ("n1", ANSWER)
    [(model, target, body)] = world.fake.inferences
    assert (model, target.version, body) == ("mlp", "1", INPUTS)
    assert target.unit


def test_without_a_version_the_node_chooses_by_weight(world: World) -> None:
    world.serve()
    world.fake.answers.append(ANSWER)
    world.ask()
    assert world.fake.inferences[0][1] == Target()


def test_the_nodes_refusal_is_shown(world: World) -> None:
    world.serve()
    world.fake.answers.append(NodeClientError(NodeErrorCode.INVALID, "unexpected shape for input 'x'"))
    assert error_of(world.ask()) == {"code": "node_invalid", "message": "unexpected shape for input 'x'"}


def test_nothing_ready_and_nobody_there(world: World) -> None:
    assert error_of(world.ask())["message"] == "No node of this fleet can be reached."
    reconcile_node(world.node.pk, connect=world.fake.connect)
    assert error_of(world.ask())["message"] == "No node has this version ready."
    world.serve()
    ServingNode.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert error_of(world.ask())["code"] == "node_unreachable"


def test_a_huge_answer_is_not_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interactive, "MAX_RESULT_BYTES", 20)
    world.serve()
    world.fake.answers.append(ANSWER)
    operation = world.ask()
    assert error_of(operation)["code"] == "node_too_large"
    assert operation.result is None
