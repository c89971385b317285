"""One Redis subscription of a web process, fanned out to its open streams.

State is level-triggered: an event only says that a topic changed. Topics are collected for a short while, every
fragment is rendered once per (fragment, scope) and the same bytes go to everybody. A new stream gets all its topics
at once, so nothing that happened between the page and the stream is missed; after a lost Redis connection every
topic is rendered again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from console.live.fragments import Fragment, fragments_of
from console.middleware.metrics import STREAMS

log = logging.getLogger(__name__)

QUEUE_EVENTS = 64
GATHER_SECONDS = 0.1
RECONNECT_SECONDS = 1.0


class Source(Protocol):
    """Where events come from. ``events()`` ends or raises when the connection is lost."""

    def events(self) -> AsyncIterator[Mapping[str, Any]]: ...


Render = Callable[[Fragment, str, str], Awaitable[str]]


@dataclass(eq=False, slots=True)
class Subscription:
    """One open stream: topic -> permission scope, and a bounded queue of ready bytes. None in the queue ends it.

    ``wants_fragments`` is false for streams of programs, which only need to hear that something changed. ``account``
    is the topic on which it is told that the reader's rights or sessions changed; ``doubt`` is set then.
    """

    topics: dict[str, str]
    wants_fragments: bool = True
    account: str = ""
    doubt: asyncio.Event = field(default_factory=asyncio.Event)
    queue: asyncio.Queue[bytes | None] = field(default_factory=lambda: asyncio.Queue(QUEUE_EVENTS))
    is_closed: bool = False

    def send(self, block: bytes) -> None:
        """Queue ready events. A reader that is too slow is dropped: it reconnects and gets the present state."""
        if self.is_closed:
            return
        try:
            self.queue.put_nowait(block)
        except asyncio.QueueFull:
            while not self.queue.empty():
                self.queue.get_nowait()
            self.close()

    def close(self) -> None:
        """End the stream after what is queued."""
        if self.is_closed:
            return
        self.is_closed = True
        if self.queue.full():
            self.queue.get_nowait()
        self.queue.put_nowait(None)


class Hub:
    """Subscriptions of this process. All methods run on the event loop that first subscribed."""

    def __init__(self, source: Source, render: Render) -> None:
        self._source = source
        self._render = render
        self._subscriptions: set[Subscription] = set()
        self._fresh: set[Subscription] = set()
        self._changed: dict[str, Any] = {}
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def subscribe(self, topics: Mapping[str, str], *, wants_fragments: bool = True, account: str = "") -> Subscription:
        """Return a subscription to the topics (topic -> permission scope), first filled with their present state."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._publish())]
        subscription = Subscription(dict(topics), wants_fragments, account)
        self._subscriptions.add(subscription)
        self._fresh.add(subscription)
        self._wake.set()
        STREAMS.set(len(self._subscriptions))
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Forget it."""
        self._subscriptions.discard(subscription)
        self._fresh.discard(subscription)
        STREAMS.set(len(self._subscriptions))

    def end_streams(self) -> None:
        """End every stream after what is queued for it."""
        for subscription in list(self._subscriptions):
            subscription.close()

    async def close(self) -> None:
        """End every stream and the connection."""
        self.end_streams()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _listen(self) -> None:
        while True:
            try:
                async for event in self._source.events():
                    topic = event.get("topic")
                    if isinstance(topic, str):
                        self._changed[topic] = event.get("data") or {}
                        self._wake.set()
            except Exception as error:
                log.warning("live.source_lost: %s", error)
            await asyncio.sleep(RECONNECT_SECONDS)
            self._fresh = set(self._subscriptions)
            self._wake.set()

    async def _publish(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._wake.clear()
            changed, self._changed = self._changed, {}
            fresh, self._fresh = self._fresh, set()
            for subscription in self._subscriptions:
                if subscription.account in changed:
                    subscription.doubt.set()
            for (topic, scope, wants_fragments), readers in self._audience(changed, fresh).items():
                blocks = [message("notice", {"topic": topic, "data": changed[topic]})] if topic in changed else []
                if wants_fragments:
                    blocks += await self._fragments(topic, scope)
                block = b"".join(blocks)
                for reader in readers if block else ():
                    reader.send(block)

    def _audience(
        self, changed: Mapping[str, Any], fresh: set[Subscription]
    ) -> dict[tuple[str, str, bool], list[Subscription]]:
        """Return who gets what: (topic, scope, with fragments) -> subscriptions."""
        audience: dict[tuple[str, str, bool], list[Subscription]] = {}
        for subscription in self._subscriptions:
            for topic, scope in subscription.topics.items():
                if topic in changed or subscription in fresh:
                    audience.setdefault((topic, scope, subscription.wants_fragments), []).append(subscription)
        return audience

    async def _fragments(self, topic: str, scope: str) -> list[bytes]:
        topic_id, fragments = fragments_of(topic)
        blocks = []
        for fragment in fragments:
            try:
                html = await self._render(fragment, topic_id, scope)
            except Exception:
                log.exception("live.render_failed: %s", fragment.name)
                continue
            if html:
                blocks.append(message("fragment", {"target": fragment.target(topic_id), "html": html}))
        return blocks


def message(event: str, data: Any) -> bytes:
    """Return one server-sent event. Source: WHATWG HTML, section 9.2."""
    return f"event: {event}\ndata: {json.dumps(data)}\n\n".encode()
