"""State moves: one conditional UPDATE and one append-only row, or an error and nothing."""

from __future__ import annotations

from typing import Any

from django.db import models, transaction
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.domain.states import TABLES, require_move
from registry.errors import InvalidTransition, NotFound
from registry.models import Transition

_ATTEMPTS = 3


def move(instance: models.Model, field: str, to: str, *, cause: str, actor: Actor, **columns: Any) -> str:
    """Move ``instance.field`` to ``to`` when the table allows it from the state that the database holds now.

    ``columns`` are written in the same UPDATE. The instance is changed in place. Returns the state before.

    Raises:
        InvalidTransition: the move is not allowed from the present state, or somebody else moved it first.
        NotFound: the row is gone.
    """
    options = instance._meta
    table = TABLES[options.model_name or "", field]
    rows = type(instance)._default_manager.filter(pk=instance.pk)
    for _attempt in range(_ATTEMPTS):
        before = rows.values_list(field, flat=True).first()
        if before is None:
            raise NotFound(_("This %(what)s no longer exists.") % {"what": options.verbose_name})
        require_move(table, before, to, noun=_("This %(what)s") % {"what": options.verbose_name})
        with transaction.atomic():
            # The row may have moved since it was read; then this changes nothing and we look again.
            if not rows.filter(**{field: before}).update(**{field: to}, **columns):
                continue
            Transition.objects.create(
                object_type=options.model_name or "",
                object_id=instance.pk,
                from_state=before,
                to_state=to,
                cause=cause,
                actor_name=actor.name[:200],
            )
        for name, value in {field: to, **columns}.items():
            setattr(instance, name, value)
        return str(before)
    raise InvalidTransition(
        _("This %(what)s keeps being changed by others; try again.") % {"what": options.verbose_name}
    )
