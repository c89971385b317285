"""Who did what: rows that nobody can change, and the hash chain that proves it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.db import connection, models, transaction
from django.db.models import QuerySet

from registry.domain.actors import Actor
from registry.domain.audit_chain import GENESIS, ChainReport, ChainVerifier, seal_hash
from registry.models import AuditEvent, AuditSeal
from registry.selectors.audit import audit_line, chain_of
from registry.selectors.permissions import project_id_of
from registry.services.webhook_events import event_publish

_SEALER_LOCK = 0x464C4F54_5345414C


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
            chain = chain_of(event)
            if chain not in heads:
                heads[chain] = AuditSeal.objects.filter(chain=chain).order_by("-sequence").first()
            head = heads[chain]
            sequence = head.sequence + 1 if head is not None else 1
            previous = head.hash if head is not None else GENESIS
            heads[chain] = AuditSeal.objects.create(
                chain=chain,
                sequence=sequence,
                event=event,
                previous_hash=previous,
                hash=seal_hash(audit_line(event, chain, sequence, previous)),
            )
            sealed += 1
    return sealed


def chains() -> list[str]:
    """Return the names of all chains (project ids and ``site``)."""
    return list(AuditSeal.objects.order_by("chain").values_list("chain", flat=True).distinct())


def verify_chain(chain: str) -> ChainReport:
    """Recompute a chain from its first event and compare it with its seals."""
    verifier = ChainVerifier(chain)
    for seal in AuditSeal.objects.filter(chain=chain).select_related("event").order_by("sequence").iterator(500):
        line = audit_line(seal.event, chain, seal.sequence, seal.previous_hash)
        if not verifier.take({**line, "hash": seal.hash}):
            break
    return verifier.report()


# How far behind the newest sealed event a late transaction may still commit its own.
_LATE = timedelta(days=1)


def _unsealed(everything: bool) -> QuerySet[AuditEvent]:
    events = AuditEvent.objects.filter(seal=None).order_by("created_at", "id")
    if everything:
        return events
    newest = AuditSeal.objects.order_by("-id").values_list("event__created_at", flat=True).first()
    # Without the bound each pass would walk over the whole log.
    return events.filter(created_at__gte=newest - _LATE) if newest is not None else events
