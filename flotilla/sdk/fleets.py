"""Fleets: the nodes of an environment that carry given labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flotilla.sdk.transport import Transport

Json = dict[str, Any]
_BASE = "fleets/"


class Fleets:
    """The fleets of the site, by short name. Changes need a token with the scope ``admin``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def all(self) -> list[Json]:
        """Return the fleets, newest first."""
        return [*self._transport.pages(_BASE)]

    def create(self, name: str, environment: str, *, title: str = "", labels: Mapping[str, str] | None = None) -> Json:
        """Make one of all nodes that carry the labels (no labels: of every node) and return it."""
        body = {"slug": name, "name": title or name, "environment": environment, "selector": dict(labels or {})}
        return dict(self._transport.send("POST", _BASE, json=body, once=True).json())

    def update(self, name: str, /, **facts: Any) -> Json:
        """Change ``name`` or ``selector`` and return it. Of two who change it at once one is refused (412)."""
        return dict(self._transport.change("PATCH", f"{_BASE}{name}/", json=facts).json())

    def delete(self, name: str) -> None:
        """Delete one, while nothing is deployed there; its nodes stay."""
        self._transport.change("DELETE", f"{_BASE}{name}/")
