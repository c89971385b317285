"""Operations."""

from __future__ import annotations

import uuid

from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.models import Operation
from registry.selectors.accounts import projects_of
from registry.selectors.lookup import one_by_id


def operations_visible_to(actor: Actor) -> QuerySet[Operation]:
    """Return operations of the actor's projects and its own, newest first."""
    operations = Operation.objects.select_related("project", "actor").order_by("-created_at")
    if actor.is_system:
        return operations
    seen = Q(project__in=projects_of(actor))
    if actor.user_id is not None:
        seen |= Q(project=None, actor_id=actor.user_id)
    return operations.filter(seen)


def operation_get(actor: Actor, operation_id: uuid.UUID | str) -> Operation:
    """Return an operation by id.

    Raises:
        NotFound: it does not exist, or the actor may not see it.
    """
    return one_by_id(operations_visible_to(actor), operation_id, _("There is no such operation."))


def operation_of(subject_type: str, subject_id: uuid.UUID, kind: str) -> Operation | None:
    """Return the newest operation of a kind about a subject (``version`` or ``deployment``)."""
    rows = Operation.objects.filter(subject_type=subject_type, subject_id=subject_id, kind=kind)
    return rows.order_by("-created_at").first()
