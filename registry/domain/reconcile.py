"""What to do about a deployment now: facts in, actions out. Asking twice gives the same answer."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from registry.domain.facts import DeploymentFacts

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
    raise NotImplementedError
