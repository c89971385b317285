"""Cursor paging, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination


class NewestFirst(CursorPagination):
    """Pages that stay stable while rows arrive. ``page_size`` up to 200."""

    ordering: tuple[str, ...] = ("-created_at", "-id")
    page_size_query_param = "page_size"
    max_page_size = 200

    def paginate_queryset(
        self, queryset: QuerySet[Any] | Sequence[Any], request: Any, view: Any = None
    ) -> list[Any] | None:
        """Return the rows of one page. Raises NotFound for a cursor that is none of ours."""
        try:
            return super().paginate_queryset(queryset, request, view)
        except (ValidationError, ValueError, TypeError):
            raise NotFound(self.invalid_cursor_message) from None
