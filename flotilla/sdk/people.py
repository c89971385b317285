"""Accounts of people, and their roles in the project: one method for each thing one does with them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from flotilla.sdk.transport import ApiError, Transport

Json = dict[str, Any]
_BASE = "users/"


class People:
    """Accounts by user name. Changing them needs the scope ``admin`` and a site administrator."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def all(self, *, search: str = "", is_active: bool | None = None) -> list[Json]:
        """Return the people whom the caller may see; ``search`` is in user name, names and address."""
        wanted = {"is_service": "false"} | ({"search": search} if search else {})
        wanted |= {"is_active": str(is_active).lower()} if is_active is not None else {}
        return [*self._transport.pages(_BASE, wanted)]

    def get(self, name: str) -> Json:
        """Return an account.

        Raises:
            ApiError: 404 when there is none that the caller may know.
        """
        return dict(self._transport.send("GET", _address(name)).json())

    def access(self, name: str) -> Json:
        """Return where an account has roles and how it signs in; one's own, or as administrator."""
        return dict(self._transport.send("GET", f"{_address(name)}access").json())

    def impact(self, name: str) -> Json:
        """Return what blocking an account would stop."""
        return dict(self._transport.send("GET", f"{_address(name)}impact").json())

    def create(self, name: str, *, email: str = "", site_role: str = "none", password: str | None = None) -> Json:
        """Make an account; without a password it signs in elsewhere, or by a link."""
        body: Json = {"username": name, "email": email, "site_role": site_role, "password": password}
        return dict(self._transport.send("POST", _BASE, json=body).json())

    def update(self, name: str, **changes: Any) -> Json:
        """Change what is given (``username, email, first_name, last_name, site_role, is_active``), and return it.

        ``is_active`` false ends sessions, tokens and open pages at once. Of two who change an account at once one is
        refused (412).
        """
        return dict(self._transport.change("PATCH", _address(name), json=changes).json())

    def password_link(self, name: str) -> str:
        """Return a link with which the person sets a password, once, within a day."""
        return str(self._transport.send("POST", f"{_address(name)}password-link").json()["link"])

    def reset_second_factors(self, name: str) -> None:
        """Take the second factors of an account away and end its sessions."""
        self._transport.send("POST", f"{_address(name)}reset-second-factors")

    def sessions(self, name: str) -> list[Json]:
        """Return where an account is signed in."""
        return [*self._transport.pages(f"{_address(name)}sessions/")]

    def end_sessions(self, name: str, session: int | None = None) -> int:
        """End one session of an account, or all, and return how many ended."""
        body = {"id": session}
        return int(self._transport.send("POST", f"{_address(name)}sessions/end", json=body).json()["ended"])

    def disconnect(self, name: str, identity: int) -> None:
        """Disconnect an account elsewhere, by its id in ``access``; one's own only."""
        self._transport.change("DELETE", f"{_address(name)}identities/{identity}/")


class Members:
    """Who has which role in a project."""

    def __init__(self, transport: Transport, project: str) -> None:
        self._transport = transport
        self._base = f"projects/{project}/members/"

    def all(self) -> list[Json]:
        """Return the members by name."""
        return sorted(self._transport.pages(self._base), key=lambda row: str(row["username"]))

    def get(self, name: str) -> Json | None:
        """Return one membership, None when the account has none."""
        try:
            return dict(self._transport.send("GET", f"{self._base}{quote(name, safe='')}/").json())
        except ApiError as error:
            if error.status != 404:
                raise
        return None

    def set(self, name: str, role: str) -> Json:
        """Give an account a role in place of the one that it has."""
        return dict(self._transport.send("POST", self._base, json={"username": name, "role": role}).json())

    def remove(self, name: str) -> None:
        """Take an account out of the project."""
        self._transport.change("DELETE", f"{self._base}{quote(name, safe='')}/")


def _address(name: str) -> str:
    return f"{_BASE}{quote(name, safe='')}/"
