"""Against a real Valkey, which is stopped, killed and started again."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from serving_node.core.tensor import Tensor
from serving_node.observability.families import to_text
from serving_node.scheduling.cache_options import RedisOptions
from serving_node.scheduling.cache_scope import CacheUnavailable, open_cache
from serving_node.scheduling.cached_response import unpack_response
from serving_node.scheduling.redis_cache import KEY_PREFIX, RedisCache
from serving_node.scheduling.response_cache import INLINE_BYTES, Answer
from tests.serving_node.valkey_process import PASSWORD, ValkeyProcess
from tests.serving_node.wire.test_tls_context import Authority

DEADLINE = 20.0
KEY = bytes(range(32))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ValkeyProcess]:
    made = ValkeyProcess(tmp_path)
    yield made
    made.kill()


def options(store: ValkeyProcess, **changes: Any) -> RedisOptions:
    values: dict[str, Any] = {"password": PASSWORD, "deadline_seconds": DEADLINE, **changes}
    return RedisOptions("127.0.0.1", store.port, **values)


@pytest.fixture
async def cache(store: ValkeyProcess) -> AsyncIterator[RedisCache]:
    store.start()
    made = RedisCache(options(store))
    yield made
    await made.close()


def answer(data: bytes = b"1234", key: bytes = KEY) -> Answer:
    return Answer(key, b"", (Tensor("y", "UINT8", (len(data),), data),), {"p": 1}, len(data))


async def look_up(cache: RedisCache, key: bytes = KEY) -> bytes | None:
    found: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
    cache.look_up(key, found.set_result)
    return await asyncio.wait_for(found, DEADLINE)


async def insert(cache: RedisCache, what: Answer) -> int:
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    cache.insert(what, done.set_result)
    return await asyncio.wait_for(done, DEADLINE)


def count(cache: RedisCache, name: str) -> int:
    lines = to_text(cache.families()).decode().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


@pytest.mark.parametrize("size", [0, 4, INLINE_BYTES + 1])
async def test_what_is_inserted_is_found_by_every_node(store: ValkeyProcess, cache: RedisCache, size: int) -> None:
    assert await look_up(cache) is None
    assert await insert(cache, answer(bytes(size))) > 0
    other = RedisCache(options(store))
    raw = await look_up(other)
    assert raw is not None
    (tensor,), parameters = unpack_response(raw)
    assert (tensor.name, bytes(tensor.data), parameters) == ("y", bytes(size), {"p": 1})
    assert (count(cache, "nv_cache_num_misses"), count(other, "nv_cache_num_hits")) == (1, 1)
    await other.close()


async def test_answers_expire(store: ValkeyProcess, cache: RedisCache) -> None:
    await insert(cache, answer())
    assert 86_000 < store.client.ttl(KEY_PREFIX + KEY.hex()) <= 86_400  # type: ignore[operator]
    forever = RedisCache(options(store, ttl_seconds=0))
    await insert(forever, answer(key=bytes(32)))
    assert store.client.ttl(KEY_PREFIX + bytes(32).hex()) == -1
    await forever.close()


async def test_answers_that_are_too_large_stay_out(store: ValkeyProcess) -> None:
    store.start()
    cache = RedisCache(options(store, max_entry_bytes=10))
    assert await insert(cache, answer(bytes(11))) == 0
    assert (await look_up(cache), count(cache, "flotilla_cache_unfit_total")) == (None, 1)
    await cache.close()


async def test_a_killed_server_costs_no_request_and_comes_back(store: ValkeyProcess, cache: RedisCache) -> None:
    await insert(cache, answer())
    store.kill()
    with structlog.testing.capture_logs() as lines:
        assert [await look_up(cache) for _ in range(20)] == [None] * 20
        assert await insert(cache, answer()) == 0
        assert [line["event"] for line in lines] == ["cache.redis_away"]
        assert count(cache, "flotilla_cache_failures_total") == 1
        store.start()
        async with asyncio.timeout(DEADLINE):
            while await look_up(cache) is None:
                await insert(cache, answer())
                await asyncio.sleep(0.02)
    assert [line["event"] for line in lines] == ["cache.redis_away", "cache.redis_back"]
    assert PASSWORD not in str(lines)


async def test_a_server_that_was_never_there_costs_no_request(store: ValkeyProcess) -> None:
    cache = RedisCache(options(store))
    with structlog.testing.capture_logs() as lines:
        assert await look_up(cache) is None
        assert await insert(cache, answer()) == 0
    assert [line["event"] for line in lines] == ["cache.redis_away"]
    await cache.close()


async def test_a_server_that_hangs_in_the_middle_is_waited_for_once(store: ValkeyProcess) -> None:
    store.start()
    patient, cache = RedisCache(options(store)), RedisCache(options(store, deadline_seconds=0.1))
    await insert(patient, answer())
    await patient.close()
    store.signal(signal.SIGSTOP)
    loop = asyncio.get_running_loop()
    asked = [loop.create_future() for _ in range(30)]
    for number in range(len(asked)):
        cache.look_up(KEY, lambda raw, number=number: asked[number].set_result(raw))
    assert await asyncio.wait_for(asyncio.gather(*asked), DEADLINE) == [None] * 30
    now = []
    cache.look_up(KEY, now.append)
    assert now == [None], "nobody waits while it is known to be away"
    store.signal(signal.SIGCONT)
    async with asyncio.timeout(DEADLINE):
        while await look_up(cache) is None:
            await asyncio.sleep(0.02)
    await cache.close()


async def test_a_wrong_password_is_told_without_saying_it(store: ValkeyProcess) -> None:
    store.start()
    cache = RedisCache(options(store, password="also-secret"))
    with structlog.testing.capture_logs() as lines:
        assert await look_up(cache) is None
    assert "invalid username-password pair" in lines[0]["reason"]
    assert "also-secret" not in str(lines)
    assert "also-secret" not in repr(options(store, password="also-secret"))
    await cache.close()


async def test_a_full_server_refuses_answers_and_still_finds_them(store: ValkeyProcess, cache: RedisCache) -> None:
    await insert(cache, answer())
    store.client.config_set("maxmemory", "1")
    with structlog.testing.capture_logs() as lines:
        for number in range(3):
            await insert(cache, answer(key=bytes([number]) * 32))
    assert [line["event"] for line in lines] == ["cache.redis_refuses"]
    assert count(cache, "flotilla_cache_failures_total") == 3
    assert await look_up(cache) is not None


async def test_too_many_lookups_at_once_do_not_wait(store: ValkeyProcess) -> None:
    store.start()
    cache = RedisCache(options(store, pool_size=1))
    await insert(cache, answer())
    found: list[bytes | None] = []
    for _ in range(200):
        cache.look_up(KEY, found.append)
    assert found
    assert set(found) == {None}
    async with asyncio.timeout(DEADLINE):
        while len(found) < 200:
            await asyncio.sleep(0.01)
    assert any(found)
    assert count(cache, "flotilla_cache_failures_total") == 0
    await cache.close()


async def test_it_speaks_tls_to_a_server_whose_certificate_is_good(store: ValkeyProcess, tmp_path: Path) -> None:
    store.start()
    authority = Authority(tmp_path)
    certificate, key = authority.issue("cache.example")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        target.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", store.port)
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    proxy = await asyncio.start_server(forward, "127.0.0.1", 0, ssl=context)
    port = proxy.sockets[0].getsockname()[1]
    given = {"password": PASSWORD, "deadline_seconds": DEADLINE, "tls": True, "cacert": str(authority.file)}
    good = RedisCache(RedisOptions("127.0.0.1", port, sni="cache.example", **given))  # type: ignore[arg-type]
    await insert(good, answer())
    assert await look_up(good) is not None
    other_name = RedisCache(RedisOptions("127.0.0.1", port, **given))  # type: ignore[arg-type]
    with structlog.testing.capture_logs() as lines:
        assert await look_up(other_name) is None
    assert "certificate" in lines[0]["reason"]
    await good.close()
    await other_name.close()
    proxy.close()


def test_files_of_tls_are_read_at_the_start(tmp_path: Path) -> None:
    options = RedisOptions("h", 1, tls=True, cacert=str(tmp_path / "none.pem"))
    with pytest.raises(CacheUnavailable, match="Failed to initialize RedisCache: "):
        open_cache(options)


def test_without_the_package_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "serving_node.scheduling.redis_cache")
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(CacheUnavailable, match=r"pip install 'flotilla\[cache-redis\]'"):
        open_cache(RedisOptions("h", 1))


async def test_closing_ends_what_is_under_way(store: ValkeyProcess, cache: RedisCache) -> None:
    store.signal(signal.SIGSTOP)
    found: list[bytes | None] = []
    cache.look_up(KEY, found.append)
    await asyncio.sleep(0)
    await asyncio.wait_for(cache.close(), DEADLINE)
    store.signal(signal.SIGCONT)
