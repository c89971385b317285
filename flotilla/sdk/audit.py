"""The audit log: events of every project that the token may see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flotilla.sdk.transport import Transport


class Audit:
    """Who did what.

    ``filters`` are those of the address: ``q`` (beginnings of words, or a client address), ``action``, ``actor_name``,
    ``object_type``, ``object_id``, ``project_id``, ``request_id``.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def events(self, **filters: str) -> Iterator[dict[str, Any]]:
        """Yield events, newest first."""
        return self._transport.pages("audit/", filters)

    def export(self, **filters: str) -> Iterator[bytes]:
        """Yield JSON lines in the order of their seals; also ``after_sequence`` with ``project_id``."""
        return self._transport.lines("audit/export", filters)
