"""A write with a key happens once: beside itself, after a death in the middle, after an error; with real PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from django.db import connection, transaction
from django.utils import timezone

from registry.models import IdempotentAnswer, ModelVersion, RegisteredModel
from registry.services import idempotency, versions
from tests.console.conftest import Cast, ConsoleProcess, RunningConsole, in_threads

VERSIONS = "/api/v1/projects/wren/models/finch/versions/"
KEY = {"Idempotency-Key": "one-push"}
BODY = {"source": {"git_sha": "abcd"}}


def wait_for_a_waiter(lock_type: str) -> None:
    """Return when some connection waits for a lock of that type."""
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = %s"
    pause, deadline = threading.Event(), timezone.now() + timedelta(seconds=20)
    while timezone.now() < deadline:
        with connection.cursor() as cursor:
            cursor.execute(waiting, [lock_type])
            if cursor.fetchone()[0]:
                return
        pause.wait(0.02)
    raise AssertionError("Nobody waits.")


@pytest.mark.django_db(transaction=True)
def test_the_same_write_at_once_happens_once_and_all_get_its_answer(shared_cast: Cast, console: RunningConsole) -> None:
    shared_cast.version("finch")
    token = shared_cast.token("bob")

    def push(index: int) -> httpx2.Response:
        with console.client(token, **KEY) as client:
            return client.post(VERSIONS, json=BODY)

    answers = in_threads(6, push)
    assert [answer.status_code for answer in answers] == [201] * 6
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert [answer.headers.get("Idempotent-Replay", "") for answer in answers].count("true") == 5
    assert ModelVersion.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_another_write_with_the_same_key_at_once_is_refused(shared_cast: Cast, console: RunningConsole) -> None:
    shared_cast.version("finch")
    token = shared_cast.token("bob")

    def push(index: int) -> httpx2.Response:
        with console.client(token, **KEY) as client:
            return client.post(VERSIONS, json={"source": {"git_sha": f"abc{index}"}})

    answers = in_threads(4, push)
    assert sorted(answer.status_code for answer in answers) == [201, 422, 422, 422]
    assert {answer.json()["code"] for answer in answers if answer.status_code == 422} == {"idempotency_key_reused"}
    assert ModelVersion.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_the_second_goes_on_where_the_first_was_killed_in_the_middle(
    shared_cast: Cast, console_process: ConsoleProcess, console: RunningConsole
) -> None:
    model = shared_cast.version("finch").model
    token, seen = shared_cast.token("bob"), []

    def push() -> None:
        with console_process.client(token, **KEY) as client:
            try:
                seen.append(client.post(VERSIONS, json=BODY).status_code)
            except httpx2.TransportError:
                seen.append(0)

    first = threading.Thread(target=push)
    with transaction.atomic():
        RegisteredModel.objects.select_for_update().get(pk=model.pk)  # what a new version waits for
        first.start()
        wait_for_a_waiter("transactionid")
        console_process.kill()
    first.join(30)
    assert seen == [0]
    with console.client(token, **KEY) as client:
        second = client.post(VERSIONS, json=BODY)
        third = client.post(VERSIONS, json=BODY)
    assert (second.status_code, "Idempotent-Replay" in second.headers) == (201, False), second.content
    assert third.json() == second.json()
    assert ModelVersion.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_who_waits_too_long_is_told_to_come_back(
    shared_cast: Cast, console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "WAIT_SECONDS", 1)
    model = shared_cast.version("finch").model
    token, answers = shared_cast.token("bob"), []

    def push() -> None:
        with console.client(token, **KEY) as client:
            answers.append(client.post(VERSIONS, json=BODY))

    first = threading.Thread(target=push)
    with transaction.atomic():
        RegisteredModel.objects.select_for_update().get(pk=model.pk)
        first.start()
        wait_for_a_waiter("transactionid")
        push()
    first.join(30)
    late, done = answers
    assert (late.status_code, late.json()["code"]) == (409, "idempotency_key_in_use")
    assert done.status_code == 201


def test_what_failed_is_undone_and_may_be_tried_again(
    cast: Cast, api: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cast.version("finch")
    bob, real = api("bob"), versions.version_create

    def break_after(**given: Any) -> Any:
        real(**given)
        raise RuntimeError("in the middle")

    with monkeypatch.context() as patched:
        patched.setattr(versions, "version_create", break_after)
        assert bob.post(VERSIONS, BODY, headers=KEY).status_code == 500
    assert ModelVersion.objects.count() == 1
    assert bob.post(VERSIONS, BODY, headers=KEY).status_code == 201
    assert bob.post(VERSIONS, BODY, headers=KEY).headers["Idempotent-Replay"] == "true"
    assert ModelVersion.objects.count() == 2


def test_answers_are_kept_for_a_day_and_those_with_secrets_never(cast: Cast, api: Callable[..., Any]) -> None:
    alice = api("alice")
    made = alice.post("/api/v1/api-keys/", {"name": "new", "scopes": ["read"]}, headers=KEY)
    assert made.status_code == 201
    assert IdempotentAnswer.objects.count() == 0
    assert alice.post("/api/v1/projects/", {"slug": "new", "name": "New"}, headers=KEY).status_code == 201
    kept = IdempotentAnswer.objects.get()
    assert kept.document["slug"] == "new"
    assert idempotency.answers_purge(timezone.now() + timedelta(hours=23)) == 0
    assert idempotency.answers_purge(timezone.now() + timedelta(hours=25)) == 1
    again = alice.post("/api/v1/projects/", {"slug": "new", "name": "New"}, headers=KEY)
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
