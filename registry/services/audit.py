"""Who did what: rows that nobody can change, and the hash chain that proves it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import models

from registry.domain.actors import Actor
from registry.models import AuditEvent


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
    """Write one audit row in the caller's transaction. ``before`` and ``after`` must hold no secrets."""
    raise NotImplementedError


def seal_pending(limit: int = 1000) -> int:
    """Chain events that are not sealed yet, oldest commit first, and return how many were."""
    raise NotImplementedError


def chains() -> list[str]:
    """Return the names of all chains (project ids and ``site``)."""
    raise NotImplementedError


def verify_chain(chain: str) -> ChainReport:
    """Recompute a chain and compare it with its seals."""
    raise NotImplementedError
