"""The audit log and the history of states."""

from __future__ import annotations

import uuid

from django.db.models import QuerySet

from registry.domain.actors import Actor
from registry.models import AuditEvent, Transition


def audit_visible_to(actor: Actor) -> QuerySet[AuditEvent]:
    """Return events of projects where the actor is a member; site administrators also see site events. Newest first."""
    raise NotImplementedError


def audit_of(object_type: str, object_id: uuid.UUID | str) -> QuerySet[AuditEvent]:
    """Return the events about one object, newest first."""
    raise NotImplementedError


def transitions_of(object_type: str, object_id: uuid.UUID | str) -> QuerySet[Transition]:
    """Return the state moves of one object (for example ``modelversion``), oldest first."""
    raise NotImplementedError
