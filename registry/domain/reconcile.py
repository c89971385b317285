"""What to do about a deployment now: facts in, actions out. Asking twice gives the same answer."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from registry.domain.facts import DeploymentFacts, NodeFacts, RolloutFacts
from registry.domain.health import deployment_health, deployment_sync, ready_percent, unit_health
from registry.domain.texts import gettext as _

PROGRESS_DEADLINE = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class PushDesired:
    """Send the node its desired state."""

    node_id: uuid.UUID


@dataclass(frozen=True, slots=True)
class MoveRollout:
    """Move a rollout's phase; moving to ``aborting`` also goes back to the spec before it."""

    rollout_id: uuid.UUID
    to: str
    cause: str


@dataclass(frozen=True, slots=True)
class FinishOperation:
    """Finish the operation that API users wait for; ``code`` empty means success."""

    operation_id: uuid.UUID
    message: str
    code: str = ""


@dataclass(frozen=True, slots=True)
class ReportOperation:
    """Show progress on the operation, in percent of the units that are ready."""

    operation_id: uuid.UUID
    percent: int
    message: str


@dataclass(frozen=True, slots=True)
class SetStatus:
    """Write what is seen."""

    sync: str
    sync_reason: str
    health: str
    health_reason: str
    observed_generation: int


Action = PushDesired | MoveRollout | FinishOperation | ReportOperation | SetStatus


def decide(facts: DeploymentFacts, now: datetime) -> list[Action]:
    """Return what to do now, in order; the status comes last."""
    actions: list[Action] = [PushDesired(node.node_id) for node in facts.nodes if _needs_push(node)]
    if facts.rollout is not None:
        actions += _rollout_step(facts, facts.rollout, now)
    actions.append(_status(facts))
    return actions


def _needs_push(node: NodeFacts) -> bool:
    # A node that has seen the generation works on it by itself; one that has not is told again, reachable or not:
    # trying is how it becomes reachable.
    return node.generation_seen < node.desired_generation


def _rollout_step(facts: DeploymentFacts, rollout: RolloutFacts, now: datetime) -> Iterator[Action]:
    """Yield at most one move of the phase: the next pass sees fresh facts."""
    if rollout.phase == "pending":
        yield MoveRollout(rollout.rollout_id, "progressing", _("Started."))
    elif rollout.phase == "progressing":
        yield from _progress(facts, rollout, now)
    elif rollout.phase == "verifying":
        yield from _verify(facts, rollout, now)
    elif rollout.phase == "paused":
        yield from _wait(facts, rollout)
    elif rollout.phase == "aborting":
        yield from _finish_abort(facts, rollout, now)


def _progress(facts: DeploymentFacts, rollout: RolloutFacts, now: datetime) -> Iterator[Action]:
    failure = _failure(facts)
    if failure:
        yield MoveRollout(rollout.rollout_id, "aborting", failure)
    elif _settled(facts):
        yield MoveRollout(rollout.rollout_id, "verifying", _("Every unit is ready on every node that answers."))
    elif _overdue(facts, rollout, now):
        yield MoveRollout(rollout.rollout_id, "aborting", _too_late(facts))
    else:
        yield from _report(facts, rollout)


def _verify(facts: DeploymentFacts, rollout: RolloutFacts, now: datetime) -> Iterator[Action]:
    failure = _failure(facts)
    if failure:
        yield MoveRollout(rollout.rollout_id, "aborting", failure)
    elif _settled(facts):
        yield MoveRollout(rollout.rollout_id, "succeeded", _("Every route is in force."))
        if rollout.operation_id is not None:
            yield FinishOperation(rollout.operation_id, _("Deployed."))
    elif _overdue(facts, rollout, now):
        yield MoveRollout(rollout.rollout_id, "aborting", _too_late(facts))
    else:
        yield from _report(facts, rollout)


def _finish_abort(facts: DeploymentFacts, rollout: RolloutFacts, now: datetime) -> Iterator[Action]:
    if rollout.can_revert and not _settled(facts) and not _overdue(facts, rollout, now):
        yield from _report(facts, rollout)
        return
    ended = "rolled_back" if rollout.can_revert else "failed"
    yield MoveRollout(rollout.rollout_id, ended, rollout.phase_reason)
    if rollout.operation_id is not None:
        yield FinishOperation(rollout.operation_id, rollout.phase_reason, code="rollout_failed")


def _report(facts: DeploymentFacts, rollout: RolloutFacts) -> Iterator[Action]:
    """Tell who waits for the operation what the rollout waits for."""
    if rollout.operation_id is not None:
        yield ReportOperation(rollout.operation_id, ready_percent(facts), deployment_health(facts).reason)


def _wait(facts: DeploymentFacts, rollout: RolloutFacts) -> Iterator[Action]:
    """Say that it is paused: neither a failure nor the deadline ends it, and it does not succeed, until resumed."""
    if rollout.operation_id is not None:
        yield ReportOperation(rollout.operation_id, ready_percent(facts), rollout.phase_reason)


def _failure(facts: DeploymentFacts) -> str:
    """Return why a unit failed for good on a node that has settled; empty when none did.

    A node that still works on its generation may be trying again.
    """
    for node in facts.nodes:
        if not (node.is_reachable and node.is_current):
            continue
        for unit in facts.units:
            verdict = unit_health(node, unit)
            if verdict.status == "degraded":
                return verdict.reason
    return ""


def _settled(facts: DeploymentFacts) -> bool:
    """Say whether every node that answers has applied everything, and at least one node does (or nothing is wanted)."""
    serving = [node for node in facts.nodes if node.is_reachable and node.state not in ("draining", "drained")]
    if not serving:
        return not facts.units
    return all(
        node.is_current and all(unit_health(node, unit).status == "healthy" for unit in facts.units) for node in serving
    )


def gives_up_at(facts: DeploymentFacts, rollout: RolloutFacts) -> datetime | None:
    """Return when a rollout has taken too long: counted from when the first node answers, or from its last resumption.

    None: without any node that answers it waits instead of giving up; health, sync and the operation say for what.
    """
    answering = [node.reachable_since or rollout.since for node in facts.nodes if node.is_reachable]
    return max(rollout.since, min(answering)) + PROGRESS_DEADLINE if answering else None


def _overdue(facts: DeploymentFacts, rollout: RolloutFacts, now: datetime) -> bool:
    deadline = gives_up_at(facts, rollout)
    return deadline is not None and now > deadline


def _too_late(facts: DeploymentFacts) -> str:
    text = _("Not ready within %(minutes)d minutes. %(why)s")
    minutes = PROGRESS_DEADLINE // timedelta(minutes=1)
    return (text % {"minutes": minutes, "why": deployment_health(facts).reason}).strip()


def _status(facts: DeploymentFacts) -> SetStatus:
    sync, health = deployment_sync(facts), deployment_health(facts)
    return SetStatus(sync.status, sync.reason, health.status, health.reason, facts.generation)
