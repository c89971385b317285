"""What waits for nodes is looked at again and again, and says for what it waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from registry.domain.reconcile import PROGRESS_DEADLINE
from registry.models import Operation
from registry.selectors.deployments import deployments_unsettled
from registry.selectors.fleet import nodes_behind
from registry.services.node_life import LEASE
from registry.services.rollouts import rollout_progress

FIRST = {"version": 1, "role": "live", "weight": 100}


def deploy(world: Any) -> Any:
    model = world.model()
    world.ready(model)
    return world.deploy(model, world.development, world.spec(FIRST)).deployment


def test_all_have_their_turn_when_more_wait_than_one_pass_takes(world: Any) -> None:
    waiting = {deploy(world).id for _number in range(4)}
    nodes = {world.node(f"n{number}", seen=False).id for number in range(3)}
    seen, behind = set(), set()
    for _pass in range(100):
        seen |= set(deployments_unsettled(timezone.now(), limit=1))
        behind |= set(nodes_behind(limit=1))
    assert seen == waiting
    assert behind == nodes


def test_a_node_that_fell_silent_unnoticed_is_noticed(world: Any) -> None:
    node, deployment = world.node(), deploy(world)
    world.settle(deployment, node)
    assert (deployment.health, deployment.sync) == ("healthy", "synced")
    assert deployments_unsettled(timezone.now()) == []
    later = timezone.now() + LEASE + timedelta(minutes=5)
    assert deployments_unsettled(later) == [deployment.id]
    rollout_progress(deployment_id=deployment.id, now=later)
    deployment.refresh_from_db()
    assert deployment.health == "unknown"
    assert deployment.health_reason == "Node node-1 has not answered for 5 min."


def test_a_rollout_that_waited_long_for_a_node_is_not_given_up_when_it_comes(world: Any) -> None:
    deployment = deploy(world)
    start = timezone.now() + 4 * PROGRESS_DEADLINE
    rollout_progress(deployment_id=deployment.id, now=start)
    operation = Operation.objects.get(kind="deploy")
    assert operation.message == "No node belongs to fleet development."
    node = world.node(seen=False)
    for minutes in (0, 14):
        now = start + timedelta(minutes=minutes)
        world.observe(node, {deployment.routes.get().unit: "loading"}, now=now)
        rollout_progress(deployment_id=deployment.id, now=now)
        # A lease lasts 30 s; the node has answered all the time.
        node.lease_until = now + timedelta(minutes=20)
        node.save(update_fields=["lease_until"])
        assert deployment.rollouts.get().phase == "progressing"
    rollout_progress(deployment_id=deployment.id, now=start + timedelta(minutes=16))
    rollout = deployment.rollouts.get()
    assert rollout.phase in ("aborting", "failed")
    assert rollout.phase_reason == "Not ready within 15 minutes. v1 is loading on node node-1."
