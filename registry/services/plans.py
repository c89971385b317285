"""What a change of a deployment would do, before anybody does it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from registry.domain.actors import Actor
from registry.domain.plans import DeploymentSpec
from registry.models import Fleet, RegisteredModel


@dataclass(frozen=True, slots=True)
class NodeChange:
    """What one node would do: unit ids to load, to keep and to unload; ``bytes_to_fetch`` of content new to it."""

    node_id: str
    name: str
    is_reachable: bool
    loads: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    unloads: tuple[str, ...] = ()
    bytes_to_fetch: int = 0


@dataclass(frozen=True, slots=True)
class RouteChange:
    """How the traffic of one version changes, in percent; None: it is not there on that side."""

    version: int
    config: int
    role: str
    weight_before: int | None
    weight_after: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole consequence of a spec. ``approval_reason`` says why approval is (or is not) needed.

    ``plan`` is the document whose digest an approval is bound to; ``spec`` has all ids filled in.
    """

    model: str
    fleet: str
    environment: str
    served_name: str
    spec: DeploymentSpec
    plan: dict[str, Any]
    plan_digest: str
    needs_approval: bool
    approval_reason: str
    required_approvals: int
    nodes: tuple[NodeChange, ...] = ()
    routes: tuple[RouteChange, ...] = ()
    warnings: tuple[str, ...] = ()
    is_noop: bool = False
    extra: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the plan for API answers."""
        raise NotImplementedError


def deployment_plan(*, model: RegisteredModel, fleet: Fleet, spec: DeploymentSpec, actor: Actor) -> Plan:
    """Work out what ``spec`` would change; stores nothing.

    Raises:
        ValidationFailed: routes make no sense, name unknown or not deployable versions, or a config that
            contradicts a version; ``errors`` names the fields.
        Conflict: the served name is used by another model on the fleet.
    """
    raise NotImplementedError
