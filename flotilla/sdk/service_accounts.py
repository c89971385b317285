"""Service accounts: accounts of machines. Site administrators manage them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from flotilla.sdk.transport import Transport

Json = dict[str, Any]
_BASE = "service-accounts/"


class ServiceAccounts:
    """Service accounts by name. All but reading needs the scope ``admin``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def all(self) -> list[Json]:
        """Return the accounts by name."""
        return [*self._transport.pages(_BASE)]

    def get(self, name: str) -> Json:
        """Return one with its ``reach``: keys, roles, trust rules and what it has begun."""
        return dict(self._transport.send("GET", _address(name)).json())

    def create(self, name: str, *, site_role: str = "none") -> Json:
        """Make one. It gets roles as members do, and keys of its own."""
        return dict(self._transport.send("POST", _BASE, json={"username": name, "site_role": site_role}).json())

    def set_active(self, name: str, is_active: bool) -> Json:
        """Let one work again, or disable it: its keys are refused, and its trust rules give none."""
        seen = self._transport.send("GET", _address(name)).headers["ETag"]
        path = f"{_address(name)}{'enable' if is_active else 'disable'}"
        return dict(self._transport.send("POST", path, headers={"If-Match": seen}).json())

    def delete(self, name: str) -> None:
        """Delete one: keys are revoked, roles and trust rules removed; the name stays in the history."""
        self._transport.change("DELETE", _address(name))


def _address(name: str) -> str:
    return f"{_BASE}{quote(name, safe='')}/"
