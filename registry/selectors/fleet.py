"""Environments, fleets and nodes."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet

from registry.domain.actors import Actor
from registry.models import Environment, Fleet, JoinToken, NodeObservation, ServingNode


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
    raise NotImplementedError


def fleets() -> QuerySet[Fleet]:
    """Return fleets with their environment, in the order of environments."""
    raise NotImplementedError


def fleet_by_slug(slug: str) -> Fleet:
    """Return a fleet.

    Raises:
        NotFound: there is none.
    """
    raise NotImplementedError


def nodes_of(fleet: Fleet) -> QuerySet[ServingNode]:
    """Return nodes that match the fleet's selector and are not retired (cordoned and draining ones too), by name."""
    raise NotImplementedError


def fleets_of(node: ServingNode) -> list[Fleet]:
    """Return the fleets whose selector the node's labels match."""
    raise NotImplementedError


def nodes_visible_to(actor: Actor) -> QuerySet[ServingNode]:
    """Return nodes: all for signed-in people (which models run there is filtered by membership elsewhere)."""
    raise NotImplementedError


def node_get(actor: Actor, node_id: uuid.UUID | str) -> ServingNode:
    """Return a node by id.

    Raises:
        NotFound: there is none.
    """
    raise NotImplementedError


def is_reachable(node: ServingNode, now: datetime) -> bool:
    """Say whether the node's lease still runs."""
    raise NotImplementedError


def node_rows(now: datetime | None = None) -> list[NodeRow]:
    """Return all nodes that are not retired, by name, in a fixed number of queries."""
    raise NotImplementedError


def node_row(node: ServingNode, now: datetime | None = None) -> NodeRow:
    """Return one node as in the list."""
    raise NotImplementedError


def nodes_observable() -> list[ServingNode]:
    """Return nodes that workers watch: joined and not retired."""
    raise NotImplementedError


def nodes_behind(*, limit: int = 200) -> list[uuid.UUID]:
    """Return ids of nodes whose applied generation (or epoch) is older than what they should do."""
    raise NotImplementedError


def join_tokens() -> QuerySet[JoinToken]:
    """Return unused join tokens that have not expired, newest first."""
    raise NotImplementedError
