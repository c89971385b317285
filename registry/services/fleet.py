"""Join tokens; environments, fleets and nodes are in modules of their own and re-exported here."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import timedelta

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.errors import ValidationFailed
from registry.models import JoinToken
from registry.services import audit
from registry.services.environments import (
    environment_create,
    environment_delete,
    environment_update,
    fleet_create,
    fleet_delete,
    fleet_update,
)
from registry.services.fields import require_labels
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
    "environment_delete",
    "environment_update",
    "fleet_create",
    "fleet_delete",
    "fleet_update",
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
