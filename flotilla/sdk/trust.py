"""CI without secrets: issuers that the site trusts, and rules by which jobs act in the project."""

from __future__ import annotations

from typing import Any

from flotilla.sdk.transport import ApiError, Transport

Json = dict[str, Any]
_ISSUERS = "issuers/"


class Issuers:
    """Issuers by their short names. All but reading needs the scope ``admin`` and a site administrator."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def all(self) -> list[Json]:
        """Return the issuers by name."""
        return [*self._transport.pages(_ISSUERS)]

    def get(self, name: str) -> Json:
        """Return one. Raises ApiError (404)."""
        return dict(self._transport.send("GET", f"{_ISSUERS}{name}/").json())

    def create(self, name: str, kind: str, *, url: str = "", max_age_minutes: int | None = None) -> Json:
        """Put an issuer on the site's list: ``kind`` github or gitlab; without ``url`` that of the kind itself."""
        body: Json = {"slug": name, "kind": kind, "url": url, "max_age_minutes": max_age_minutes}
        return dict(self._transport.send("POST", _ISSUERS, json=body).json())

    def update(self, name: str, **changes: Any) -> Json:
        """Change what is given: ``max_age_minutes, is_enabled``. Disabling ends tokens that jobs have got."""
        return dict(self._transport.change("PATCH", f"{_ISSUERS}{name}/", json=changes).json())

    def read_keys(self, name: str) -> Json:
        """Let the console read the issuer's public keys now."""
        return dict(self._transport.send("POST", f"{_ISSUERS}{name}/read-keys").json())

    def delete(self, name: str) -> None:
        """Take an issuer from the list, while no rule names it."""
        self._transport.change("DELETE", f"{_ISSUERS}{name}/")


class TrustRules:
    """The rules of a project, by name. All but reading needs the scope ``admin``."""

    def __init__(self, transport: Transport, project: str) -> None:
        self._transport = transport
        self._base = f"projects/{project}/trust-rules/"

    def all(self) -> list[Json]:
        """Return the rules by name."""
        return sorted(self._transport.pages(self._base), key=lambda row: str(row["name"]))

    def get(self, name: str) -> Json:
        """Return one.

        Raises:
            ApiError: 404 when there is none.
        """
        found = [*self._transport.pages(self._base, {"name": name})]
        if not found:
            raise ApiError(404, "not_found", f"The project has no trust rule {name}.")
        return found[0]

    def create(self, name: str, **rule: Any) -> Json:
        """Let jobs of a repository act as a service account: ``issuer, service_account, repository_id, owner_id...``"""
        return dict(self._transport.send("POST", self._base, json={"name": name, **rule}).json())

    def update(self, name: str, **changes: Any) -> Json:
        """Change what is given; tokens that the rule has given end at once."""
        return dict(self._transport.change("PATCH", f"{self._base}{self.get(name)['id']}/", json=changes).json())

    def delete(self, name: str) -> None:
        """Delete a rule; tokens that it has given end at once."""
        self._transport.change("DELETE", f"{self._base}{self.get(name)['id']}/")
