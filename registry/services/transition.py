"""State moves: one conditional UPDATE and one append-only row, or an error and nothing."""

from __future__ import annotations

from typing import Any

from django.db import models

from registry.domain.actors import Actor


def move(instance: models.Model, field: str, to: str, *, cause: str, actor: Actor, **columns: Any) -> str:
    """Move ``instance.field`` to ``to`` when the table allows it from the state that the database holds now.

    ``columns`` are written in the same UPDATE. The instance is refreshed in place. Returns the state before.

    Raises:
        InvalidTransition: the move is not allowed from the present state, or somebody else moved it first.
    """
    raise NotImplementedError
