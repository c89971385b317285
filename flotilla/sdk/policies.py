"""What a project asks of its versions."""

from __future__ import annotations

from typing import Any

from flotilla.sdk.transport import Transport

Json = dict[str, Any]


class Policies:
    """The policies of one project: code, pickles, signatures, sizes, licences. Changing needs the scope ``admin``."""

    def __init__(self, transport: Transport, project: str) -> None:
        self._transport = transport
        self._place = f"projects/{project}/policies/"

    def read(self) -> Json:
        """Return all of them."""
        return dict(self._transport.send("GET", self._place).json())

    def change(self, **policies: Any) -> Json:
        """Change those that are named; return all."""
        return dict(self._transport.change("PATCH", self._place, json=policies).json())
