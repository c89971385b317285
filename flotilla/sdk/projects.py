"""Projects: those of the caller, and new ones."""

from __future__ import annotations

from typing import Any

from flotilla.sdk.transport import Transport

Json = dict[str, Any]


class Projects:
    """Projects by their short names. Site operators make them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def all(self) -> list[Json]:
        """Return those that the caller sees."""
        return [*self._transport.pages("projects/")]

    def get(self, project: str) -> Json:
        """Return one."""
        return dict(self._transport.send("GET", f"projects/{project}/").json())

    def create(self, project: str, *, name: str = "", description: str = "") -> Json:
        """Make one and return it."""
        body = {"slug": project, "name": name or project, "description": description}
        return dict(self._transport.send("POST", "projects/", json=body, once=True).json())

    def update(self, project: str, **facts: str) -> Json:
        """Change ``name`` or ``description`` and return it; what is not given stays."""
        return dict(self._transport.change("PATCH", f"projects/{project}/", json=facts).json())
