"""What is known about a deployment at one moment, as plain values: the input of every decision."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class WantedUnit:
    """One unit that the deployment wants on each of its nodes. ``weight`` 0..100."""

    unit: str
    version: int
    config: int
    role: str
    weight: int


@dataclass(frozen=True, slots=True)
class SeenUnit:
    """What a node said last about one unit; ``state`` is a contract UnitState value."""

    unit: str
    version: int
    state: str
    reason_code: str = ""
    reason_text: str = ""
    bytes_done: int = 0
    bytes_total: int = 0
    memory_bytes: int = 0
    load_seconds: float = 0.0
    routed_weight: int = 0


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node of the deployment's fleet. ``age_seconds`` is the age of the observation; None when there is none.

    ``reachable_since`` is when a node that answers began to.
    """

    node_id: uuid.UUID
    name: str
    state: str
    is_reachable: bool
    is_schedulable: bool
    age_seconds: float | None
    epoch: int
    desired_generation: int
    generation_seen: int
    generation_applied: int
    units: Mapping[str, SeenUnit] = field(default_factory=dict)
    error: str = ""
    reachable_since: datetime | None = None

    @property
    def is_current(self) -> bool:
        """Whether the node has applied everything it should do."""
        return self.generation_applied >= self.desired_generation


@dataclass(frozen=True, slots=True)
class RolloutFacts:
    """The active rollout of a deployment. ``can_revert`` says that there is an earlier spec to go back to.

    ``since`` is when it began to be brought forward: when it was made, or resumed after a pause.
    """

    rollout_id: uuid.UUID
    kind: str
    phase: str
    phase_reason: str
    since: datetime
    can_revert: bool
    operation_id: uuid.UUID | None = None


@dataclass(frozen=True, slots=True)
class DeploymentFacts:
    """A deployment, its wanted units, and what each node of its fleet says."""

    deployment_id: uuid.UUID
    served_name: str
    generation: int
    observed_generation: int
    units: tuple[WantedUnit, ...]
    nodes: tuple[NodeFacts, ...]
    fleet: str = ""
    rollout: RolloutFacts | None = None
    sync: str = "unknown"
    sync_reason: str = ""
    health: str = "missing"
    health_reason: str = ""
