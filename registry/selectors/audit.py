"""The audit log and the history of states."""

from __future__ import annotations

import uuid

from django.db.models import Q, QuerySet

from registry.domain.actors import Actor
from registry.models import AuditEvent, Transition
from registry.selectors.accounts import projects_of


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


def audit_of(object_type: str, object_id: uuid.UUID | str) -> QuerySet[AuditEvent]:
    """Return the events about one object, newest first. ``object_type`` as in Transition: ``modelversion``..."""
    return AuditEvent.objects.filter(object_type=object_type, object_id=str(object_id)).order_by("-created_at")


def transitions_of(object_type: str, object_id: uuid.UUID | str) -> QuerySet[Transition]:
    """Return the state moves of one object (for example ``modelversion``), oldest first."""
    return Transition.objects.filter(object_type=object_type, object_id=object_id).order_by("created_at", "id")
