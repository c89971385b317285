"""The outermost layer of the web server: what every answer carries, and what no address may hold.

Stands before Django and before the raw ASGI apps, so that refusals and streams are covered like pages.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from django.utils.translation import gettext as _

from console.middleware.problems import CONTENT_TYPE, problem

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# For answers that bring no policy of their own: data, files and refusals, which load nothing.
_HEADERS = (
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
)


class Edge:
    """Wraps an ASGI app: adds the headers that an answer lacks, refuses a NUL in the address with 400.

    PostgreSQL stores no NUL: it would reach the database from every filter and end there as an unexpected error.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_dressed(event: Message) -> None:
            if event["type"] == "http.response.start":
                event = {**event, "headers": _dressed(event.get("headers", []))}
            await send(event)

        if "\0" in scope.get("path", "") or b"%00" in scope.get("query_string", b""):
            return await _refuse(send_dressed)
        await self._app(scope, receive, send_dressed)


def _dressed(headers: Any) -> list[tuple[bytes, bytes]]:
    present = [(bytes(name), bytes(value)) for name, value in headers]
    names = {name.lower() for name, _value in present}
    return present + [(name, value) for name, value in _HEADERS if name not in names]


async def _refuse(send: Send) -> None:
    document = problem(400, _("The address holds a character that is not allowed."), code="bad_address")
    headers = [(b"content-type", CONTENT_TYPE.encode()), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(document).encode()})
