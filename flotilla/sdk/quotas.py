"""Quotas of a project."""

from __future__ import annotations

from typing import Any

from flotilla.sdk.transport import Transport

Json = dict[str, Any]


class Quotas:
    """What a project may use. Members read it; site administrators change it."""

    def __init__(self, transport: Transport, project: str) -> None:
        self._transport = transport
        self._address = f"projects/{project}/quotas/"

    def get(self) -> Json:
        """Return ``bytes``, ``versions`` and ``nodes``, each with ``used`` and ``limit``."""
        return dict(self._transport.send("GET", self._address).json())

    def set(self, **limits: int) -> Json:
        """Change the limits that are given, and return all. Of two who do so at once one is refused (412)."""
        return dict(self._transport.change("PATCH", self._address, json=limits).json())
