from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from console.live import fragments
from console.live.fragments import Fragment, register
from console.live.hub import QUEUE_EVENTS, Hub, Subscription


class FakeSource:
    """Events that the test puts in; an exception put in breaks the connection."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Mapping[str, Any] | Exception] = asyncio.Queue()
        self.connections = 0

    async def events(self) -> AsyncIterator[Mapping[str, Any]]:
        self.connections += 1
        while True:
            event = await self.queue.get()
            if isinstance(event, Exception):
                raise event
            yield event


@pytest.fixture(autouse=True)
def _own_fragments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragments, "_fragments", {})
    monkeypatch.setattr("console.live.hub.GATHER_SECONDS", 0.0)
    monkeypatch.setattr("console.live.hub.RECONNECT_SECONDS", 0.0)


async def render(fragment: Fragment, topic_id: str, scope: str) -> str:
    return fragment.renderer(topic_id, scope)


def read(block: bytes | None) -> list[tuple[str, Any]]:
    assert block is not None
    events = []
    for text in block.decode().strip().split("\n\n"):
        name, data = text.split("\n")
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return events


async def next_events(subscription: Subscription) -> list[tuple[str, Any]]:
    return read(await asyncio.wait_for(subscription.queue.get(), 30))


async def test_each_fragment_is_rendered_once_for_each_scope_and_sent_to_all() -> None:
    calls: list[tuple[str, str]] = []

    def badge(topic_id: str, scope: str) -> str:
        calls.append((topic_id, scope))
        return f"<b>{scope}</b>"

    register("deployment", "badge", badge)
    source = FakeSource()
    hub = Hub(source, render)
    readers = [hub.subscribe({"deployment:7": scope}) for scope in ("viewer", "viewer", "operator")]
    for reader in readers:
        await next_events(reader)
    calls.clear()
    source.queue.put_nowait({"topic": "deployment:7", "data": {"why": "test"}})
    found = [await next_events(reader) for reader in readers]
    assert sorted(calls) == [("7", "operator"), ("7", "viewer")]
    assert found[0] == found[1]
    assert found[2] == [
        ("notice", {"topic": "deployment:7", "data": {"why": "test"}}),
        ("fragment", {"target": "#badge-7", "html": "<b>operator</b>"}),
    ]
    await hub.close()


async def test_new_stream_gets_the_present_state_and_others_are_left_alone() -> None:
    register("fleet", "fleet-table", lambda _topic_id, scope: f"<table>{scope}</table>")
    hub = Hub(FakeSource(), render)
    first = hub.subscribe({"fleet": "none"})
    assert await next_events(first) == [("fragment", {"target": "#fleet-table", "html": "<table>none</table>"})]
    second = hub.subscribe({"fleet": "none"})
    assert await next_events(second) == [("fragment", {"target": "#fleet-table", "html": "<table>none</table>"})]
    assert first.queue.empty()
    await hub.close()


async def test_topics_of_others_do_not_arrive() -> None:
    source = FakeSource()
    hub = Hub(source, render)
    mine = hub.subscribe({"model:1": "viewer"})
    theirs = hub.subscribe({"model:2": "viewer"})
    source.queue.put_nowait({"topic": "model:2"})
    assert (await next_events(theirs))[0][1]["topic"] == "model:2"
    assert mine.queue.empty()
    await hub.close()


async def test_lost_connection_renders_everything_again() -> None:
    register("model", "head", lambda topic_id, _scope: topic_id)
    source = FakeSource()
    hub = Hub(source, render)
    reader = hub.subscribe({"model:1": "viewer"})
    await next_events(reader)
    source.queue.put_nowait(OSError("gone"))
    assert await next_events(reader) == [("fragment", {"target": "#head-1", "html": "1"})]
    assert source.connections == 2
    await hub.close()


async def test_broken_renderer_does_not_stop_the_others() -> None:
    def broken(_topic_id: str, _scope: str) -> str:
        raise RuntimeError("bug")

    register("model", "broken", broken)
    register("model", "fine", lambda _topic_id, _scope: "fine")
    hub = Hub(FakeSource(), render)
    reader = hub.subscribe({"model:1": "viewer"})
    assert await next_events(reader) == [("fragment", {"target": "#fine-1", "html": "fine"})]
    await hub.close()


async def test_slow_reader_is_ended_instead_of_filling_memory() -> None:
    subscription = Subscription({"fleet": "none"})
    for _number in range(QUEUE_EVENTS + 10):
        subscription.send(b"event")
    assert subscription.is_closed
    assert subscription.queue.qsize() == 1
    assert subscription.queue.get_nowait() is None


async def test_closed_hub_ends_its_streams() -> None:
    hub = Hub(FakeSource(), render)
    reader = hub.subscribe({"model:1": "viewer"})
    await hub.close()
    assert await asyncio.wait_for(reader.queue.get(), 30) is None
