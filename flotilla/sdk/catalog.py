"""Models as entries of the catalog, and the files of their versions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from flotilla.sdk.download import fetch_file
from flotilla.sdk.transport import Transport

Json = dict[str, Any]


class Catalog:
    """Models of one project by name."""

    def __init__(self, transport: Transport, project: str) -> None:
        self._transport = transport
        self._models = f"projects/{project}/models/"

    def get(self, model: str) -> Json:
        """Return one."""
        return dict(self._transport.send("GET", self._address(model)).json())

    def create(self, model: str, /, **facts: Any) -> Json:
        """Make one (``description``, ``task``, ``tags``, ``links``) and return it."""
        return dict(self._transport.send("POST", self._models, json={"slug": model, **facts}, once=True).json())

    def update(self, model: str, **facts: Any) -> Json:
        """Change what is said about one (``description``, ``owner``, ``task``, ``tags``...) and return it."""
        return dict(self._transport.change("PATCH", self._address(model), json=facts).json())

    def change(self, model: str, facts_of: Callable[[Json], Json]) -> Json:
        """Change one to ``facts_of(as it is now)`` and return it; 412 when somebody changed it in between."""
        seen = self._transport.send("GET", self._address(model))
        headers = {"If-Match": seen.headers["ETag"]}
        body = facts_of(dict(seen.json()))
        return dict(self._transport.send("PATCH", self._address(model), json=body, headers=headers).json())

    def archive(self, model: str) -> Json:
        """Put one away, which serves nowhere, and return it."""
        return self._move(model, "archive")

    def restore(self, model: str) -> Json:
        """Bring one back and return it."""
        return self._move(model, "restore")

    def impact(self, model: str) -> Json:
        """Return what deleting one would take with it."""
        return dict(self._transport.send("GET", f"{self._address(model)}impact").json())

    def delete(self, model: str) -> None:
        """Delete an archived one with its versions, configs, card and aliases."""
        self._transport.change("DELETE", self._address(model))

    def files(self, model: str, version: int | str) -> list[Json]:
        """Return the files of a version: ``path``, ``size`` in bytes, ``sha256``."""
        return [*self._transport.pages(f"{self._address(model)}versions/{version}/files/")]

    def download(
        self,
        model: str,
        version: int | str,
        folder: Path,
        *,
        paths: tuple[str, ...] = (),
        progress: Callable[[str, int, int], None] = lambda _path, _done, _size: None,
    ) -> list[Path]:
        """Write the files of a version (all, or those of ``paths``) below ``folder`` and return where they are.

        Each is checked by its SHA-256 before it gets its name; one that is there with that digest is not fetched.

        Raises:
            ApiError: refused, cut off too often, or what came is not what the console said (``digest_mismatch``).
            OSError: it cannot be written.
        """
        address = f"{self._address(model)}versions/{version}/download"
        return [
            fetch_file(self._transport, address, file, folder, progress)
            for file in self.files(model, version)
            if not paths or file["path"] in paths
        ]

    def _move(self, model: str, verb: str) -> Json:
        address = self._address(model)
        seen = self._transport.send("GET", address).headers["ETag"]
        return dict(self._transport.send("POST", address + verb, headers={"If-Match": seen}).json())

    def _address(self, model: str) -> str:
        return f"{self._models}{model}/"
