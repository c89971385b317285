from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import pytest
import pytest_asyncio
from django.db import connections

from registry.domain.histograms import decode
from registry.models import NodeObservation, NodeSample, Sample, ServingNode
from serving_node.contract.control import Desired, DesiredModel, FileRef, Route, Unit
from tests.workers import factories
from tests.workers.observe.node_server import NodeServer
from tests.workers.observe.test_exposition import PROTOBUF, delimited, native
from workers.node_client.client import Exposition
from workers.node_client.fake import FakeNode
from workers.observe.fleet_watch import observe_forever
from workers.observe.node_watch import Pace, pause_after, until_next
from workers.tasks.hints import RECONCILE_DEPLOYMENT

pytestmark = pytest.mark.django_db(transaction=True)

FAST = Pace(poll=0.5, least=0.01, scrape=0.1, longest_pause=0.1, refresh=0.1)
_Result = TypeVar("_Result")


async def db(function: Callable[[], _Result]) -> _Result:
    def work() -> _Result:
        try:
            return function()
        finally:
            connections.close_all()

    return await asyncio.to_thread(work)


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():
            await asyncio.sleep(0.02)


def desired(generation: int) -> Desired:
    unit = Unit("u", 1, "c" * 64, {}, "m" * 64, (FileRef("model.onnx", "a" * 64, 1),))
    return Desired(1, generation, (DesiredModel("m", (Route("u", 100),), (unit,)),))


def scrape(requests: int, buckets: dict[int, int]) -> Exposition:
    text_like = native("flotilla_request_duration_seconds", buckets, model="m", version="1")
    counter = native("unused", {})
    counter.Clear()
    counter.name = "nv_inference_request_success"
    metric = counter.metric.add()
    metric.label.add(name="model", value="m")
    metric.label.add(name="version", value="1")
    metric.counter.value = requests
    gauge = native("unused", {})
    gauge.Clear()
    gauge.name = "nv_cpu_utilization"
    gauge.metric.add().gauge.value = 0.5
    return Exposition(PROTOBUF, delimited(text_like, counter, gauge))


@pytest_asyncio.fixture
async def server() -> AsyncIterator[NodeServer]:
    started = NodeServer(FakeNode("n1"))
    await started.start()
    yield started
    await started.stop()


@pytest_asyncio.fixture
async def node(server: NodeServer) -> ServingNode:
    return await db(lambda: factories.make_node(url=server.url))


@pytest_asyncio.fixture
async def observing(node: ServingNode, hints: list[tuple[str, str]]) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(observe_forever(pace=FAST))
    yield task
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def observation() -> NodeObservation | None:
    return await db(lambda: NodeObservation.objects.first())


async def test_changes_of_a_node_are_stored_as_they_happen(
    server: NodeServer, node: ServingNode, observing: asyncio.Task[None], hints: list[tuple[str, str]]
) -> None:
    model = await db(lambda: factories.make_ready_version().model)
    deployment = await db(lambda: factories.deploy(model, factories.make_fleet(), v1=100).deployment)
    hints.clear()
    server.fake.accept(desired(7))

    async def seen(state: str) -> bool:
        row = await observation()
        return row is not None and row.generation_seen == 7 and row.units[0]["state"] == state

    for state in ("absent", "fetching", "loading", "warming", "ready"):
        await eventually(lambda state=state: seen(state))  # type: ignore[misc]
        server.fake.advance()
    await db(node.refresh_from_db)
    assert (node.state, node.lease_until is not None) == ("ready", True)
    assert (RECONCILE_DEPLOYMENT, str(deployment.pk)) in hints
    assert server.unauthorized == 0


async def test_differences_of_counters_become_samples(
    server: NodeServer, node: ServingNode, observing: asyncio.Task[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.fake.exposition = scrape(100, {1: 60, 5: 40})

    async def scraped_again() -> bool:
        return server.scrapes >= before + 2

    async def sums() -> tuple[int, dict[int, int]]:
        rows = await db(lambda: list(Sample.objects.filter(node_id=node.pk)))
        counts: dict[int, int] = {}
        for row in rows:
            for index, count in decode(row.request_histogram).counts.items():
                counts[index] = counts.get(index, 0) + count
        return sum(row.requests for row in rows), counts

    before = server.scrapes
    await eventually(scraped_again)
    assert await sums() == (0, {}), "what happened before the first scrape is not known to be new"
    server.fake.exposition = scrape(130, {1: 80, 5: 40, 9: 10})
    before = server.scrapes
    await eventually(scraped_again)
    assert await sums() == (30, {1: 20, 9: 10})
    server.fake.exposition = scrape(4, {1: 4})  # the node restarted
    before = server.scrapes
    await eventually(scraped_again)
    assert await sums() == (34, {1: 24, 9: 10})
    gauges = await db(lambda: NodeSample.objects.filter(node_id=node.pk).first())
    assert gauges is not None
    assert gauges.cpu_utilization == 0.5


async def test_a_dead_node_is_noted_and_found_again(
    server: NodeServer, node: ServingNode, observing: asyncio.Task[None]
) -> None:
    async def error_is_set(wanted: bool) -> bool:
        row = await observation()
        return row is not None and bool(row.error) is wanted

    await eventually(lambda: error_is_set(False))
    await server.stop()
    await eventually(lambda: error_is_set(True))
    await server.start()
    await eventually(lambda: error_is_set(False))


async def test_a_lost_database_connection_only_interrupts(
    server: NodeServer, node: ServingNode, observing: asyncio.Task[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def polled() -> bool:
        return server.polls > before

    before = server.polls
    await eventually(polled)
    await db(_terminate_others)
    before = server.polls + 3
    server.fake.accept(desired(3))
    await eventually(polled)

    async def stored() -> bool:
        row = await observation()
        return row is not None and row.generation_seen == 3

    await eventually(stored)
    assert not observing.done()


async def test_nodes_come_and_go(server: NodeServer, node: ServingNode, observing: asyncio.Task[None]) -> None:
    other = NodeServer(FakeNode("n2"))
    await other.start()
    joined = await db(lambda: factories.make_node("n2", url=other.url))

    async def polled() -> bool:
        return other.polls > 0

    await eventually(polled)
    await db(lambda: ServingNode.objects.filter(pk=joined.pk).update(state="retired"))

    async def quiet() -> bool:
        before = other.polls
        await asyncio.sleep(3 * FAST.poll)
        return other.polls == before

    await eventually(quiet)
    await other.stop()


async def test_a_broken_scrape_does_not_end_the_watch(
    server: NodeServer, node: ServingNode, observing: asyncio.Task[None]
) -> None:
    server.fake.exposition = Exposition(PROTOBUF, b"\xff\xff\xff")

    async def scraped() -> bool:
        return server.scrapes >= before + 2

    before = server.scrapes
    await eventually(scraped)
    server.fake.exposition = scrape(1, {1: 1})
    before = server.scrapes
    await eventually(scraped)
    assert await db(NodeSample.objects.filter(node_id=node.pk).exists)


def _terminate_others() -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'flotilla-observe'"
        )


def test_pauses_grow_to_a_limit() -> None:
    assert [pause_after(failures, 10) for failures in (1, 2, 3, 99)] == [0.5, 1.0, 2.0, 10.0]


@pytest.mark.parametrize("now", [0.0, 3.7, 9.99, 10.0, 1234567.8])
def test_scrapes_are_aligned(now: float) -> None:
    pause = until_next(now, 10, 1.5)
    assert 0 < pause <= 10
    assert (now + pause - 1.5) % 10 == pytest.approx(0, abs=1e-6) or (now + pause - 1.5) % 10 == pytest.approx(10)
