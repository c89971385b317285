"""A node's life: it joins, reports, drains, and retires."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone
from django.utils.translation import gettext as _

from registry import signals, telemetry
from registry.domain.actors import Actor
from registry.domain.storable import storable, storable_text
from registry.errors import Conflict, PermissionDenied, ValidationFailed
from registry.models import JoinToken, NodeKind, NodeObservation, NodeState, ServingNode
from registry.selectors.deployments import deployments_on
from registry.selectors.fleet import is_reachable, observation_of
from registry.services import audit
from registry.services.fields import require_slug
from registry.services.nodes import node_generation_raise
from registry.services.permissions import require
from registry.services.sealing import digest, seal, unseal
from registry.services.transition import move
from serving_node.contract.control import CONTRACT_VERSION, Observed

# A node that has not answered for this long counts as unreachable. Observers ask at least every ten seconds.
LEASE = timedelta(seconds=30)
ENDPOINTS = ("http", "grpc", "metrics", "admin")
_SCHEMES = {"http": ("http", "https"), "metrics": ("http", "https"), "grpc": ("grpc", "grpcs", "http", "https")}


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
    require_slug(name, limit=63, field="name")
    _require_known(kind, contract_version)
    addresses = _endpoints(endpoints)
    if len(admin_secret) < 16:
        raise _invalid("admin_secret", _("The admin secret is too short."))
    own = f"flon_{secrets.token_urlsafe(32)}"
    with transaction.atomic():
        join = JoinToken.objects.select_for_update().filter(token_sha256=digest(token), used_at=None).first()
        if join is None or join.expires_at <= timezone.now():
            raise PermissionDenied(_("The join token is unknown, used or expired."))
        _free_name(name)
        node = _create(
            name=name,
            kind=kind,
            endpoints=addresses,
            labels=join.labels,
            inventory=dict(inventory),
            token_sha256=digest(own),
            admin_secret_sealed=seal(admin_secret),
        )
        join.used_at, join.used_by = timezone.now(), node
        join.save(update_fields=["used_at", "used_by"])
        audit.record(
            actor=Actor(name=f"node {name}", ip=ip, is_system=True),
            action="node.join",
            obj=node,
            after={"labels": node.labels, "endpoints": addresses},
        )
        _changed(node)
    return node, own


def node_authenticate(token: str) -> ServingNode | None:
    """Return the node that a node token belongs to; None when unknown or retired."""
    if not token.startswith("flon_"):
        return None
    return ServingNode.objects.filter(token_sha256=digest(token)).exclude(state=NodeState.RETIRED).first()


def node_hello(
    *, node: ServingNode, endpoints: Mapping[str, str], admin_secret: str, inventory: Mapping[str, Any]
) -> ServingNode:
    """Take a restarted node's new endpoints, secret and inventory; joining -> ready."""
    addresses = _endpoints(endpoints)
    if len(admin_secret) < 16:
        raise _invalid("admin_secret", _("The admin secret is too short."))
    with transaction.atomic():
        node = ServingNode.objects.select_for_update(no_key=True).get(pk=node.pk)
        before = node.endpoints
        node.endpoints, node.inventory = addresses, dict(inventory)
        node.admin_secret_sealed = seal(admin_secret)
        node.save(update_fields=["endpoints", "inventory", "admin_secret_sealed"])
        actor = Actor.system(f"node {node.name}")
        if node.state == NodeState.JOINING:
            move(node, "state", NodeState.READY, cause="said hello", actor=actor)
        if before != addresses:
            audit.record(
                actor=actor,
                action="node.hello",
                obj=node,
                before={"endpoints": before},
                after={"endpoints": addresses},
            )
        signals.send_node_desired_changed(node.id)
        _publish(node)
    return node


def node_observe(*, node: ServingNode, observed: Observed, now: datetime) -> bool:
    """Store what a node said, extend its lease, and return whether anything but its age changed."""
    units = storable([unit.to_json() for unit in observed.models])
    facts = {
        "epoch": observed.epoch,
        "generation_seen": observed.generation_seen,
        "generation_applied": observed.generation_applied,
        "units": units,
        "draining": observed.draining,
        "error": "",
    }
    with transaction.atomic():
        node = ServingNode.objects.select_related(None).select_for_update(no_key=True).get(pk=node.pk)
        before = observation_of(node)
        changed = before is None or any(getattr(before, name) != value for name, value in facts.items())
        was_silent = not is_reachable(node, now)
        changed |= was_silent
        # An answer to an earlier question may arrive late; the newer one stays.
        if before is not None and before.observed_at > now:
            return False
        NodeObservation.objects.update_or_create(
            node=node,
            defaults={
                **facts,
                "sequence": observed.sequence,
                "uptime_seconds": observed.uptime_seconds,
                "observed_at": now,
            },
        )
        columns: dict[str, Any] = {"last_seen_at": now, "lease_until": now + LEASE}
        if was_silent:
            columns["reachable_since"] = now
        if observed.inventory:
            columns["inventory"] = storable(observed.inventory)
        ServingNode.objects.filter(pk=node.pk).update(**columns)
        changed |= _follow(node, observed)
        if changed:
            _publish(node)
            for deployment in deployments_on(node).only("id", "project_id"):
                telemetry.publish_on_commit(f"deployment:{deployment.id}", project=deployment.project_id)
    return changed


def node_unreachable(*, node: ServingNode, error: str, now: datetime) -> None:
    """Note why a node could not be reached; its lease runs out by itself."""
    error = storable_text(error[:1000])
    rows = NodeObservation.objects.filter(node=node).exclude(error=error)
    if rows.update(error=error):
        _publish(node)
    elif not NodeObservation.objects.filter(node=node).exists():
        NodeObservation.objects.get_or_create(node=node, defaults={"observed_at": now, "error": error})


def node_epoch_raise(*, node: ServingNode, actor: Actor) -> None:
    """Restart a node's count of generations (site operators): after an older database was restored, it refuses ours."""
    require(actor, "site.fleet")
    with transaction.atomic():
        ServingNode.objects.filter(pk=node.pk).update(epoch=F("epoch") + 1)
        audit.record(actor=actor, action="node.epoch", obj=node)
        _changed(node)
    node.refresh_from_db()


def node_cordon(*, node: ServingNode, actor: Actor) -> None:
    """Keep new deployments off a node (site operators); those that are there stay."""
    require(actor, "site.fleet")
    with transaction.atomic():
        if ServingNode.objects.filter(pk=node.pk, is_schedulable=True).update(
            is_schedulable=False, cordoned_at=timezone.now()
        ):
            audit.record(actor=actor, action="node.cordon", obj=node)
            _changed(node)
    node.refresh_from_db()


def node_uncordon(*, node: ServingNode, actor: Actor) -> None:
    """Let new deployments on a node again; brings a drained one back to ready."""
    require(actor, "site.fleet")
    with transaction.atomic():
        locked = ServingNode.objects.select_for_update(no_key=True).get(pk=node.pk)
        ServingNode.objects.filter(pk=node.pk).update(is_schedulable=True, cordoned_at=None)
        if locked.state == NodeState.DRAINED:
            move(locked, "state", NodeState.READY, cause=f"uncordoned by {actor.name}", actor=actor)
        audit.record(actor=actor, action="node.uncordon", obj=node)
        _changed(node)
    node.refresh_from_db()


def node_drain(*, node: ServingNode, deadline_seconds: int = 30, actor: Actor) -> None:
    """Let a node finish its requests and take no more: ready -> draining (drained once it says so).

    Raises:
        InvalidTransition: it is not ready.
        ValidationFailed: the deadline is not from 0 to 3600 seconds.
    """
    require(actor, "site.fleet")
    if not 0 <= deadline_seconds <= 3600:
        raise _invalid("deadline_seconds", _("The deadline must be from 0 to 3600 seconds."))
    with transaction.atomic():
        move(
            node,
            "state",
            NodeState.DRAINING,
            cause=f"drained by {actor.name}",
            actor=actor,
            drain_deadline_seconds=deadline_seconds,
        )
        audit.record(actor=actor, action="node.drain", obj=node, after={"deadline_seconds": deadline_seconds})
        _changed(node)
    node.refresh_from_db()


def node_retire(*, node: ServingNode, actor: Actor) -> None:
    """Take a node out for good; its token no longer works."""
    require(actor, "site.fleet")
    with transaction.atomic():
        move(node, "state", NodeState.RETIRED, cause=f"retired by {actor.name}", actor=actor, token_sha256="")
        audit.record(actor=actor, action="node.retire", obj=node)
        _changed(node)
    node.refresh_from_db()


def node_admin_secret(node: ServingNode) -> str:
    """Return the bearer secret of a node's admin port (workers only).

    Raises:
        StorageFailed: it was sealed with another secret key.
    """
    return unseal(node.admin_secret_sealed)


def _require_known(kind: str, contract_version: int) -> None:
    if kind not in NodeKind.values:
        raise _invalid("kind", _("There is no such kind of node."))
    if contract_version != CONTRACT_VERSION:
        raise _invalid(
            "contract_version",
            _("This control plane speaks version %(ours)s of the node contract, the node %(theirs)s.")
            % {"ours": CONTRACT_VERSION, "theirs": contract_version},
        )


def _create(**columns: Any) -> ServingNode:
    try:
        with transaction.atomic():
            return ServingNode.objects.create(**columns)
    except IntegrityError:
        raise _name_taken(columns["name"]) from None


def _free_name(name: str) -> None:
    """Give the name of a retired node to the new one of that name."""
    older = ServingNode.objects.filter(name=name).first()
    if older is None:
        return
    if older.state != NodeState.RETIRED:
        raise _name_taken(name)
    ServingNode.objects.filter(pk=older.pk).update(name=f"{name} (retired {str(older.pk)[-12:]})")


def _name_taken(name: str) -> Conflict:
    return Conflict(
        _("A node “%(name)s” is there already; retire it first, or choose another name.") % {"name": name},
        errors=[{"field": "name", "message": _("This name is taken.")}],
    )


def _follow(node: ServingNode, observed: Observed) -> bool:
    """Move the node's own state after what it said; return whether it moved."""
    actor = Actor.system(f"node {node.name}")
    if node.state == NodeState.JOINING:
        move(node, "state", NodeState.READY, cause="answered", actor=actor)
        return True
    applied = observed.epoch == node.epoch and observed.generation_applied >= node.desired_generation
    if node.state == NodeState.DRAINING and observed.draining and applied:
        move(node, "state", NodeState.DRAINED, cause="no request runs any more", actor=actor)
        node_generation_raise([node.id])
        return True
    return False


def _changed(node: ServingNode) -> None:
    """What the node should do may be different now, and so may the health of what is deployed on it."""
    node_generation_raise([node.id])
    for deployment_id in deployments_on(node).values_list("id", flat=True):
        signals.send_deployment_touched(deployment_id)
    _publish(node)


def _publish(node: ServingNode) -> None:
    telemetry.publish_on_commit(f"node:{node.id}")
    telemetry.publish_on_commit("fleet")


def _endpoints(endpoints: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses of a node, each judged.

    The admin port takes commands: in the clear it may only be on the machine itself.
    """
    unknown = [name for name in endpoints if name not in ENDPOINTS]
    if unknown or "admin" not in endpoints:
        raise _invalid("endpoints", _("Endpoints are http, grpc, metrics and admin; admin must be there."))
    for name, address in endpoints.items():
        if len(str(address)) > 300:
            raise _invalid(f"endpoints.{name}", _("An endpoint is an address of at most 300 characters."))
        try:
            parts = urlsplit(str(address))
            host, _port = parts.hostname, parts.port
        except ValueError:
            host, parts = None, urlsplit("")
        schemes = _SCHEMES.get(name, ("http", "https"))
        if host is None or parts.scheme not in schemes:
            raise _invalid(f"endpoints.{name}", _("This is no address like http://host:port."))
        if name == "admin" and parts.scheme == "http" and not _is_loopback(host):
            raise _invalid("endpoints.admin", _("An admin port that is not on this machine needs https."))
    return dict(endpoints)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _invalid(field: str, message: str) -> ValidationFailed:
    return ValidationFailed(message, errors=[{"field": field, "message": message}])
