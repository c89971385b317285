"""Environments, fleets and nodes."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_

from django.db.models import F, Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.errors import NotFound
from registry.models import Environment, Fleet, JoinToken, NodeObservation, NodeState, ServingNode
from registry.selectors.lookup import one_by_id
from registry.selectors.permissions import can


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node in a list. ``age_seconds`` of the observation, None when there is none; counts are of its units."""

    node: ServingNode
    observation: NodeObservation | None
    is_reachable: bool
    age_seconds: float | None
    units_ready: int
    units_failed: int
    units_total: int
    is_current: bool
    fleets: tuple[Fleet, ...]
    error: str = ""


def environments() -> QuerySet[Environment]:
    """Return environments in their order."""
    return Environment.objects.order_by("position", "slug")


def environment_get(slug: str) -> Environment:
    """Return an environment.

    Raises:
        NotFound: there is none.
    """
    environment = environments().filter(slug=slug).first()
    if environment is None:
        raise NotFound(_("There is no environment “%(slug)s”.") % {"slug": slug})
    return environment


def fleets() -> QuerySet[Fleet]:
    """Return fleets with their environment, in the order of environments."""
    return Fleet.objects.select_related("environment").order_by("environment__position", "slug")


def fleet_by_slug(slug: str) -> Fleet:
    """Return a fleet.

    Raises:
        NotFound: there is none.
    """
    fleet = fleets().filter(slug=slug).first()
    if fleet is None:
        raise NotFound(_("There is no fleet “%(slug)s”.") % {"slug": slug})
    return fleet


def placed_on(node: ServingNode) -> bool:
    """Say whether the node takes part in deployments in its present state."""
    return node.state in (NodeState.JOINING, NodeState.READY, NodeState.DRAINING)


def nodes_of(*fleets: Fleet) -> QuerySet[ServingNode]:
    """Return nodes of any of the fleets that are not retired (cordoned and draining ones too), by name."""
    matching = reduce(or_, (Q(labels__contains=fleet.selector) for fleet in fleets), Q(pk=None))
    return (
        ServingNode.objects.filter(matching)
        .exclude(state=NodeState.RETIRED)
        .select_related("observation")
        .order_by("name")
    )


def belongs(node: ServingNode, fleet: Fleet) -> bool:
    """Say whether the node carries every label of the fleet's selector."""
    return all(node.labels.get(key) == value for key, value in fleet.selector.items())


def fleets_of(node: ServingNode) -> list[Fleet]:
    """Return the fleets whose selector the node's labels match."""
    return [fleet for fleet in fleets() if belongs(node, fleet)]


def nodes_visible_to(actor: Actor) -> QuerySet[ServingNode]:
    """Return nodes: all for signed-in people (which models run there is filtered by membership elsewhere)."""
    nodes = ServingNode.objects.select_related("observation").order_by("name")
    return nodes if can(actor, "site.view") or (actor.user is not None and actor.has_scope("read")) else nodes.none()


def node_get(actor: Actor, node_id: uuid.UUID | str) -> ServingNode:
    """Return a node by id.

    Raises:
        NotFound: there is none.
    """
    return one_by_id(nodes_visible_to(actor), node_id, _("There is no such node."))


def node_named(actor: Actor, name: str) -> ServingNode:
    """Return a node by name or id.

    Raises:
        NotFound: there is none.
    """
    found = nodes_visible_to(actor).filter(name=name).first()
    if found is not None:
        return found
    try:
        return node_get(actor, uuid.UUID(name))
    except ValueError:
        raise NotFound(_("There is no node “%(name)s”.") % {"name": name}) from None


def is_reachable(node: ServingNode, now: datetime) -> bool:
    """Say whether the node's lease still runs."""
    return node.lease_until is not None and node.lease_until > now


def observation_of(node: ServingNode) -> NodeObservation | None:
    """Return what the node said last; None when it never spoke."""
    try:
        return node.observation
    except NodeObservation.DoesNotExist:
        return None


def nodes_joined() -> QuerySet[ServingNode]:
    """Return the nodes that are not retired, by name."""
    return ServingNode.objects.exclude(state=NodeState.RETIRED).select_related("observation").order_by("name")


def node_rows(nodes: Iterable[ServingNode] | None = None, now: datetime | None = None) -> list[NodeRow]:
    """Return rows of these nodes, or of all that are not retired, in a fixed number of queries."""
    nodes = nodes_joined() if nodes is None else nodes
    known = list(fleets())
    return [_row(node, known, now or timezone.now()) for node in nodes]


def node_row(node: ServingNode, now: datetime | None = None) -> NodeRow:
    """Return one node as in the list."""
    return _row(node, list(fleets()), now or timezone.now())


def nodes_observable() -> list[ServingNode]:
    """Return nodes that workers watch: joined and not retired."""
    return list(ServingNode.objects.exclude(state=NodeState.RETIRED).order_by("name"))


def nodes_behind(*, limit: int = 200) -> list[uuid.UUID]:
    """Return ids of nodes whose applied generation (or epoch) is older than what they should do, in any order."""
    behind = (
        Q(observation=None)
        | Q(observation__generation_applied__lt=F("desired_generation"))
        | ~Q(observation__epoch=F("epoch"))
    )
    nodes = ServingNode.objects.filter(behind, desired_generation__gt=0).exclude(state=NodeState.RETIRED)
    return list(nodes.order_by("?").values_list("id", flat=True)[:limit])


def join_tokens() -> QuerySet[JoinToken]:
    """Return unused join tokens that have not expired, newest first."""
    return JoinToken.objects.filter(used_at=None, expires_at__gt=timezone.now()).order_by("-created_at")


def _row(node: ServingNode, known: list[Fleet], now: datetime) -> NodeRow:
    seen = observation_of(node)
    states = [unit.get("state") for unit in seen.units] if seen is not None else []
    return NodeRow(
        node=node,
        observation=seen,
        is_reachable=is_reachable(node, now),
        age_seconds=max(0.0, (now - node.last_seen_at).total_seconds()) if node.last_seen_at is not None else None,
        units_ready=states.count("ready"),
        units_failed=states.count("failed"),
        units_total=len(states),
        is_current=seen is not None and seen.epoch == node.epoch and seen.generation_applied >= node.desired_generation,
        fleets=tuple(fleet for fleet in known if belongs(node, fleet)),
        error=seen.error if seen is not None else "",
    )
