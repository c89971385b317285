"""Aliases of models: one method for each thing one does with them."""

from __future__ import annotations

from typing import Any

from flotilla.sdk.transport import ApiError, Transport

Json = dict[str, Any]


class Aliases:
    """The aliases of a project's models, by name."""

    def __init__(self, transport: Transport, project: str) -> None:
        self._transport = transport
        self._models = f"projects/{project}/models/"

    def all(self, model: str) -> list[Json]:
        """Return the aliases of a model by name, and ``latest`` at the end where a version is ready."""
        rows = sorted(self._transport.pages(f"{self._models}{model}/aliases/"), key=lambda row: str(row["name"]))
        try:
            return [*rows, self.get(model, "latest")]
        except ApiError as error:
            if error.status != 404:
                raise
        return rows

    def get(self, model: str, name: str) -> Json:
        """Return one.

        Raises:
            ApiError: 404 when the model has none of that name.
        """
        return dict(self._transport.send("GET", self._address(model, name)).json())

    def set(
        self, model: str, name: str, version: int | str, *, protected: bool | None = None, comment: str = ""
    ) -> Json:
        """Point an alias at a version (a number or another alias), as it is now, and return it.

        ``protected`` None leaves the protection. Of two who move it at once one is refused (412).
        """
        body: Json = {"version": version, "is_protected": protected, "comment": comment}
        headers = self._seen(model, name)
        return dict(self._transport.send("PUT", self._address(model, name), json=body, headers=headers).json())

    def delete(self, model: str, name: str) -> None:
        """Delete one. Deployments keep the version that it gave them."""
        self._transport.change("DELETE", self._address(model, name))

    def _seen(self, model: str, name: str) -> dict[str, str]:
        try:
            return {"If-Match": self._transport.send("GET", self._address(model, name)).headers["ETag"]}
        except ApiError as error:
            if error.status != 404:
                raise
        return {"If-None-Match": "*"}

    def _address(self, model: str, name: str) -> str:
        return f"{self._models}{model}/aliases/{name}/"
