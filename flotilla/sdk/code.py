"""The permission for nodes to run what is code in versions."""

from __future__ import annotations

from typing import Any

from flotilla.sdk.transport import Transport

Json = dict[str, Any]


class Code:
    """Code in versions of one project: who let nodes run it, what runs, and how to take that back."""

    def __init__(self, transport: Transport, project: str) -> None:
        self._transport = transport
        self._project = f"projects/{project}/"

    def read(self, model: str, version: int | str) -> Json:
        """Return files, permission, and ``effects``: what withdrawing it would stop."""
        return dict(self._transport.send("GET", self._place(model, version)).json())

    def withdraw(self, model: str, version: int | str, reason: str) -> Json:
        """Take the permission of a version back: nodes unload what runs of it."""
        place = f"{self._place(model, version)}withdraw"
        return dict(self._transport.send("POST", place, json={"reason": reason}).json())

    def permit(self, model: str, version: int | str) -> Json:
        """Give a withdrawn permission again (administrators of the project)."""
        return dict(self._transport.send("POST", f"{self._place(model, version)}permit").json())

    def permitted(self) -> list[Json]:
        """Return the versions whose code nodes may run."""
        return [*self._transport.pages(f"{self._project}code-permissions/", {})]

    def withdraw_all(self, reason: str) -> int:
        """Take the permissions of all versions back; return of how many. Needs the scope ``admin``."""
        place = f"{self._project}code-permissions/withdraw"
        return int(self._transport.send("POST", place, json={"reason": reason}).json()["versions"])

    def _place(self, model: str, version: int | str) -> str:
        return f"{self._project}models/{model}/versions/{version}/code/"
