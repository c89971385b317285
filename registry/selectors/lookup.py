"""One row by id, or NotFound: the same answer whether it does not exist or may not be seen."""

from __future__ import annotations

import uuid
from typing import TypeVar

from django.db.models import Model, QuerySet

from registry.errors import NotFound

Found = TypeVar("Found", bound=Model)


def one_by_id(rows: QuerySet[Found], row_id: uuid.UUID | str, sentence: str) -> Found:
    """Return the row of that id.

    Raises:
        NotFound: with the sentence; also for text that is no id.
    """
    try:
        key = row_id if isinstance(row_id, uuid.UUID) else uuid.UUID(row_id)
    except ValueError:
        raise NotFound(sentence) from None
    row = rows.filter(pk=key).first()
    if row is None:
        raise NotFound(sentence)
    return row
