"""Who did what: rows that nobody can change, and the hash chain that proves it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import models

from registry.domain.actors import Actor
from registry.models import AuditEvent
from registry.selectors.permissions import project_id_of


@dataclass(frozen=True, slots=True)
class ChainReport:
    """Result of a verification. ``bad_sequence`` is the first seal that does not hold, None when all do."""

    chain: str
    ok: bool
    checked: int
    bad_sequence: int | None = None
    problem: str = ""


def record(
    *,
    actor: Actor,
    action: str,
    obj: models.Model,
    project_id: uuid.UUID | None = None,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> AuditEvent:
    """Write one audit row in the caller's transaction. ``before`` and ``after`` must hold no secrets.

    ``project_id`` is found from the row when it is not given; None for rows of the site.
    """
    return AuditEvent.objects.create(
        project_id=project_id or project_id_of(obj),
        actor_name=actor.name[:200],
        actor_id=actor.user_id,
        token_id=actor.token_id,
        ip=actor.ip,
        request_id=actor.request_id[:64],
        action=action,
        object_type=obj._meta.model_name or "",
        object_id=str(obj.pk),
        object_label=str(obj)[:300],
        before=dict(before) if before is not None else None,
        after=dict(after) if after is not None else None,
    )


def seal_pending(limit: int = 1000) -> int:
    """Chain events that are not sealed yet, oldest commit first, and return how many were."""
    raise NotImplementedError


def chains() -> list[str]:
    """Return the names of all chains (project ids and ``site``)."""
    raise NotImplementedError


def verify_chain(chain: str) -> ChainReport:
    """Recompute a chain and compare it with its seals."""
    raise NotImplementedError
