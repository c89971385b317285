"""Webhooks of a project: one method for each thing one does with them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from flotilla.sdk.transport import ApiError, Transport

Json = dict[str, Any]
_BASE = "webhooks/"


class Webhooks:
    """The webhooks of one project, by name. The token needs the scope ``admin`` for everything but reading."""

    def __init__(self, transport: Transport, project: str) -> None:
        self._transport = transport
        self._project = project

    def all(self) -> list[Json]:
        """Return the webhooks, newest first."""
        return [*self._transport.pages(_BASE, {"project__slug": self._project})]

    def get(self, name: str) -> Json:
        """Return one.

        Raises:
            ApiError: 404 when the project has none of that name, or the caller does not manage it.
        """
        found = [*self._transport.pages(_BASE, {"project__slug": self._project, "name": name})]
        if not found:
            raise ApiError(404, "not_found", f"There is no webhook {name} in project {self._project}.")
        return found[0]

    def create(self, name: str, url: str, *, events: Sequence[str] = ("*",), format: str = "standard") -> Json:
        """Make one and return it with its ``secret``, which is told only this once."""
        body = {"project": self._project, "name": name, "url": url, "events": [*events], "format": format}
        return dict(self._transport.send("POST", _BASE, json=body).json())

    def change(self, name: str, /, **facts: Any) -> Json:
        """Change one (``name``, ``url``, ``events``, ``format``, ``is_enabled``; the rest stays) and return it."""
        return dict(self._transport.change("PATCH", f"{_BASE}{self.get(name)['id']}/", json=facts).json())

    def rotate_secret(self, name: str) -> Json:
        """Return a new ``secret``, told only this once; the present one signs too until ``previous_secret_until``."""
        return dict(self._transport.send("POST", f"{_BASE}{self.get(name)['id']}/rotate-secret").json())

    def delete(self, name: str) -> None:
        """Delete one with the log of its deliveries."""
        self._transport.change("DELETE", f"{_BASE}{self.get(name)['id']}/")

    def test(self, name: str, *, wait_seconds: float = 30) -> Json:
        """Send a test event and return its delivery as soon as it was tried once, or after ``wait_seconds``."""
        hook = self.get(name)["id"]
        delivery = dict(self._transport.send("POST", f"{_BASE}{hook}/test").json())
        deadline = time.monotonic() + wait_seconds
        while delivery["last_status"] is None and not delivery["last_error"] and time.monotonic() < deadline:
            time.sleep(0.2)
            delivery = dict(self._transport.send("GET", f"{_BASE}{hook}/deliveries/{delivery['id']}/").json())
        return delivery

    def deliveries(self, name: str, *, state: str = "") -> Iterator[Json]:
        """Yield deliveries, newest first; with ``state`` only those (pending, delivered, failed, cancelled)."""
        return self._transport.pages(f"{_BASE}{self.get(name)['id']}/deliveries/", {"state": state} if state else {})

    def replay(self, name: str, delivery: str) -> Json:
        """Deliver an event again and return the new delivery."""
        address = f"{_BASE}{self.get(name)['id']}/deliveries/{delivery}/replay"
        return dict(self._transport.send("POST", address).json())
