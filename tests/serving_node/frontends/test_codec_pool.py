"""The parsing process: results, failures, deadlines. ``eval`` runs there, so a test can make it do anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.frontends.codec_pool import CodecPool
from serving_node.frontends.http.request_codec import parse_infer

FOREVER = b"__import__('threading').Event().wait()"


@pytest.fixture
async def pool() -> AsyncIterator[CodecPool]:
    pool = CodecPool(deadline_seconds=20, max_waiting=2)
    yield pool
    pool.close()


def start(pool: CodecPool, function: Any, data: bytes) -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def done(result: Any, error: Exception | None) -> None:
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    pool.submit(function, data, done)
    return future


async def test_result_and_failure_come_back(pool: CodecPool) -> None:
    assert await asyncio.wait_for(start(pool, eval, b"6 * 7"), 30) == 42
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(start(pool, eval, b"1 / 0"), 30)
    with pytest.raises(InferenceError) as caught:
        await asyncio.wait_for(start(pool, parse_infer, b"{}"), 30)
    assert caught.value.code is ErrorCode.INTERNAL
    assert "'inputs'" in caught.value.message


async def test_dead_process_fails_its_job_and_is_replaced(pool: CodecPool) -> None:
    with pytest.raises(InferenceError, match="ended unexpectedly"):
        await asyncio.wait_for(start(pool, eval, b"__import__('os')._exit(1)"), 30)
    assert await asyncio.wait_for(start(pool, eval, b"6 * 7"), 30) == 42


async def test_job_that_takes_too_long_is_ended() -> None:
    pool = CodecPool(deadline_seconds=0.2)
    with pytest.raises(InferenceError):
        await asyncio.wait_for(start(pool, eval, FOREVER), 30)
    pool.close()


async def test_too_many_waiting_jobs_are_refused(pool: CodecPool) -> None:
    jobs = [start(pool, eval, FOREVER) for _ in range(2)]
    with pytest.raises(InferenceError) as caught:
        start(pool, partial(eval), b"1")
    assert caught.value.code is ErrorCode.UNAVAILABLE
    pool.close()
    for job in jobs:
        with pytest.raises(InferenceError):
            await asyncio.wait_for(job, 30)
