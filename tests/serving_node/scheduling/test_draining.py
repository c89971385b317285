from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from serving_node.scheduling.draining import wait_for_inflight


def served(counts: Iterator[int]) -> Any:
    scheduler = SimpleNamespace(inflight_count=lambda: next(counts))
    return cast(Any, SimpleNamespace(name="m", version=1, scheduler=scheduler))


async def test_wait_ends_when_nothing_runs() -> None:
    counts = iter([2, 1, 0, 1])
    model = served(counts)
    assert await wait_for_inflight(lambda: [model], 60.0)
    assert next(counts) == 1, "looked no more"


async def test_wait_leaves_time_for_the_rest() -> None:
    model = served(iter([1]))
    assert not await wait_for_inflight(lambda: [model], 0.0)
    assert await wait_for_inflight(lambda: [], 0.0)
