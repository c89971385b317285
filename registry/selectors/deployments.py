"""Deployments: what is wanted, what each node says, and why it does not serve."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.domain.facts import DeploymentFacts, NodeFacts, RolloutFacts, SeenUnit, WantedUnit
from registry.domain.health import deployment_health, deployment_sync, node_health, why_not_serving
from registry.domain.plans import Applied, DeploymentSpec, rollback_target
from registry.models import (
    ACTIVE_PHASES,
    ApprovalRequest,
    ApprovalState,
    Deployment,
    HealthStatus,
    NodeState,
    Project,
    Rollout,
    RolloutPhase,
    Route,
    ServingNode,
    SyncStatus,
)
from registry.selectors.accounts import projects_of
from registry.selectors.fleet import belongs, fleets_of, is_reachable, nodes_of, observation_of
from registry.selectors.lookup import one_by_id


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


_HISTORY = 200
_OfDeployment = TypeVar("_OfDeployment", Rollout, ApprovalRequest)


def deployments_visible_to(actor: Actor) -> QuerySet[Deployment]:
    """Return deployments of the actor's projects, with model, project, fleet, environment; newest first."""
    return _with_parts(Deployment.objects.filter(project__in=projects_of(actor))).order_by("-created_at")


def deployment_get(actor: Actor, deployment_id: uuid.UUID | str) -> Deployment:
    """Return a deployment by id.

    Raises:
        NotFound: it does not exist, or the actor may not see it.
    """
    return one_by_id(deployments_visible_to(actor), deployment_id, _("There is no such deployment."))


def deployments_of(project: Project) -> QuerySet[Deployment]:
    """Return a project's deployments with routes prefetched, by name."""
    return _with_parts(Deployment.objects.filter(project=project)).order_by("served_name", "fleet__slug")


def deployment_facts(deployment_id: uuid.UUID, now: datetime) -> DeploymentFacts | None:
    """Return all facts that health and reconcile look at; None when the deployment is gone."""
    deployment = Deployment.objects.select_related("fleet").filter(pk=deployment_id).first()
    if deployment is None:
        return None
    active = deployment.rollouts.filter(phase__in=ACTIVE_PHASES).first()
    routes = list(_routes().filter(deployment=deployment))
    return _facts(deployment, routes, _taking_part(deployment, nodes_of(deployment.fleet)), active, now)


def deployment_status(deployment: Deployment, now: datetime | None = None) -> DeploymentStatus:
    """Return what the page shows, computed from the newest observations."""
    (status,) = deployment_statuses([deployment], now)
    return replace(status, previous_label=_label(rollback_spec(deployment)))


def deployment_statuses(deployments: Sequence[Deployment], now: datetime | None = None) -> list[DeploymentStatus]:
    """Return what a list shows, in a fixed number of queries; ``previous_label`` stays empty."""
    if not deployments:
        return []
    now = now or timezone.now()
    routes: dict[uuid.UUID, list[Route]] = {}
    for route in _routes().filter(deployment__in=deployments):
        routes.setdefault(route.deployment_id, []).append(route)
    rollouts = Rollout.objects.filter(deployment__in=deployments)
    rollouts = rollouts.select_related("created_by", "operation", "approval__environment", "approval__bypassed_by")
    requests = ApprovalRequest.objects.filter(
        deployment__in=deployments, state__in=[ApprovalState.OPEN, ApprovalState.APPROVED]
    ).select_related("requester", "environment", "bypassed_by")
    newest, asked = _newest(rollouts), _newest(requests)
    nodes = list(nodes_of(*{deployment.fleet_id: deployment.fleet for deployment in deployments}.values()))
    return [
        _status(one, routes.get(one.pk, []), _taking_part(one, nodes), newest.get(one.pk), asked.get(one.pk), now)
        for one in deployments
    ]


def _newest(rows: QuerySet[_OfDeployment]) -> dict[uuid.UUID, _OfDeployment]:
    newest = rows.order_by("deployment_id", "-created_at").distinct("deployment_id")
    return {row.deployment_id: row for row in newest}


def _status(
    deployment: Deployment,
    routes: Sequence[Route],
    nodes: Sequence[ServingNode],
    newest: Rollout | None,
    asked: ApprovalRequest | None,
    now: datetime,
) -> DeploymentStatus:
    active = newest if newest is not None and newest.phase in ACTIVE_PHASES else None
    facts = _facts(deployment, routes, nodes, active, now)
    sync, health = deployment_sync(facts), deployment_health(facts)
    return DeploymentStatus(
        deployment=deployment,
        routes=tuple(routes),
        nodes=tuple(_node_status(node, facts.units) for node in facts.nodes),
        sync=sync.status,
        sync_reason=sync.reason,
        health=health.status,
        health_reason=health.reason,
        why_not_serving=why_not_serving(facts) or _failed_rollout(newest),
        rollout=active,
        last_rollout=newest,
        open_approval=asked,
    )


def rollouts_of(deployment: Deployment) -> QuerySet[Rollout]:
    """Return rollouts, newest first, with creator and approval."""
    return deployment.rollouts.select_related("created_by", "approval__bypassed_by", "operation").order_by(
        "-created_at"
    )


def rollout_get(actor: Actor, rollout_id: uuid.UUID | str) -> Rollout:
    """Return a rollout by id, with deployment and creator.

    Raises:
        NotFound: it does not exist, or the actor may not see it.
    """
    rows = Rollout.objects.filter(deployment__project__in=projects_of(actor))
    rows = rows.select_related("deployment__project", "deployment__fleet__environment", "created_by")
    rows = rows.select_related("approval__environment", "approval__bypassed_by")
    return one_by_id(rows, rollout_id, _("There is no such rollout."))


def rollback_spec(deployment: Deployment) -> DeploymentSpec | None:
    """Return the spec that a roll-back would bring back; None when there is none."""
    steps = list(
        deployment.rollouts.exclude(phase__in=[RolloutPhase.FAILED, RolloutPhase.ROLLED_BACK, RolloutPhase.ABORTING])
        .order_by("-created_at")
        .values_list("kind", "spec_from", "spec_to")[:_HISTORY]
    )
    history = [
        Applied(kind, DeploymentSpec.from_json(before), DeploymentSpec.from_json(after))
        for kind, before, after in reversed(steps)
    ]
    return rollback_target(history)


def deployments_unsettled(now: datetime, *, limit: int = 200) -> list[uuid.UUID]:
    """Return ids of deployments that beat should look at: behind their generation, not synced, or rolling out.

    Also those with a node that fell silent without anybody noting it.
    """
    silent = ServingNode.objects.filter(labels__contains=OuterRef("fleet__selector"), lease_until__lt=now)
    unsettled = (
        Q(observed_generation__lt=F("generation"))
        | ~Q(sync=SyncStatus.SYNCED)
        | ~Q(health=HealthStatus.HEALTHY)
        | Exists(silent.exclude(state=NodeState.RETIRED))
        | Exists(Rollout.objects.filter(deployment=OuterRef("pk"), phase__in=ACTIVE_PHASES))
    )
    # In any order: those beyond the limit have their turn at another pass, however many wait for a node for weeks.
    found = Deployment.objects.filter(unsettled, generation__gt=0).order_by("?")
    return list(found.values_list("id", flat=True)[:limit])


def deployments_on(node: ServingNode) -> QuerySet[Deployment]:
    """Return the deployments whose fleet includes the node."""
    return Deployment.objects.filter(fleet__in=fleets_of(node))


def _with_parts(rows: QuerySet[Deployment]) -> QuerySet[Deployment]:
    return rows.select_related("model__project", "project", "fleet__environment").prefetch_related(
        "routes__version", "routes__config"
    )


def _routes() -> QuerySet[Route]:
    return Route.objects.select_related("version", "config").order_by("-weight", "created_at")


def _taking_part(deployment: Deployment, nodes: Iterable[ServingNode]) -> list[ServingNode]:
    # A cordoned node takes part only in what was there before; see selectors.desired.
    return [
        node
        for node in nodes
        if belongs(node, deployment.fleet)
        and (node.is_schedulable or node.cordoned_at is None or node.cordoned_at > deployment.created_at)
    ]


def _facts(
    deployment: Deployment,
    routes: Sequence[Route],
    nodes: Sequence[ServingNode],
    rollout: Rollout | None,
    now: datetime,
) -> DeploymentFacts:
    return DeploymentFacts(
        deployment_id=deployment.id,
        served_name=deployment.served_name,
        generation=deployment.generation,
        observed_generation=deployment.observed_generation,
        units=tuple(
            WantedUnit(route.unit, route.version.number or 0, route.config.number, route.role, route.weight)
            for route in routes
        ),
        nodes=tuple(_node_facts(node, deployment.served_name, now) for node in nodes),
        fleet=deployment.fleet.slug,
        rollout=None
        if rollout is None
        else RolloutFacts(
            rollout_id=rollout.id,
            kind=rollout.kind,
            phase=rollout.phase,
            phase_reason=rollout.phase_reason,
            since=rollout.resumed_at or rollout.created_at,
            can_revert=bool(rollout.spec_from.get("routes")),
            operation_id=rollout.operation_id,
        ),
        sync=deployment.sync,
        sync_reason=deployment.sync_reason,
        health=deployment.health,
        health_reason=deployment.health_reason,
    )


def _node_facts(node: ServingNode, served_name: str, now: datetime) -> NodeFacts:
    seen = observation_of(node)
    same_epoch = seen is not None and seen.epoch == node.epoch
    units = [] if seen is None else [unit for unit in seen.units if unit.get("name") == served_name]
    return NodeFacts(
        node_id=node.id,
        name=node.name,
        state=node.state,
        is_reachable=is_reachable(node, now) and node.state != NodeState.RETIRED,
        is_schedulable=node.is_schedulable,
        age_seconds=None if node.last_seen_at is None else max(0.0, (now - node.last_seen_at).total_seconds()),
        epoch=node.epoch,
        desired_generation=node.desired_generation,
        generation_seen=seen.generation_seen if seen is not None and same_epoch else 0,
        generation_applied=seen.generation_applied if seen is not None and same_epoch else 0,
        units={str(unit["unit"]): _seen_unit(unit) for unit in units},
        error=seen.error if seen is not None else "",
        reachable_since=node.reachable_since,
    )


def _seen_unit(unit: Mapping[str, Any]) -> SeenUnit:
    reason = unit.get("reason") or {}
    return SeenUnit(
        unit=str(unit["unit"]),
        version=int(unit.get("version", 0)),
        state=str(unit.get("state", "absent")),
        reason_code=str(reason.get("code", "")),
        reason_text=str(reason.get("text", "")),
        bytes_done=int(unit.get("bytes_done", 0)),
        bytes_total=int(unit.get("bytes_total", 0)),
        memory_bytes=int(unit.get("memory_bytes", 0)),
        load_seconds=float(unit.get("load_seconds", 0.0)),
        routed_weight=int(unit.get("routed_weight", 0)),
    )


def _node_status(node: NodeFacts, units: tuple[WantedUnit, ...]) -> NodeStatus:
    verdict = node_health(node, units)
    wanted = {unit.unit: unit for unit in units}
    rows = [_unit_status(node.units.get(name), unit) for name, unit in wanted.items()]
    rows += [_unit_status(seen, None) for name, seen in node.units.items() if name not in wanted]
    return NodeStatus(
        node_id=node.node_id,
        name=node.name,
        state=node.state,
        is_reachable=node.is_reachable,
        age_seconds=node.age_seconds,
        is_current=node.is_current,
        health=verdict.status,
        reason=verdict.reason,
        units=tuple(rows),
    )


def _unit_status(seen: SeenUnit | None, wanted: WantedUnit | None) -> UnitStatus:
    state = "pending" if seen is None else seen.state
    ready = state == "ready"
    percent = 100 if ready else 0
    if seen is not None and not ready and seen.bytes_total:
        percent = min(100, 100 * seen.bytes_done // seen.bytes_total)
    return UnitStatus(
        unit=wanted.unit if wanted is not None else seen.unit if seen is not None else "",
        version=wanted.version if wanted is not None else seen.version if seen is not None else 0,
        config=wanted.config if wanted is not None else 0,
        role=wanted.role if wanted is not None else "",
        weight=wanted.weight if wanted is not None else 0,
        routed_weight=seen.routed_weight if seen is not None else 0,
        state=state,
        reason=(seen.reason_text or seen.reason_code) if seen is not None else "",
        percent=percent,
        memory_bytes=seen.memory_bytes if seen is not None else 0,
        load_seconds=seen.load_seconds if seen is not None else 0.0,
        is_wanted=wanted is not None,
    )


def _failed_rollout(newest: Rollout | None) -> str:
    """Return why the last change did not come through; what served before still serves."""
    if newest is None or newest.phase not in (RolloutPhase.ROLLED_BACK, RolloutPhase.FAILED, RolloutPhase.ABORTING):
        return ""
    return _("The last change was not applied: %(why)s") % {"why": newest.phase_reason}


def _label(spec: DeploymentSpec | None) -> str:
    if spec is None:
        return ""
    versions = [f"v{route.version}" for route in spec.routes if route.role == "live"]
    return " + ".join(versions)
