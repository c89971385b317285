"""Bounds the bodies that Django spools to disk before any view can look at them, in size and in time."""

from __future__ import annotations

import asyncio
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
    """Wraps an ASGI app: a body that says it is too large gets 413, one that turns out to be so is cut off.

    One without a length gets 411. One that has not arrived after ``most_seconds``, however it drips in, gets 408.
    Uploads of files do not come this way.
    """

    def __init__(self, app: Any, most_bytes: int = MOST_BYTES, most_seconds: float = 120) -> None:
        self._app = app
        self._most_bytes = most_bytes
        self._most_seconds = most_seconds

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request. A cut-off body ends as if the client had left: the app answers nothing."""
        headers = dict(scope["headers"])
        if b"transfer-encoding" in headers:
            # the REST framework takes a body without a length for none: better refused than silently lost
            return await self._refuse(send, 411)
        announced = headers.get(b"content-length", b"0")
        if not announced.isdigit() or int(announced) > self._most_bytes:
            return await self._refuse(send, 413)
        deadline = asyncio.get_running_loop().time() + self._most_seconds
        arrived, is_whole, refusal = 0, False, 0

        async def bounded() -> Message:
            nonlocal arrived, is_whole, refusal
            if is_whole:  # The app waits for the client to leave.
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    event = await receive()
            except TimeoutError:
                refusal = 408
                return {"type": "http.disconnect"}
            arrived += len(event.get("body", b""))
            is_whole = not event.get("more_body", False)
            if arrived > self._most_bytes:
                refusal = 413
                return {"type": "http.disconnect"}
            return event

        await self._app(scope, bounded, send)
        if refusal:
            await self._refuse(send, refusal)

    async def _refuse(self, send: Send, status: int) -> None:
        if status == 411:
            document = problem(411, _("Send the body with a Content-Length."), code="length_required")
        elif status == 408:
            document = problem(408, _("The body did not arrive in time."), code="too_slow")
        else:
            document = problem(413, _("The body is too large."), code="too_large")
        headers = [(b"content-type", CONTENT_TYPE.encode()), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(document).encode()})
