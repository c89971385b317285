"""Cursor paging, newest first."""

from __future__ import annotations

from rest_framework.pagination import CursorPagination


class NewestFirst(CursorPagination):
    """Pages that stay stable while rows arrive. ``page_size`` up to 200."""

    ordering: tuple[str, ...] = ("-created_at", "-id")
    page_size_query_param = "page_size"
    max_page_size = 200
