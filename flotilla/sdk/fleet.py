"""Nodes, and the tokens with which they join. Changing them needs the scope ``admin``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flotilla.sdk.transport import ApiError, Transport

Json = dict[str, Any]


class Fleet:
    """Serving nodes by name or id. Each verb acts on the node as it is now: of two at once, one is refused (412)."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def nodes(self, fleet: str = "") -> list[Json]:
        """Return the nodes that are not retired, or those of a fleet."""
        return [*self._transport.pages("nodes/", {"fleet": fleet} if fleet else None)]

    def node(self, name: str) -> Json:
        """Return one by name or id.

        Raises:
            ApiError: 404.
        """
        for row in self.nodes():
            if name in (row["name"], row["id"]):
                return row
        raise ApiError(404, "not_found", f"There is no node {name}.")

    def cordon(self, name: str) -> Json:
        """Give a node nothing new; what it serves stays. Returns it."""
        return self._verb(name, "cordon", {})

    def uncordon(self, name: str) -> Json:
        """Let a node take part again, also one that drains, and return it."""
        return self._verb(name, "uncordon", {})

    def drain(self, name: str, *, deadline_seconds: int = 30) -> Json:
        """Take everything off a node; running requests get so many seconds. Returns it."""
        return self._verb(name, "drain", {"deadline_seconds": deadline_seconds})

    def retire(self, name: str) -> Json:
        """Take a node out for good: its identity is refused from now on. Returns it."""
        return self._verb(name, "retire", {})

    def join_tokens(self) -> list[Json]:
        """Return the unused join tokens, without their secrets."""
        return [*self._transport.pages("join-tokens/")]

    def create_join_token(self, *, labels: Mapping[str, str] | None = None, valid_hours: int = 24) -> Json:
        """Make a token for one node, which gets the labels; ``token`` is shown only this once."""
        body = {"labels": dict(labels or {}), "valid_hours": valid_hours}
        return dict(self._transport.send("POST", "join-tokens/", json=body).json())

    def _verb(self, name: str, verb: str, body: Json) -> Json:
        address = f"nodes/{self.node(name)['id']}/"
        seen = self._transport.send("GET", address).headers["ETag"]
        return dict(self._transport.send("POST", address + verb, json=body, headers={"If-Match": seen}).json())
