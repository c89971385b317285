"""Operations."""

from __future__ import annotations

import uuid

from django.db.models import QuerySet

from registry.domain.actors import Actor
from registry.models import Operation


def operations_visible_to(actor: Actor) -> QuerySet[Operation]:
    """Return operations of the actor's projects and its own, newest first."""
    raise NotImplementedError


def operation_get(actor: Actor, operation_id: uuid.UUID | str) -> Operation:
    """Return an operation by id.

    Raises:
        NotFound: it does not exist, or the actor may not see it.
    """
    raise NotImplementedError


def operation_of(subject_type: str, subject_id: uuid.UUID) -> Operation | None:
    """Return the newest operation about a subject."""
    raise NotImplementedError
