"""Calls are counted by caller and kind; too many get 429 with the time to come back; without the cache all go on."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from django.core.cache import cache
from redis.exceptions import ConnectionError as RedisDown

from console.identity.rates import count_call
from flotilla.sdk.transport import ApiError, Transport
from tests.console.conftest import Cast, RunningConsole


@pytest.fixture(autouse=True)
def _small(settings: Any) -> None:
    settings.API_RATES = {"read": 3, "write": 2, "costly": 1, "upload": 1}
    cache.clear()


@pytest.fixture
def _still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold the clock of the windows: no minute ends within a test."""
    monkeypatch.setattr("console.identity.rates.time", lambda: 999_999_995.0)


@pytest.mark.usefixtures("_still")
def test_each_caller_has_so_many_calls_of_each_kind(cast: Cast, api: Callable[..., Any]) -> None:
    vera, bob = api("vera"), api("bob")
    answers = [vera.get("/api/v1/me/") for _call in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert [answer.headers["RateLimit-Remaining"] for answer in answers] == ["2", "1", "0", "0"]
    refused = answers[-1]
    assert refused.json()["code"] == "throttled"
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert refused.headers["Retry-After"] == refused.headers["RateLimit-Reset"] == "25"
    assert refused.headers["RateLimit-Limit"] == "3"
    assert bob.get("/api/v1/me/").status_code == 200
    assert vera.post("/api/v1/projects/wren/models/", {"slug": "x"}).status_code == 403
    assert [vera.get("/api/v1/audit/").status_code for _call in range(2)] == [200, 429]


def test_a_new_minute_counts_anew() -> None:
    assert [count_call("costly", "x", now).is_over for now in (60.0, 119.9, 120.0)] == [False, True, False]  # type: ignore[union-attr]


def test_a_limit_of_nothing_counts_nothing(settings: Any) -> None:
    settings.API_RATES = {"read": 0}
    assert count_call("read", "x", 0.0) is None


@pytest.mark.usefixtures("_still")
def test_without_the_cache_all_calls_go_on(
    cast: Cast, api: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_args: Any, **_kwargs: Any) -> None:
        raise RedisDown("gone")

    bob = api("bob")
    for name in ("add", "count", "incr", "get", "set", "delete"):
        monkeypatch.setattr(cache, name, away)
    assert [bob.get("/api/v1/me/").status_code for _call in range(5)] == [200] * 5
    made = [bob.post("/api/v1/projects/wren/models/", {"slug": f"m{number}"}).status_code for number in range(4)]
    assert made == [201] * 4


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_still")
def test_uploads_begun_are_counted(shared_cast: Cast, console: RunningConsole) -> None:
    version = shared_cast.version()
    pairs = {"version": str(version.pk), "path": "model.onnx"}
    metadata = ",".join(f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in pairs.items())
    headers = {"Tus-Resumable": "1.0.0", "Upload-Length": "1", "Upload-Metadata": metadata}
    with console.client(shared_cast.token("bob")) as client:
        first, second = (client.post("/api/v1/uploads/", headers=headers) for _call in range(2))
    assert (first.status_code, second.status_code) == (201, 429)
    assert second.json()["code"] == "throttled" and second.headers["Retry-After"] == "25"


@pytest.mark.django_db(transaction=True)
def test_the_client_waits_as_long_as_it_is_told(
    shared_cast: Cast, console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, slept = [999_999_995.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr("console.identity.rates.time", lambda: clock[0])
    monkeypatch.setattr("flotilla.sdk.transport.time.sleep", sleep)
    transport = Transport(console.url, shared_cast.token("bob"))
    try:
        assert [transport.send("GET", "me/").status_code for _call in range(4)] == [200] * 4
        assert slept == [25.0]
        monkeypatch.setattr("flotilla.sdk.transport._PATIENCE_SECONDS", 5.0)
        for _call in range(2):
            transport.send("GET", "me/")
        with pytest.raises(ApiError) as refused:
            transport.send("GET", "me/")
        assert (refused.value.status, refused.value.code) == (429, "throttled")
    finally:
        transport.close()
