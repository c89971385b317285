"""The audit log and the history of states."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from datetime import UTC
from typing import Any

from django.db.models import BooleanField, Func, Q, QuerySet, Value

from registry.domain.actors import Actor
from registry.domain.audit_chain import SITE
from registry.models import AuditEvent, AuditSeal, Transition
from registry.models.audit import searchable
from registry.selectors.accounts import projects_of

_WORD = re.compile(r"[^\W_]+")
_MOST_WORDS = 16
_FEW = 1000
_MOST_LETTERS = 200  # more than names have; PostgreSQL refuses words of 2 KiB


def audit_visible_to(actor: Actor) -> QuerySet[AuditEvent]:
    """Return events of projects where the actor is a member; site administrators also see site events. Newest first."""
    events = AuditEvent.objects.order_by("-created_at", "-id")
    if actor.is_system:
        return events
    seen = Q(project_id__in=projects_of(actor).values("id"))
    narrowed = actor.only_project_id is not None
    if actor.user is not None and actor.user.site_role == "admin" and not narrowed and actor.has_scope("read"):
        seen |= Q(project_id=None)
    return events.filter(seen)


def audit_search(events: QuerySet[AuditEvent], text: str) -> QuerySet[AuditEvent]:
    """Return the events that hold a word beginning with each word of ``text``, in who, what and which.

    A word may also begin an object's id, a request id or a client address. Text without a word finds everything.
    """
    terms = [term for part in text.lower().split()[:_MOST_WORDS] if (term := _term(part))]
    if not terms:
        return events
    query = Func(Value(" & ".join(terms)), template="%(expressions)s::tsquery")
    match = Func(searchable(), query, template="%(expressions)s", arg_joiner=" @@ ", output_field=BooleanField())
    # The newest of many come fastest by age, few of them by the index of words, and PostgreSQL cannot know which it is
    # for the beginning of a word: asked for both at once, it may walk through the whole log.
    few = [*events.order_by().filter(match).values_list("pk", flat=True)[: _FEW + 1]]
    return events.filter(pk__in=few) if len(few) <= _FEW else events.filter(match)


def _term(part: str) -> str:
    """Return what finds one word of a search, as text of a tsquery; "" when there is nothing to look for."""
    part = part[:_MOST_LETTERS]
    words = [f"'{word}':*" for word in _WORD.findall(part)]
    if not words:
        return ""
    whole = part.replace("\\", "\\\\").replace("'", "''")
    return f"({' & '.join(words)} | '={whole}':*)"


def audit_of(object_type: str, object_id: uuid.UUID | str) -> QuerySet[AuditEvent]:
    """Return the events about one object, newest first. ``object_type`` as in Transition: ``modelversion``..."""
    return AuditEvent.objects.filter(object_type=object_type, object_id=str(object_id)).order_by("-created_at")


def transitions_of(object_type: str, object_id: uuid.UUID | str) -> QuerySet[Transition]:
    """Return the state moves of one object (for example ``modelversion``), oldest first."""
    return Transition.objects.filter(object_type=object_type, object_id=object_id).order_by("created_at", "id")


def chain_of(event: AuditEvent) -> str:
    """Return the name of the chain that an event belongs to."""
    return str(event.project_id) if event.project_id is not None else SITE


def audit_line(event: AuditEvent, chain: str, sequence: int | None, previous: str | None) -> dict[str, Any]:
    """Return what a seal covers (registry.domain.audit_chain), as JSON values."""
    return {
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


def audit_lines(events: QuerySet[AuditEvent], after: int, limit: int) -> tuple[list[dict[str, Any]], int]:
    """Return up to ``limit`` sealed events as lines of an export in the order of their seals, and where to go on.

    ``after`` is what the call before returned (0 to begin). An empty list ends the sealed part.
    """
    seals = AuditSeal.objects.filter(id__gt=after, event__in=events.order_by()).select_related("event").order_by("id")
    lines = []
    for seal in seals[:limit]:
        line = audit_line(seal.event, seal.chain, seal.sequence, seal.previous_hash)
        lines.append({**line, "hash": seal.hash})
        after = seal.id
    return lines, after


def unsealed_lines(events: QuerySet[AuditEvent], limit: int) -> Iterator[dict[str, Any]]:
    """Yield the events that the sealer has not seen yet, oldest first: no sequence, no hash."""
    for event in events.filter(seal=None).order_by("created_at", "id")[:limit]:
        yield {**audit_line(event, chain_of(event), None, None), "hash": None}
