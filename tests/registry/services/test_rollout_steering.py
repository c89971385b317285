"""Pausing, resuming, aborting and retrying rollouts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from registry.domain.reconcile import PROGRESS_DEADLINE
from registry.errors import Conflict, InvalidTransition, NotFound, PermissionDenied
from registry.models import AuditEvent, Rollout, Transition
from registry.selectors.deployments import rollout_get
from registry.services import deployments
from registry.services.rollout_steering import rollout_abort, rollout_pause, rollout_resume
from registry.services.rollouts import rollout_progress
from tests.registry.services.test_approvals import FIRST, weights

SECOND = {"version": 2, "weight": 100}


def second_rollout(world: Any) -> tuple[Any, Rollout]:
    """Return a node that serves version 1, and the rollout of version 2 that is under way there."""
    node, model = world.node(), world.model("mlp")
    world.ready(model)
    world.ready(model)
    world.settle(world.deploy(model, world.development, world.spec(FIRST)).deployment, node)
    return node, world.deploy(model, world.development, world.spec(SECOND)).rollout


def passed(rollout: Rollout, later: timedelta = timedelta()) -> str:
    for _pass in range(3):
        rollout_progress(deployment_id=rollout.deployment_id, now=timezone.now() + later)
    rollout.refresh_from_db()
    return rollout.phase


def test_a_paused_rollout_neither_succeeds_nor_goes_back_until_it_is_resumed(world: Any) -> None:
    node, rollout = second_rollout(world)
    alice = world.actor(world.alice)
    rollout_pause(rollout=rollout, reason="Wait for\nthe shop.", actor=alice)
    assert rollout.phase_reason == "Paused by alice. Wait for the shop."
    world.settle(rollout.deployment, node)
    assert passed(rollout) == "paused"
    unit = rollout.deployment.routes.get().unit
    world.observe(node, {unit: "failed"}, reason="bad opset")
    assert passed(rollout, 3 * PROGRESS_DEADLINE) == "paused"
    rollout.operation.refresh_from_db()
    assert (rollout.operation.state, rollout.operation.message) == ("running", rollout.phase_reason)
    with pytest.raises(InvalidTransition):
        rollout_pause(rollout=rollout, actor=alice)
    rollout_resume(rollout=rollout, actor=alice)
    world.settle(rollout.deployment, node)
    assert passed(rollout) == "succeeded"
    with pytest.raises(InvalidTransition):
        rollout_resume(rollout=rollout, actor=alice)
    actions = AuditEvent.objects.filter(object_type="rollout").order_by("created_at")
    assert [event.action for event in actions] == ["rollout.pause", "rollout.resume"]
    moves = Transition.objects.filter(object_id=rollout.pk, actor_name="alice").order_by("created_at")
    assert [move.to_state for move in moves] == ["paused", "progressing"]


def test_the_deadline_counts_from_the_end_of_a_pause(world: Any) -> None:
    node, rollout = second_rollout(world)
    long_ago = timezone.now() - 2 * PROGRESS_DEADLINE
    Rollout.objects.filter(pk=rollout.pk).update(created_at=long_ago)
    type(node).objects.filter(pk=node.pk).update(reachable_since=long_ago)
    rollout_pause(rollout=rollout, actor=world.actor(world.alice))
    rollout_resume(rollout=rollout, actor=world.actor(world.alice))
    assert passed(rollout) == "progressing"


@pytest.mark.parametrize("paused", [True, False])
def test_an_aborted_rollout_goes_back(world: Any, paused: bool) -> None:
    node, rollout = second_rollout(world)
    alice = world.actor(world.alice)
    if paused:
        rollout_pause(rollout=rollout, actor=alice)
    rollout_abort(rollout=rollout, reason="Wrong one.", actor=alice)
    assert weights(rollout.deployment) == {1: 100}
    world.settle(rollout.deployment, node)
    assert passed(rollout) == "rolled_back"
    assert rollout.phase_reason == "Aborted by alice. Wrong one."
    for verb in (rollout_abort, rollout_pause, rollout_resume):
        with pytest.raises(InvalidTransition):
            verb(rollout=rollout, actor=alice)
    assert AuditEvent.objects.filter(action="rollout.abort").count() == 1


def test_a_first_rollout_has_nothing_to_go_back_to(world: Any) -> None:
    model = world.model("mlp")
    world.ready(model)
    rollout = world.deploy(model, world.development, world.spec(FIRST)).rollout
    with pytest.raises(Conflict, match="Nothing was deployed before"):
        rollout_abort(rollout=rollout, actor=world.actor(world.alice))
    rollout.refresh_from_db()
    assert rollout.phase == "progressing"


def test_what_failed_is_asked_for_again_once(world: Any) -> None:
    node, rollout = second_rollout(world)
    alice = world.actor(world.alice)
    with pytest.raises(InvalidTransition, match="failed or went back"):
        deployments.rollout_retry(rollout=rollout, actor=alice)
    rollout_abort(rollout=rollout, actor=alice)
    world.settle(rollout.deployment, node)
    again = deployments.rollout_retry(rollout=rollout, actor=alice)
    assert again.rollout is not None
    assert again.rollout.pk != rollout.pk
    assert weights(rollout.deployment) == {2: 100}
    with pytest.raises(InvalidTransition, match="newer change"):
        deployments.rollout_retry(rollout=rollout, actor=alice)


def test_viewers_and_strangers_steer_nothing(world: Any) -> None:
    _node, rollout = second_rollout(world)
    viewer, stranger = world.dan, world.eve
    for verb in (rollout_pause, rollout_resume, rollout_abort, deployments.rollout_retry):
        with pytest.raises(PermissionDenied):
            verb(rollout=rollout, actor=world.actor(viewer))
    assert rollout_get(world.actor(viewer), rollout.pk) == rollout
    with pytest.raises(NotFound):
        rollout_get(world.actor(stranger), rollout.pk)
