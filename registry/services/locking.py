"""Holding one row while it is compared and written, so that of two writers who saw the same state only one writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from django.db import models, transaction
from django.utils.translation import gettext as _

from registry.errors import NotFound

Row = TypeVar("Row", bound=models.Model)


@contextmanager
def held(row: Row) -> Iterator[Row]:
    """Yield ``row`` as it is now, locked; what is written inside the block is committed at its end, or not at all.

    Every writer of the row waits at its own UPDATE or lock until then. Rows that refer to it may still be made.

    Raises:
        NotFound: the row is gone.
    """
    options = row._meta
    with transaction.atomic():
        locked = type(row)._base_manager.select_for_update(no_key=True).filter(pk=row.pk)
        if not locked.values_list("pk").first():
            raise NotFound(_("This %(what)s no longer exists.") % {"what": options.verbose_name})
        row.refresh_from_db()
        yield row
