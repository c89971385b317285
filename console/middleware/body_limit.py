"""Bounds the bodies that Django spools to disk before any view can look at them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from django.utils.translation import gettext as _

from console.middleware.problems import CONTENT_TYPE, problem

MOST_BYTES = 16 * 1024 * 1024

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class BodyLimit:
    """Wraps an ASGI app: a body that says it is too large gets 413, one that turns out to be so is cut off."""

    def __init__(self, app: Any, most_bytes: int = MOST_BYTES) -> None:
        self._app = app
        self._most_bytes = most_bytes

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request. A cut-off body ends as if the client had left: the app answers nothing."""
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if not announced.isdigit() or int(announced) > self._most_bytes:
            return await self._refuse(send)
        arrived = 0

        async def bounded() -> Message:
            nonlocal arrived
            event = await receive()
            arrived += len(event.get("body", b""))
            return event if arrived <= self._most_bytes else {"type": "http.disconnect"}

        await self._app(scope, bounded, send)
        if arrived > self._most_bytes:
            await self._refuse(send)

    async def _refuse(self, send: Send) -> None:
        document = problem(413, _("The body is too large."), code="too_large")
        headers = [(b"content-type", CONTENT_TYPE.encode()), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(document).encode()})
