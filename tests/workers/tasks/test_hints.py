from __future__ import annotations

import json
import logging
import socket
import time
import uuid
from collections.abc import Iterator

import pytest
import redis
from celery import current_app
from django.conf import settings

from registry import signals
from tests.ports import held_port
from workers.tasks import hints
from workers.tasks.hints import HintSender


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def broker_url() -> Iterator[list[str]]:
    """Give a list whose last entry is used as the broker's address."""
    before = current_app.conf.broker_url
    urls: list[str] = []

    def use(url: str) -> None:
        current_app.conf.broker_url = current_app.conf.broker_write_url = url

    class Urls(list[str]):
        def append(self, url: str) -> None:
            use(url)

    yield Urls(urls)
    use(before)


@pytest.fixture
def queue() -> Iterator[str]:
    name = f"test-{uuid.uuid4().hex}"
    yield name
    redis.Redis.from_url(settings.REDIS_URL).delete(name)


def test_a_hint_is_an_id_on_a_queue(queue: str) -> None:
    wanted = uuid.uuid4()
    assert HintSender().send(hints.RECONCILE_NODE, wanted, queue)
    raw = redis.Redis.from_url(settings.REDIS_URL).lpop(queue)
    assert isinstance(raw, bytes)
    message = json.loads(raw)
    assert message["headers"]["task"] == "workers.reconcile_node"
    assert str(wanted) in message["headers"]["argsrepr"]


def test_a_dead_broker_is_said_once_and_not_asked_again_at_once(
    broker_url: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    sender = HintSender(clock)
    broker_url.append(f"redis://127.0.0.1:{held_port()}/0")
    caplog.set_level(logging.INFO)
    for _ in range(50):
        assert not sender.send(hints.RECONCILE_NODE, uuid.uuid4(), "q")
    clock.now += hints.PAUSE_SECONDS
    assert not sender.send(hints.RECONCILE_NODE, uuid.uuid4(), "q")
    assert [record.message.split()[0] for record in caplog.records] == ["hints.broker_gone"]


def test_a_broker_that_hangs_blocks_a_caller_for_seconds_only(broker_url: list[str]) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        broker_url.append(f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        started = time.monotonic()
        assert not HintSender().send(hints.RECONCILE_NODE, uuid.uuid4(), "q")
        # Not a measurement: without the deadlines this never returns.
        assert time.monotonic() - started < 30


def test_it_sends_again_when_the_broker_is_back(broker_url: list[str], queue: str) -> None:
    clock = Clock()
    sender = HintSender(clock)
    broker_url.append(f"redis://127.0.0.1:{held_port()}/0")
    assert not sender.send(hints.RECONCILE_NODE, uuid.uuid4(), queue)
    broker_url.append(settings.REDIS_URL)
    assert not sender.send(hints.RECONCILE_NODE, uuid.uuid4(), queue)
    clock.now += hints.PAUSE_SECONDS
    assert sender.send(hints.RECONCILE_NODE, uuid.uuid4(), queue)


def test_every_signal_of_the_domain_becomes_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, str]] = []

    def send(self: HintSender, task: str, argument: uuid.UUID, queue: str) -> bool:
        sent.append((task, queue))
        return True

    monkeypatch.setattr(HintSender, "send", send)
    some = uuid.uuid4()
    signals.operation_ready.send(sender=None, operation_id=some, queue="jobs")
    signals.node_desired_changed.send(sender=None, node_id=some)
    signals.deployment_touched.send(sender=None, deployment_id=some)
    assert sent == [
        ("workers.run_operation", "jobs"),
        ("workers.reconcile_node", "control"),
        ("workers.reconcile_deployment", "control"),
    ]


def test_every_hint_and_every_beat_entry_names_a_task() -> None:
    import workers.tasks.definitions  # noqa: F401  # defines them
    from workers.schedule import BEAT

    names = {hints.RUN_OPERATION, hints.RECONCILE_NODE, hints.RECONCILE_DEPLOYMENT}
    assert names | {entry["task"] for entry in BEAT.values()} <= set(current_app.tasks)
