"""Environments, fleets, nodes and what they report."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from registry.domain.actors import Actor
from registry.models import Environment, Fleet, JoinToken, ServingNode
from serving_node.contract.control import Observed


def environment_create(
    *,
    slug: str,
    name: str,
    requires_approval: bool = True,
    required_approvals: int = 1,
    position: int | None = None,
    actor: Actor,
) -> Environment:
    """Create an environment (site operators)."""
    raise NotImplementedError


def environment_update(
    *, environment: Environment, requires_approval: bool, required_approvals: int, actor: Actor
) -> Environment:
    """Change an environment's protection (site administrators)."""
    raise NotImplementedError


def fleet_create(*, slug: str, name: str, environment: Environment, selector: Mapping[str, str], actor: Actor) -> Fleet:
    """Create a fleet: all nodes that carry every label of ``selector`` (site operators)."""
    raise NotImplementedError


def join_token_create(*, labels: Mapping[str, str], valid_hours: int = 24, actor: Actor) -> tuple[JoinToken, str]:
    """Create a one-time token with which a node joins and gets these labels. Its text is shown only this once."""
    raise NotImplementedError


def node_join(
    *,
    token: str,
    name: str,
    endpoints: Mapping[str, str],
    admin_secret: str,
    inventory: Mapping[str, Any],
    contract_version: int,
    kind: str = "flotilla",
    ip: str | None = None,
) -> tuple[ServingNode, str]:
    """Join a node with a one-time token and return it with its own token, which is shown only this once.

    Raises:
        PermissionDenied: the token is unknown, used or expired.
        ValidationFailed: a bad name, endpoint or contract version.
        Conflict: a node of that name is there already.
    """
    raise NotImplementedError


def node_authenticate(token: str) -> ServingNode | None:
    """Return the node that a node token belongs to; None when unknown or retired."""
    raise NotImplementedError


def node_hello(
    *, node: ServingNode, endpoints: Mapping[str, str], admin_secret: str, inventory: Mapping[str, Any]
) -> ServingNode:
    """Take a restarted node's new endpoints, secret and inventory; joining -> ready."""
    raise NotImplementedError


def node_observe(*, node: ServingNode, observed: Observed, now: datetime) -> bool:
    """Store what a node said, extend its lease, and return whether anything but its age changed."""
    raise NotImplementedError


def node_unreachable(*, node: ServingNode, error: str, now: datetime) -> None:
    """Note why a node could not be reached; its lease runs out by itself."""
    raise NotImplementedError


def node_cordon(*, node: ServingNode, actor: Actor) -> None:
    """Keep new deployments off a node (site operators)."""
    raise NotImplementedError


def node_uncordon(*, node: ServingNode, actor: Actor) -> None:
    """Let new deployments on a node again; brings a drained one back to ready."""
    raise NotImplementedError


def node_drain(*, node: ServingNode, deadline_seconds: int = 30, actor: Actor) -> None:
    """Let a node finish its requests and take no more: ready -> draining (drained once it says so)."""
    raise NotImplementedError


def node_retire(*, node: ServingNode, actor: Actor) -> None:
    """Take a node out for good; its token no longer works."""
    raise NotImplementedError


def node_admin_secret(node: ServingNode) -> str:
    """Return the bearer secret of a node's admin port (workers only)."""
    raise NotImplementedError


def node_generation_raise(node_ids: Iterable[uuid.UUID]) -> None:
    """Raise the desired generation of nodes in the caller's transaction and hint at it after the commit."""
    raise NotImplementedError
