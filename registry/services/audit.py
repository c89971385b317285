"""Who did what: rows that nobody can change, and the hash chain that proves it."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import Any

from django.db import connection, models, transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.models import AuditEvent, AuditSeal
from registry.selectors.permissions import project_id_of
from registry.services.webhook_events import event_publish

_GENESIS = "0" * 64
_SEALER_LOCK = 0x464C4F54_5345414C


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

    ``project_id`` is found from the row when it is not given; None for rows of the site. Webhooks that want it get it.
    """
    project_id = project_id or project_id_of(obj)
    event_publish(action, project_id=project_id, actor_name=actor.name, obj=obj, details=after)
    return AuditEvent.objects.create(
        project_id=project_id,
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


def seal_pending(limit: int = 1000, *, everything: bool = False) -> int:
    """Chain events that are not sealed yet, in the order in which they became visible, and return how many were.

    ``everything`` walks over the whole log: it finds events of transactions that took longer than a day to commit.

    Concurrency: one sealer at a time; another one returns 0 at once.
    """
    sealed = 0
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_SEALER_LOCK])
            if not cursor.fetchone()[0]:
                return 0
        heads: dict[str, AuditSeal | None] = {}
        for event in _unsealed(everything)[:limit]:
            chain = _chain_of(event)
            if chain not in heads:
                heads[chain] = AuditSeal.objects.filter(chain=chain).order_by("-sequence").first()
            head = heads[chain]
            sequence = head.sequence + 1 if head is not None else 1
            previous = head.hash if head is not None else _GENESIS
            heads[chain] = AuditSeal.objects.create(
                chain=chain,
                sequence=sequence,
                event=event,
                previous_hash=previous,
                hash=_hash(chain, sequence, previous, event),
            )
            sealed += 1
    return sealed


def chains() -> list[str]:
    """Return the names of all chains (project ids and ``site``)."""
    return list(AuditSeal.objects.order_by("chain").values_list("chain", flat=True).distinct())


def verify_chain(chain: str) -> ChainReport:
    """Recompute a chain from its first event and compare it with its seals."""
    previous, expected, checked = _GENESIS, 1, 0
    for seal in AuditSeal.objects.filter(chain=chain).select_related("event").order_by("sequence").iterator(500):
        problem = ""
        if seal.sequence != expected:
            problem = _("seal %(number)s is missing") % {"number": expected}
        elif seal.previous_hash != previous:
            problem = _("it does not continue the seal before it")
        elif _chain_of(seal.event) != chain:
            problem = _("its event belongs to another chain")
        elif seal.hash != _hash(chain, seal.sequence, previous, seal.event):
            problem = _("its event was changed")
        if problem:
            return ChainReport(chain, False, checked, seal.sequence, problem)
        previous, expected, checked = seal.hash, expected + 1, checked + 1
    return ChainReport(chain, True, checked)


# How far behind the newest sealed event a late transaction may still commit its own.
_LATE = timedelta(days=1)


def _unsealed(everything: bool) -> QuerySet[AuditEvent]:
    events = AuditEvent.objects.filter(seal=None).order_by("created_at", "id")
    if everything:
        return events
    newest = AuditSeal.objects.order_by("-id").values_list("event__created_at", flat=True).first()
    # Without the bound each pass would walk over the whole log.
    return events.filter(created_at__gte=newest - _LATE) if newest is not None else events


def _chain_of(event: AuditEvent) -> str:
    return str(event.project_id) if event.project_id is not None else "site"


def _hash(chain: str, sequence: int, previous: str, event: AuditEvent) -> str:
    """Return the SHA-256 over everything that the event says, its place, and the hash before it."""
    document = {
        "chain": chain,
        "sequence": sequence,
        "previous": previous,
        "id": str(event.id),
        "created_at": event.created_at.astimezone(UTC).isoformat(),
        "project": str(event.project_id),
        "actor": event.actor_name,
        "actor_id": str(event.actor_id),
        "token_id": str(event.token_id),
        "ip": str(event.ip),
        "request_id": event.request_id,
        "action": event.action,
        "object_type": event.object_type,
        "object_id": event.object_id,
        "object_label": event.object_label,
        "before": event.before,
        "after": event.after,
    }
    # JSON columns keep numbers exactly, so sorted keys are canonical enough for values that come from them.
    return hashlib.sha256(json.dumps(document, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
