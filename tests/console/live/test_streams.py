"""Streams of a real uvicorn, fed through a real Redis channel."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client

from console.live import fragments
from flotilla.sdk import Flotilla
from registry import telemetry
from registry.models import Membership, Role, User
from registry.services import operations, people
from tests.console.conftest import Cast, ConsoleProcess, RunningConsole


class Stream:
    """One open EventSource."""

    def __init__(self, console: RunningConsole | ConsoleProcess, path: str, **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=30)
        self._connection.request("GET", path, headers=headers)
        self.response = self._connection.getresponse()

    def lines(self) -> Iterator[str]:
        while line := self.response.readline():
            yield line.decode().rstrip("\n")

    def next(self, event: str) -> Any:
        """Return the data of the next event of that name."""
        name = ""
        for line in self.lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: ") and name == event:
                return json.loads(line.removeprefix("data: "))
        raise AssertionError("the stream ended")

    def close(self) -> None:
        self._connection.close()


def until(condition: Callable[[], bool]) -> None:
    """Wait for what the server does by itself."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def cookie(user: User) -> dict[str, str]:
    browser = Client()
    browser.force_login(user)
    return {"Cookie": f"{settings.SESSION_COOKIE_NAME}={browser.session.session_key}"}


@pytest.fixture
def model_topic(shared_cast: Cast, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(fragments, "_fragments", {})
    fragments.register("model", "head", lambda topic_id, scope: f"<h1>{scope}</h1>")
    return f"model:{shared_cast.version().model_id}"


def database_connections() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


def test_fifty_streams_hold_no_connection_and_a_page_still_loads(
    console: RunningConsole, shared_cast: Cast, model_topic: str
) -> None:
    people = [User.objects.create_user(f"reader-{number}", password=None) for number in range(5)]
    Membership.objects.bulk_create(
        Membership(project=shared_cast.project, user=user, role=Role.VIEWER) for user in people
    )
    streams = [Stream(console, f"/live/stream?topics={model_topic}", **cookie(user)) for user in people * 10]
    try:
        assert {stream.response.status for stream in streams} == {200}
        for stream in streams:
            assert stream.next("fragment")["html"] == "<h1>viewer</h1>"
        deadline = time.monotonic() + 30
        while (held := database_connections()) > 3:  # PostgreSQL ends a process after its connection
            assert time.monotonic() < deadline, held
            time.sleep(0.05)
        with console.client(shared_cast.token("bob")) as client:
            assert client.get("/api/v1/me/").json()["username"] == "bob"
            assert client.get("/readyz").status_code == 200
        telemetry.publish(model_topic, {"why": "test"})
        for stream in streams:
            assert stream.next("notice") == {"topic": model_topic, "data": {"why": "test"}}
    finally:
        for stream in streams:
            stream.close()


@pytest.mark.integration
def test_pool_is_not_used_up_by_open_streams(console_process: ConsoleProcess, shared_cast: Cast) -> None:
    """The pool has 16 connections; 60 streams and then 40 requests at once must do."""
    people = [User.objects.create_user(f"reader-{number}", password=None) for number in range(6)]
    streams = [Stream(console_process, "/live/stream?topics=fleet,metrics", **cookie(user)) for user in people * 10]
    token = shared_cast.token("bob")
    try:
        assert {stream.response.status for stream in streams} == {200}

        def load(_number: int) -> int:
            with console_process.client(token) as client:
                return client.get("/api/v1/projects/").status_code

        with ThreadPoolExecutor(40) as threads:
            assert set(threads.map(load, range(40))) == {200}
        telemetry.publish("metrics", {"bucket": "now"})
        for stream in streams:
            assert stream.next("notice")["topic"] == "metrics"
    finally:
        for stream in streams:
            stream.close()


def test_scope_is_the_role_of_the_reader(console: RunningConsole, shared_cast: Cast, model_topic: str) -> None:
    for name, role in (("alice", "admin"), ("bob", "publisher"), ("vera", "viewer")):
        stream = Stream(console, f"/live/stream?topics={model_topic},fleet", **cookie(getattr(shared_cast, name)))
        assert stream.next("fragment") == {
            "target": f"#head-{model_topic.removeprefix('model:')}",
            "html": f"<h1>{role}</h1>",
        }
        stream.close()


def test_outsiders_and_strangers_get_no_stream(console: RunningConsole, shared_cast: Cast, model_topic: str) -> None:
    path = f"/live/stream?topics={model_topic}"
    for headers, status in (({}, 401), (cookie(shared_cast.charlie), 404)):
        stream = Stream(console, path, **headers)
        assert stream.response.status == status
        assert stream.response.headers["Content-Type"] == "application/problem+json"
        stream.close()
    for path in ("/live/stream", "/live/stream?topics=" + ",".join(["fleet"] * 51)):
        stream = Stream(console, path, **cookie(shared_cast.bob))
        assert stream.response.status == 400
        stream.close()


def test_stream_ends_when_the_reader_leaves_the_project(
    console: RunningConsole, shared_cast: Cast, model_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.live.asgi.RECHECK_SECONDS", 0.1)
    stream = Stream(console, f"/live/stream?topics={model_topic}", **cookie(shared_cast.vera))
    stream.next("fragment")
    Membership.objects.filter(user=shared_cast.vera).delete()
    assert [line for line in stream.lines() if line.startswith("event: ")] == []
    stream.close()


@pytest.fixture
def few_places(settings: Any) -> None:
    """Room for 8 streams, 2 of an account and 1 of a caller, in servers that start after this."""
    settings.STREAMS, settings.STREAMS_PER_CALLER = 8, 1


def test_streams_beyond_the_limit_are_told_when_to_come_back(
    few_places: None, console: RunningConsole, shared_cast: Cast
) -> None:
    """Pages and operations share one limit: of a key, of an account, of the process."""
    operation = operations.operation_create(
        kind="validate_version",
        queue="jobs",
        subject_type="modelversion",
        subject_id=shared_cast.version().pk,
        project=shared_cast.project,
        actor=shared_cast.actor("bob"),
    )
    events = f"/api/v1/operations/{operation.pk}/events"
    keys = [{"Authorization": f"Bearer {shared_cast.token('bob')}"} for _number in range(3)]
    first, second = Stream(console, events, **keys[0]), Stream(console, "/live/stream?topics=fleet", **keys[1])
    assert (first.response.status, second.response.status) == (200, 200)
    for path, headers in ((events, keys[1]), ("/live/stream?topics=fleet", keys[0]), (events, keys[2])):
        refused = Stream(console, path, **headers)
        assert (refused.response.status, refused.response.headers["Retry-After"]) == (429, "15")
        assert json.loads(refused.response.read())["code"] == "throttled"
    assert first.next("operation")["state"] == "pending"
    first.close()
    until(lambda: Stream(console, events, **keys[0]).response.status == 200)
    second.close()


def test_full_process_refuses_streams_and_serves_pages(
    few_places: None, console: RunningConsole, shared_cast: Cast
) -> None:
    readers = [User.objects.create_user(f"reader-{number}", password=None) for number in range(8)]
    streams = [Stream(console, "/live/stream?topics=fleet", **cookie(user)) for user in readers]
    assert {stream.response.status for stream in streams} == {200}
    refused = Stream(console, "/live/stream?topics=fleet", **cookie(shared_cast.bob))
    assert (refused.response.status, refused.response.headers["Retry-After"]) == (503, "15")
    with console.client(shared_cast.token("bob")) as client:
        assert client.get("/api/v1/me/").status_code == 200
    for stream in streams:
        stream.close()
    until(lambda: Stream(console, "/live/stream?topics=fleet", **cookie(shared_cast.bob)).response.status == 200)


def test_the_sdk_asks_again_while_there_is_no_room(
    few_places: None, console: RunningConsole, shared_cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.live.places.RETRY_SECONDS", 1)
    token = shared_cast.token("bob")
    first = Stream(console, "/live/stream?topics=fleet", Authorization=f"Bearer {token}")
    assert first.response.status == 200
    with Flotilla(console.url, token) as client:
        changes = client.changes("fleet", time.monotonic() + 60)
        assert [next(changes), next(changes)] == ["", ""]
        first.close()
        with ThreadPoolExecutor(1) as threads:
            noticed = threads.submit(lambda: next(block for block in changes if block))
            until(lambda: telemetry.publish("fleet") or noticed.done())
            assert json.loads(noticed.result())


@pytest.mark.parametrize("name", ["-" * 36, "0" * 36, "0" * 32 + "----"])
def test_what_is_no_operation_is_not_found(console: RunningConsole, name: str) -> None:
    with console.client() as client:
        assert client.get(f"/api/v1/operations/{name}/events").status_code in (401, 404)


def test_events_of_an_operation_arrive_until_it_ends(console: RunningConsole, shared_cast: Cast) -> None:
    version = shared_cast.version()
    operation = operations.operation_create(
        kind="validate_version",
        queue="jobs",
        subject_type="modelversion",
        subject_id=version.pk,
        project=shared_cast.project,
        actor=shared_cast.actor("bob"),
    )
    path = f"/api/v1/operations/{operation.pk}/events"
    stranger = Stream(console, path, Authorization=f"Bearer {shared_cast.token('charlie')}")
    assert stranger.response.status == 404
    stream = Stream(console, path, Authorization=f"Bearer {shared_cast.token('bob')}")
    assert stream.next("operation")["state"] == "pending"
    assert operations.operation_claim(operation.pk, "test") is not None
    assert stream.next("operation")["state"] == "running"
    operations.operation_succeed(operation.pk, "test", {"answer": 42})
    last = stream.next("operation")
    assert (last["state"], last["result"]) == ("succeeded", {"answer": 42})
    assert list(stream.lines()) == [""]


def test_blocking_an_account_ends_its_streams_at_once(
    console: RunningConsole, shared_cast: Cast, model_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.live.asgi.RECHECK_SECONDS", 3600.0)
    bob = Stream(console, f"/live/stream?topics={model_topic}", **cookie(shared_cast.bob))
    vera = Stream(console, f"/live/stream?topics={model_topic}", **cookie(shared_cast.vera))
    for stream in (bob, vera):
        assert stream.next("fragment")["html"]
    people.user_set_active(user=shared_cast.bob, is_active=False, actor=shared_cast.actor("alice"))
    assert list(bob.lines())[-1:] in ([], [""])
    telemetry.publish(model_topic)
    assert vera.next("fragment")["html"] == "<h1>viewer</h1>"
    for stream in (bob, vera):
        stream.close()
