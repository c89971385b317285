"""Environments, fleets and join tokens; nodes are in ``registry.services.node_life`` and re-exported here."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import timedelta

from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils import timezone
from django.utils.translation import gettext as _

from registry import telemetry
from registry.domain.actors import Actor
from registry.errors import Conflict, ValidationFailed
from registry.models import Environment, Fleet, JoinToken
from registry.services import audit
from registry.services.fields import require_labels, require_slug
from registry.services.node_life import (
    node_admin_secret,
    node_authenticate,
    node_cordon,
    node_drain,
    node_hello,
    node_join,
    node_observe,
    node_retire,
    node_uncordon,
    node_unreachable,
)
from registry.services.nodes import node_generation_raise
from registry.services.permissions import require
from registry.services.sealing import digest

__all__ = [
    "environment_create",
    "environment_update",
    "fleet_create",
    "join_token_create",
    "node_admin_secret",
    "node_authenticate",
    "node_cordon",
    "node_drain",
    "node_generation_raise",
    "node_hello",
    "node_join",
    "node_observe",
    "node_retire",
    "node_uncordon",
    "node_unreachable",
]


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
    _require_count(required_approvals)
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
    *, environment: Environment, requires_approval: bool, required_approvals: int, actor: Actor
) -> Environment:
    """Change an environment's protection (site administrators)."""
    require(actor, "site.environments")
    _require_count(required_approvals)
    before = {
        "requires_approval": environment.requires_approval,
        "required_approvals": environment.required_approvals,
    }
    environment.requires_approval = requires_approval
    environment.required_approvals = required_approvals
    with transaction.atomic():
        environment.save(update_fields=["requires_approval", "required_approvals"])
        audit.record(
            actor=actor,
            action="environment.update",
            obj=environment,
            before=before,
            after={"requires_approval": requires_approval, "required_approvals": required_approvals},
        )
    return environment


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


def join_token_create(*, labels: Mapping[str, str], valid_hours: int = 24, actor: Actor) -> tuple[JoinToken, str]:
    """Create a one-time token with which a node joins and gets these labels. Its text is shown only this once."""
    require(actor, "site.fleet")
    wanted = require_labels(dict(labels))
    if not 1 <= valid_hours <= 24 * 365:
        message = _("A join token is valid for 1 hour to a year.")
        raise ValidationFailed(message, errors=[{"field": "valid_hours", "message": message}])
    text = f"floj_{secrets.token_urlsafe(32)}"
    with transaction.atomic():
        token = JoinToken.objects.create(
            token_sha256=digest(text),
            labels=wanted,
            created_by_id=actor.user_id,
            expires_at=timezone.now() + timedelta(hours=valid_hours),
        )
        audit.record(actor=actor, action="join_token.create", obj=token, after={"labels": wanted})
    return token, text


def _require_count(required_approvals: int) -> None:
    if not 0 <= required_approvals <= 10:
        message = _("The number of approvals must be from 0 to 10.")
        raise ValidationFailed(message, errors=[{"field": "required_approvals", "message": message}])


def _taken(slug: str) -> Conflict:
    return Conflict(
        _("The name “%(slug)s” is taken.") % {"slug": slug},
        errors=[{"field": "slug", "message": _("This name is taken.")}],
    )
