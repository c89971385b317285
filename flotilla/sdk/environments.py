"""Environments and their rules: one method for each thing one does with them."""

from __future__ import annotations

from typing import Any

from flotilla.sdk.transport import Transport

Json = dict[str, Any]
_BASE = "environments/"


class Environments:
    """The environments of the site, by short name. Changes need a token with the scope ``admin``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def all(self) -> list[Json]:
        """Return the environments in their order."""
        return [*self._transport.pages(_BASE)]

    def get(self, name: str) -> Json:
        """Return one with its rules.

        Raises:
            ApiError: 404 when there is none of that name.
        """
        return dict(self._transport.send("GET", f"{_BASE}{name}/").json())

    def create(self, name: str, *, title: str = "", approvals: int = 1) -> Json:
        """Make one in which so many people approve a change, 0: nobody has to, and return it."""
        body = {"slug": name, "name": title or name, "requires_approval": approvals > 0}
        if approvals:
            body["required_approvals"] = approvals
        return dict(self._transport.send("POST", _BASE, json=body, once=True).json())

    def update(self, name: str, **rules: Any) -> Json:
        """Change what is given, and return it. Of two who change it at once one is refused (412)."""
        return dict(self._transport.change("PATCH", f"{_BASE}{name}/", json=rules).json())

    def delete(self, name: str) -> None:
        """Delete one with its fleets, while nothing is deployed there."""
        self._transport.change("DELETE", f"{_BASE}{name}/")

    def windows(self, name: str, at: str = "") -> Json:
        """Return whether changes may start by the windows at a time (ISO 8601; now), else when."""
        return dict(self._transport.send("GET", f"{_BASE}{name}/windows", params={"at": at} if at else {}).json())
