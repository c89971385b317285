"""Entry point of the web server: raw ASGI apps for uploads and streams, Django for everything else."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import threading
import uuid
from collections.abc import Mapping
from types import FrameType
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")  # noqa: TID251

from console.middleware.one_thread import django_application

_django_app = django_application()

from django.conf import settings  # noqa: E402

import console.urls  # noqa: E402, F401  # at start and not at the first request: pages register their live fragments
from console.api.operation_events import OperationEventsApp  # noqa: E402
from console.identity.asgi import authenticate  # noqa: E402
from console.live.asgi import LiveApp  # noqa: E402
from console.live.hub import Hub  # noqa: E402
from console.live.places import Places  # noqa: E402
from console.live.rendering import render_in_thread  # noqa: E402
from console.live.source import RedisSource  # noqa: E402
from console.middleware.body_limit import BodyLimit  # noqa: E402
from console.middleware.edge import Edge  # noqa: E402
from console.uploads.asgi import UploadsApp  # noqa: E402

_django = BodyLimit(_django_app, most_seconds=settings.BODY_SECONDS)
_EVENTS = re.compile(r"/api/v1/operations/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/events")


class Application:
    """Sends each request to the app that answers it, and ends the streams when the server stops."""

    def __init__(self) -> None:
        self._hub = Hub(RedisSource(settings.REDIS_URL), render_in_thread)
        places = Places(settings.STREAMS, settings.STREAMS_PER_CALLER)
        self._live = LiveApp(self._hub, authenticate, places)
        self._operation_events = OperationEventsApp(self._hub, authenticate, places)
        self._uploads = UploadsApp()

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        """Serve one connection scope."""
        if scope["type"] == "lifespan":
            return await self._lifespan(receive, send)
        path = scope.get("path", "")
        events = _EVENTS.fullmatch(path)
        if scope["type"] != "http":
            return
        if path == "/live/stream":
            await self._live(scope, receive, send)
        elif events is not None:
            await self._operation_events(scope, receive, send, uuid.UUID(events[1]))
        elif path == "/api/v1/uploads" or path.startswith("/api/v1/uploads/"):
            await self._uploads(scope, receive, send)
        else:
            await _django(dict(scope), receive, send)

    async def _lifespan(self, receive: Any, send: Any) -> None:
        await receive()
        self._end_streams_on_signals()
        _keep_what_is_loaded()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._hub.close()
        await send({"type": "lifespan.shutdown.complete"})

    def _end_streams_on_signals(self) -> None:
        """End the streams when the server is told to stop: it waits for open connections before it tells us."""
        if threading.current_thread() is not threading.main_thread():
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.getsignal(number)

            def stop(number: int, frame: FrameType | None, before: Any = before) -> None:
                loop.call_soon_threadsafe(self._hub.end_streams)
                if callable(before):
                    before(number, frame)

            signal.signal(number, stop)


def _keep_what_is_loaded() -> None:
    """Take modules, addresses and templates out of what the collector of garbage walks through.

    They stay as long as the process. Walking through them, in the middle of some request, took 0.2 s.
    """
    gc.collect()
    gc.freeze()
    # Often and little: ten thousand new objects at once stopped one request in ten for 4 to 9 ms, two thousand for 0.4.
    gc.set_threshold(2_000, 20, 100)


application = Edge(Application())
