"""GET /live/stream?topics=a,b: server-sent events, as a raw ASGI app so that an open stream costs no thread.

A stream authorises in a database thread, then never touches the ORM; every 30 s it is authorised again, and at once
when its account is blocked, a session of it ends or a membership of it changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qs

import orjson
from django.db import InterfaceError, OperationalError
from django.utils.translation import gettext as _

from console.live.hub import Hub, Subscription
from console.live.places import NoPlace, Places
from console.live.topics import MAX_TOPICS, authorise
from console.middleware.database import in_database_thread
from console.middleware.problems import CONTENT_TYPE, STATUS_BY_CODE, problem
from registry.domain.actors import Actor
from registry.errors import RegistryError

log = logging.getLogger(__name__)

Scope = Mapping[str, Any]
Authenticate = Callable[[Scope], Actor | None]

KEEP_ALIVE_SECONDS = 15.0
RECHECK_SECONDS = 30.0
SEND_SECONDS = 20.0
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


class EventStream:
    """Writes one subscription to one client until either ends it. ``recheck`` answers topics, or None to end."""

    def __init__(self, hub: Hub, subscription: Subscription, receive: Any, send: Any) -> None:
        self._hub = hub
        self._subscription = subscription
        self._receive = receive
        self._send = send

    async def run(self, recheck: Callable[[], Any], transform: Callable[[bytes], Any] | None = None) -> None:
        """Stream until the client leaves, the queue ends, a send takes too long, or ``recheck`` gives None.

        ``transform`` (async) may turn a block into other bytes; None from it ends the stream.
        """
        watcher = asyncio.create_task(self._watch_disconnect())
        checker = asyncio.create_task(self._keep_checking(recheck))
        try:
            await self._write_head()
            await self._pump(transform)
        except (TimeoutError, OSError):
            pass
        finally:
            for task in (watcher, checker):
                task.cancel()
            await asyncio.gather(watcher, checker, return_exceptions=True)
            self._hub.unsubscribe(self._subscription)

    async def _write_head(self) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await self._body(b"retry: 2000\n\n")

    async def _pump(self, transform: Callable[[bytes], Any] | None) -> None:
        while True:
            try:
                block = await asyncio.wait_for(self._subscription.queue.get(), KEEP_ALIVE_SECONDS)
            except TimeoutError:
                await self._body(b": keep-alive\n\n")
                continue
            if block is not None and transform is not None:
                block = await transform(block)
            if block is None:
                async with asyncio.timeout(SEND_SECONDS):
                    await self._send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            if block:
                await self._body(block)

    async def _body(self, block: bytes) -> None:
        async with asyncio.timeout(SEND_SECONDS):
            await self._send({"type": "http.response.body", "body": block, "more_body": True})

    async def _watch_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._subscription.close()

    async def _keep_checking(self, recheck: Callable[[], Any]) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._subscription.doubt.wait(), RECHECK_SECONDS)
            self._subscription.doubt.clear()
            try:
                topics = await recheck()
            except Exception:
                log.exception("live.recheck_failed")
                topics = None  # Who cannot be checked may not go on reading; the browser connects again.
            if not topics:
                self._subscription.close()
                return
            self._subscription.topics = topics


class LiveApp:
    """The stream of a browser. ``authenticate`` (sync, database) gives the actor of a session, or None."""

    def __init__(self, hub: Hub, authenticate: Authenticate, places: Places) -> None:
        self._hub = hub
        self._authenticate = authenticate
        self._places = places

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Serve one request."""
        if scope["method"] != "GET":
            return await refuse(send, 405, _("Streams are read with GET."))
        query = parse_qs(scope["query_string"].decode("latin-1"))
        topics = [topic for text in query.get("topics", []) for topic in text.split(",") if topic]
        if not topics or len(topics) > MAX_TOPICS:
            return await refuse(send, 400, _("Name between 1 and %(most)d topics.") % {"most": MAX_TOPICS})

        def admit() -> tuple[Actor | None, dict[str, str]]:
            actor = self._authenticate(scope)
            return actor, authorise(actor, topics) if actor else {}

        try:
            actor, allowed = await in_database_thread(admit)
        except RegistryError as error:
            return await refuse(send, STATUS_BY_CODE.get(error.code, 403), error.message)
        except (OperationalError, InterfaceError):
            return await refuse(send, 503, _("The database cannot be reached; try again."))
        if actor is None:
            return await refuse(send, 401, _("Sign in first."))
        if not allowed:
            return await refuse(send, 404, _("There is no such topic."))

        async def recheck() -> dict[str, str] | None:
            now, still = await in_database_thread(admit)
            return still if now is not None and now.user_id == actor.user_id else None

        try:
            with self._places.taken(actor):
                subscription = self._hub.subscribe(allowed, account=f"account:{actor.user_id}")
                await EventStream(self._hub, subscription, receive, send).run(recheck)
        except NoPlace as full:
            await refuse(send, full.status, full.detail, full.headers)


async def refuse(send: Any, status: int, detail: str, more: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Answer with a problem document, and more headers."""
    body = orjson.dumps(problem(status, detail))
    headers = [(b"content-type", CONTENT_TYPE.encode()), (b"cache-control", b"no-store"), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
