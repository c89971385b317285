"""Pages of long lists, newest first, that count nothing: what a page costs does not depend on how long the list is.

``?before=<id>`` shows what is older than that row, ``?after=<id>`` what is newer. Rows that arrive move nobody.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet
from django.http import HttpRequest


@dataclass(frozen=True, slots=True)
class KeysetPage:
    """``older`` and ``newer`` are the ids that the neighbouring pages begin at, None where there are none."""

    object_list: list[Any]
    newer: uuid.UUID | None
    older: uuid.UUID | None


def keyset_page(request: HttpRequest, rows: QuerySet[Any], size: int) -> KeysetPage:
    """Return the page that the address asks for; the newest one when it names a row that is not among ``rows``."""
    before, after = _anchor(rows, request.GET.get("before")), _anchor(rows, request.GET.get("after"))
    if before is not None:
        created, pk = before
        older = rows.filter(Q(created_at__lt=created) | Q(created_at=created, pk__lt=pk))
        found = [*older.order_by("-created_at", "-pk")[: size + 1]]
        return _page(found[:size], has_newer=True, has_older=len(found) > size)
    if after is not None:
        created, pk = after
        newer = rows.filter(Q(created_at__gt=created) | Q(created_at=created, pk__gt=pk))
        found = [*newer.order_by("created_at", "pk")[: size + 1]]
        return _page(found[:size][::-1], has_newer=len(found) > size, has_older=True)
    found = [*rows.order_by("-created_at", "-pk")[: size + 1]]
    return _page(found[:size], has_newer=False, has_older=len(found) > size)


def _anchor(rows: QuerySet[Any], text: str | None) -> tuple[Any, Any] | None:
    try:
        wanted = uuid.UUID(text or "")
    except ValueError:
        return None
    found: tuple[Any, Any] | None = rows.order_by().filter(pk=wanted).values_list("created_at", "pk").first()
    return found


def _page(shown: list[Any], *, has_newer: bool, has_older: bool) -> KeysetPage:
    newer = shown[0].pk if shown and has_newer else None
    return KeysetPage(shown, newer, shown[-1].pk if shown and has_older else None)
