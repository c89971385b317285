"""Environments and what protects them, and the fleets in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils.translation import gettext as _

from registry import signals, telemetry
from registry.domain.actors import Actor
from registry.domain.protection import MAX_APPROVALS, MAX_WAIT_MINUTES, read_checks
from registry.domain.windows import read_windows
from registry.errors import Conflict, ValidationFailed
from registry.models import Deployment, Environment, Fleet, Role, User
from registry.selectors import clock
from registry.selectors.fleet import nodes_of
from registry.selectors.protection import at_least, protection_json, requests_waiting
from registry.services import audit
from registry.services.fields import require_labels, require_slug
from registry.services.nodes import node_generation_raise
from registry.services.permissions import require

MAX_PEOPLE = 50
MAX_VALID_HOURS = 24 * 365


def environment_create(
    *,
    slug: str,
    name: str,
    requires_approval: bool = True,
    required_approvals: int = 1,
    position: int | None = None,
    actor: Actor,
) -> Environment:
    """Create an environment (site administrators).

    Raises:
        Conflict: the name is taken.
    """
    require(actor, "site.environments")
    require_slug(slug, limit=63)
    _between(required_approvals, 0, MAX_APPROVALS, "required_approvals")
    try:
        with transaction.atomic():
            last = Environment.objects.aggregate(last=Max("position"))["last"]
            environment = Environment.objects.create(
                slug=slug,
                name=name or slug,
                requires_approval=requires_approval,
                required_approvals=required_approvals,
                position=position if position is not None else (last or 0) + 1,
            )
            audit.record(
                actor=actor,
                action="environment.create",
                obj=environment,
                after={"requires_approval": requires_approval, "required_approvals": required_approvals},
            )
    except IntegrityError:
        raise _taken(slug) from None
    return environment


def environment_update(
    *,
    environment: Environment,
    name: str | None = None,
    position: int | None = None,
    requires_approval: bool | None = None,
    required_approvals: int | None = None,
    approval_valid_hours: int | None = None,
    approvers: Sequence[str] | None = None,
    approver_role: str | None = None,
    required_checks: Sequence[Mapping[str, Any]] | None = None,
    wait_minutes: int | None = None,
    windows: Sequence[Mapping[str, Any]] | None = None,
    admins_bypass: bool | None = None,
    bypassers: Sequence[str] | None = None,
    actor: Actor,
) -> Environment:
    """Change what is given (site administrators); people by user name. What waits is judged anew by the new rules.

    Raises:
        ValidationFailed: unknown people, checks, windows or numbers out of range; ``errors`` names the fields.
    """
    require(actor, "site.environments")
    with transaction.atomic():
        locked = Environment.objects.select_for_update().get(pk=environment.pk)
        before = {"name": locked.name, **protection_json(locked)}
        for field, value in _columns(
            name=name,
            position=position,
            requires_approval=requires_approval,
            required_approvals=required_approvals,
            approval_valid_hours=approval_valid_hours,
            approver_role=approver_role,
            required_checks=required_checks,
            wait_minutes=wait_minutes,
            windows=windows,
            admins_bypass=admins_bypass,
        ).items():
            setattr(locked, field, value)
        locked.save()
        if approvers is not None:
            locked.approvers.set(_people(approvers, "approvers", services=False))
        if bypassers is not None:
            locked.bypassers.set(_people(bypassers, "bypassers", services=True))
        _require_enough(locked)
        requests_waiting(locked).update(due_at=clock.database_now())
        audit.record(
            actor=actor,
            action="environment.update",
            obj=locked,
            before=before,
            after={"name": locked.name, **protection_json(locked)},
        )
        telemetry.publish_on_commit("fleet")
    return locked


def environment_delete(*, environment: Environment, actor: Actor) -> None:
    """Delete an environment with its fleets (site administrators). Nodes stay; their labels match no fleet of it more.

    Raises:
        Conflict: a model is deployed there.
    """
    require(actor, "site.environments")
    with transaction.atomic():
        locked = Environment.objects.select_for_update().get(pk=environment.pk)
        _require_unused(Deployment.objects.filter(fleet__environment=locked).count())
        audit.record(
            actor=actor,
            action="environment.delete",
            obj=locked,
            before={"fleets": [*locked.fleets.order_by("slug").values_list("slug", flat=True)]},
        )
        locked.fleets.all().delete()
        locked.delete()
        telemetry.publish_on_commit("fleet")


def fleet_create(*, slug: str, name: str, environment: Environment, selector: Mapping[str, str], actor: Actor) -> Fleet:
    """Create a fleet: all nodes that carry every label of ``selector`` (site operators).

    Raises:
        Conflict: the name is taken.
    """
    require(actor, "site.fleet")
    require_slug(slug, limit=63)
    labels = require_labels(dict(selector), field="selector")
    try:
        with transaction.atomic():
            fleet = Fleet.objects.create(slug=slug, name=name or slug, environment=environment, selector=labels)
            audit.record(actor=actor, action="fleet.create", obj=fleet, after={"selector": labels})
            telemetry.publish_on_commit("fleet")
    except IntegrityError:
        raise _taken(slug) from None
    return fleet


def fleet_update(
    *, fleet: Fleet, name: str | None = None, selector: Mapping[str, str] | None = None, actor: Actor
) -> Fleet:
    """Change a fleet's name or which nodes belong to it (site operators).

    Nodes that leave unload what the fleet deploys, nodes that join load it; requests that wait become void.

    Raises:
        Conflict: two deployments would serve under one name on a node.
    """
    require(actor, "site.fleet")
    labels = require_labels(dict(selector), field="selector") if selector is not None else None
    with transaction.atomic():
        locked = Fleet.objects.select_for_update().get(pk=fleet.pk)
        before = {"name": locked.name, "selector": locked.selector}
        touched = set(nodes_of(locked).values_list("id", flat=True))
        locked.name = (name or "").strip() or locked.name
        if len(locked.name) > 100:
            raise _bad("name", _("A name has at most 100 characters."))
        if labels is not None:
            locked.selector = labels
        locked.save(update_fields=["name", "selector"])
        if locked.selector != before["selector"]:
            _require_own_names(locked)
            node_generation_raise(touched | set(nodes_of(locked).values_list("id", flat=True)))
            for deployment_id in locked.deployments.values_list("id", flat=True):
                signals.send_deployment_touched(deployment_id)
        audit.record(
            actor=actor,
            action="fleet.update",
            obj=locked,
            before=before,
            after={"name": locked.name, "selector": locked.selector},
        )
        telemetry.publish_on_commit("fleet")
    return locked


def fleet_delete(*, fleet: Fleet, actor: Actor) -> None:
    """Delete a fleet (site operators). Its nodes stay.

    Raises:
        Conflict: a model is deployed there.
    """
    require(actor, "site.fleet")
    with transaction.atomic():
        locked = Fleet.objects.select_for_update().get(pk=fleet.pk)
        _require_unused(locked.deployments.count())
        audit.record(actor=actor, action="fleet.delete", obj=locked, before={"selector": locked.selector})
        locked.delete()
        telemetry.publish_on_commit("fleet")


def _columns(**given: Any) -> dict[str, Any]:
    """Return the columns that are given, judged."""
    columns = {field: value for field, value in given.items() if value is not None}
    limits = {
        "required_approvals": (0, MAX_APPROVALS),
        "approval_valid_hours": (1, MAX_VALID_HOURS),
        "wait_minutes": (0, MAX_WAIT_MINUTES),
        "position": (0, 1000),
    }
    for field, (low, high) in limits.items():
        if field in columns:
            _between(columns[field], low, high, field)
    if "name" in columns and not 1 <= len(columns["name"].strip()) <= 100:
        raise _bad("name", _("A name has from 1 to 100 characters."))
    if columns.get("approver_role", "") not in ("", *at_least(Role.APPROVER)):
        raise _bad("approver_role", _("The role must be approver, operator or admin, or empty."))
    if "required_checks" in columns:
        columns["required_checks"] = [check.to_json() for check in read_checks(columns["required_checks"])]
    if "windows" in columns:
        columns["windows"] = [window.to_json() for window in read_windows(columns["windows"])]
    return columns


def _people(names: Sequence[str], field: str, *, services: bool) -> list[User]:
    wanted = dict.fromkeys(names)
    if len(wanted) > MAX_PEOPLE:
        raise _bad(field, _("Name at most %(most)d people.") % {"most": MAX_PEOPLE})
    known = {user.username: user for user in User.objects.filter(username__in=wanted, is_active=True)}
    for name in wanted:
        if name not in known or (known[name].is_service and not services):
            raise _bad(field, _("There is no active person “%(name)s”.") % {"name": name[:150]})
    return [known[name] for name in wanted]


def _require_enough(environment: Environment) -> None:
    """Refuse rules that nobody can meet: more approvals than people who may give them."""
    named = environment.approvers.count()
    if environment.requires_approval and named and not environment.approver_role:
        needed = max(1, environment.required_approvals)
        if named < needed:
            raise _bad(
                "approvers",
                _("%(needed)d approvals are needed, but only %(named)d people may give them.")
                % {"needed": needed, "named": named},
            )


def _require_own_names(fleet: Fleet) -> None:
    """Refuse a selector under which two deployments would serve under one name on a node."""
    for deployment in fleet.deployments.all():
        others = Deployment.objects.filter(served_name=deployment.served_name).exclude(pk=deployment.pk)
        for other in others.select_related("fleet"):
            if nodes_of(fleet).filter(labels__contains=other.fleet.selector).exists():
                message = _("The name “%(name)s” would be served twice on nodes of fleet %(fleet)s.") % {
                    "name": deployment.served_name,
                    "fleet": other.fleet.slug,
                }
                raise Conflict(message, errors=[{"field": "selector", "message": message}])


def _require_unused(deployments: int) -> None:
    if deployments:
        raise Conflict(_("%(count)d deployments are there, so it cannot be deleted.") % {"count": deployments})


def _between(value: int, low: int, high: int, field: str) -> None:
    if not low <= value <= high:
        raise _bad(field, _("This must be a whole number from %(low)d to %(high)d.") % {"low": low, "high": high})


def _bad(field: str, message: str) -> ValidationFailed:
    return ValidationFailed(message, errors=[{"field": field, "message": message}])


def _taken(slug: str) -> Conflict:
    return Conflict(
        _("The name “%(slug)s” is taken.") % {"slug": slug},
        errors=[{"field": "slug", "message": _("This name is taken.")}],
    )
