"""What sets of declarative files own, in the project or on the site."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from flotilla.sdk.transport import Transport

Json = dict[str, Any]


class ApplySets:
    """Sets by name: those of the project, or with ``is_site`` those of the site (site administrators)."""

    def __init__(self, transport: Transport, project: str) -> None:
        self._transport = transport
        self._project = f"projects/{project}/"

    def all(self, *, is_site: bool = False) -> list[Json]:
        """Return the sets by name."""
        return [*self._transport.pages(self._base(is_site))]

    def things(self, name: str, *, is_site: bool = False) -> list[Json]:
        """Return what a set owns as it is now: ``standing``, who touched it, what pruning would do."""
        found: list[Json] = []
        start: int | None = 0
        while start is not None:
            path = f"{self._address(name, is_site)}things/"
            page = self._transport.send("GET", path, params={"start": str(start)}).json()
            found += page["things"]
            start = page["next"]
        return found

    def forget(self, name: str, *, is_site: bool = False) -> None:
        """Forget a set; what it owned stays."""
        self._transport.change("DELETE", self._address(name, is_site))

    def _base(self, is_site: bool) -> str:
        return "apply-sets/" if is_site else f"{self._project}apply-sets/"

    def _address(self, name: str, is_site: bool) -> str:
        return f"{self._base(is_site)}{quote(name, safe='')}/"
