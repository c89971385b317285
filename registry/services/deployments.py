"""Changes of what is served where."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from registry.domain.actors import Actor
from registry.domain.plans import DeploymentSpec
from registry.models import ApprovalRequest, Deployment, Fleet, Operation, RegisteredModel, Rollout
from registry.services.plans import Plan, deployment_plan

__all__ = [
    "ChangeOutcome",
    "Plan",
    "Progress",
    "deployment_change",
    "deployment_plan",
    "deployment_rollback",
    "deployment_traffic",
    "rollout_move",
    "rollout_progress",
]


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """What came of a wish: an approval request, or a rollout with its operation; neither: nothing to change."""

    deployment: Deployment
    plan_digest: str
    approval: ApprovalRequest | None = None
    rollout: Rollout | None = None
    operation: Operation | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Result of one reconcile pass: nodes to send their desired state to, and whether a row changed."""

    push: tuple[uuid.UUID, ...]
    changed: bool


def deployment_change(
    *, model: RegisteredModel, fleet: Fleet, spec: DeploymentSpec, comment: str = "", actor: Actor
) -> ChangeOutcome:
    """Ask for a spec: apply it now where no approval is needed, else open an approval request.

    An open request of the same deployment is voided by a newer one. Raises what ``deployment_plan`` raises.
    """
    raise NotImplementedError


def deployment_traffic(*, deployment: Deployment, weights: Mapping[str | int, int], actor: Actor) -> ChangeOutcome:
    """Move weights (by unit id or version number, percent). Inside the applied range this needs no approval."""
    raise NotImplementedError


def deployment_rollback(*, deployment: Deployment, actor: Actor) -> ChangeOutcome:
    """Go back to the spec before the current one. Needs no approval when that state was applied there before.

    Raises:
        Conflict: there is nothing to go back to.
    """
    raise NotImplementedError


def rollout_move(*, rollout: Rollout, to: str, cause: str, actor: Actor | None = None) -> None:
    """Move a rollout's phase. ``aborting`` puts the spec before it back in force on all nodes."""
    raise NotImplementedError


def rollout_progress(*, deployment_id: uuid.UUID, now: datetime) -> Progress:
    """Do one level-triggered pass: gather facts, decide, move the rollout, finish its operation, write the status.

    Safe to call at any time, any number of times. An unknown id does nothing.
    """
    raise NotImplementedError
