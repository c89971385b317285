"""Deployments: what is wanted, what each node says, and why it does not serve."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet

from registry.domain.actors import Actor
from registry.domain.facts import DeploymentFacts
from registry.models import ApprovalRequest, Deployment, Project, Rollout, Route


@dataclass(frozen=True, slots=True)
class UnitStatus:
    """One wanted (or left-over) unit on one node. ``percent`` of bytes fetched; ``reason`` says why it is not ready."""

    unit: str
    version: int
    config: int
    role: str
    weight: int
    routed_weight: int
    state: str
    reason: str
    percent: int
    memory_bytes: int
    load_seconds: float
    is_wanted: bool


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node's part in a deployment. ``age_seconds`` of the observation, None when there is none."""

    node_id: uuid.UUID
    name: str
    state: str
    is_reachable: bool
    age_seconds: float | None
    is_current: bool
    health: str
    reason: str
    units: tuple[UnitStatus, ...]


@dataclass(frozen=True, slots=True)
class DeploymentStatus:
    """Everything a deployment's page shows. ``why_not_serving`` is empty when all is well.

    ``previous_label`` names what "Roll back" goes to (for example ``v1``), empty when there is nothing.
    """

    deployment: Deployment
    routes: tuple[Route, ...]
    nodes: tuple[NodeStatus, ...]
    sync: str
    sync_reason: str
    health: str
    health_reason: str
    why_not_serving: str
    rollout: Rollout | None
    last_rollout: Rollout | None
    open_approval: ApprovalRequest | None
    previous_label: str = ""


def deployments_visible_to(actor: Actor) -> QuerySet[Deployment]:
    """Return deployments of the actor's projects, with model, project, fleet, environment; newest first."""
    raise NotImplementedError


def deployment_get(actor: Actor, deployment_id: uuid.UUID | str) -> Deployment:
    """Return a deployment by id.

    Raises:
        NotFound: it does not exist, or the actor may not see it.
    """
    raise NotImplementedError


def deployments_of(project: Project) -> QuerySet[Deployment]:
    """Return a project's deployments with routes prefetched, by name."""
    raise NotImplementedError


def deployment_facts(deployment_id: uuid.UUID, now: datetime) -> DeploymentFacts | None:
    """Return all facts that health and reconcile look at; None when the deployment is gone."""
    raise NotImplementedError


def deployment_status(deployment: Deployment, now: datetime | None = None) -> DeploymentStatus:
    """Return what the page shows, computed from the newest observations."""
    raise NotImplementedError


def rollouts_of(deployment: Deployment) -> QuerySet[Rollout]:
    """Return rollouts, newest first, with creator and approval."""
    raise NotImplementedError


def rollback_target(deployment: Deployment) -> Rollout | None:
    """Return the rollout whose ``spec_from`` a roll-back would bring back; None when there is none."""
    raise NotImplementedError


def deployments_unsettled(now: datetime, *, limit: int = 200) -> list[uuid.UUID]:
    """Return ids of deployments that beat should look at: behind their generation, not synced, or rolling out."""
    raise NotImplementedError
