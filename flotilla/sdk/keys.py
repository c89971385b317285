"""API keys: the caller's own, and those of service accounts for whoever manages them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flotilla.sdk.transport import ApiError, Transport

Json = dict[str, Any]
_BASE = "api-keys/"


class Keys:
    """Keys by their name, their beginning (``flo_3f2a...``) or their id. All but reading needs the scope ``admin``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def all(self, *, owner: str = "") -> list[Json]:
        """Return the keys, newest first; with ``owner`` those of one account."""
        return [*self._transport.pages(_BASE, {"owner__username": owner} if owner else {})]

    def get(self, key: str) -> Json:
        """Return one.

        Raises:
            ApiError: 404 when there is none, 409 when several have that name.
        """
        public = key.removeprefix("flo_").partition("_")[0]
        found = [
            row
            for row in self.all()
            if key in (row["id"], row["name"]) or public in (row["public_id"], row["previous_public_id"])
        ]
        alive = [row for row in found if not row["revoked_at"]]
        if len(alive or found) != 1:
            count = len(alive or found)
            if not count:
                raise ApiError(404, "not_found", f"There is no API key {key}.")
            raise ApiError(409, "conflict", f"{count} API keys have the name {key}; name it by its beginning.")
        return (alive or found)[0]

    def create(
        self,
        name: str,
        *,
        scopes: Sequence[str] = ("read", "write"),
        owner: str = "",
        project: str | None = None,
        expires_at: str | None = None,
        allowed_networks: Sequence[str] = (),
    ) -> Json:
        """Make one and return it with its text ``token``, which is told only this once."""
        body = {
            "name": name,
            "scopes": [*scopes],
            "owner": owner,
            "project": project,
            "expires_at": expires_at,
            "allowed_networks": [*allowed_networks],
        }
        return dict(self._transport.send("POST", _BASE, json=body).json())

    def change(self, key: str, /, **facts: Any) -> Json:
        """Change one (``name``, ``allowed_networks``, ``expires_at``; the rest stays) and return it."""
        return dict(self._transport.change("PATCH", f"{_BASE}{self.get(key)['id']}/", json=facts).json())

    def rotate(self, key: str, *, overlap_hours: int = 24) -> Json:
        """Give one a new secret, in ``token``; the present one works for ``overlap_hours`` beside it."""
        address = f"{_BASE}{self.get(key)['id']}/rotate"
        return dict(self._transport.send("POST", address, json={"overlap_hours": overlap_hours}).json())

    def revoke(self, key: str) -> None:
        """Revoke one, with both its secrets, for good."""
        self._transport.change("DELETE", f"{_BASE}{self.get(key)['id']}/")
