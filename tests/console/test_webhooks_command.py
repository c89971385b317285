"""``flotilla webhooks`` against the real server, with a receiver that listens."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from django.db import connections

from flotilla.cli import main
from registry.domain import webhooks as domain
from tests.console.conftest import Cast, RunningConsole
from tests.workers.webhooks.receiver import Receiver, receiving
from workers.tasks.hints import DELIVER_WEBHOOKS, HintSender
from workers.webhooks import deliver_due

Run = Callable[..., Any]


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[None]:
    """Delivers at once what a hint tells of."""
    settings.WEBHOOK_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    threads = []

    def deliver() -> None:
        deliver_due()
        connections.close_all()

    def send(self: HintSender, task: str, argument: object, queue: str) -> bool:
        if task == DELIVER_WEBHOOKS:
            threads.append(threading.Thread(target=deliver))
            threads[-1].start()
        return True

    monkeypatch.setattr(HintSender, "send", send)
    yield
    for thread in threads:
        thread.join(20)


@pytest.fixture
def run(shared_cast: Cast, console: RunningConsole) -> Run:
    environment = {
        "FLOTILLA_URL": console.url,
        "FLOTILLA_TOKEN": shared_cast.token("alice"),
        "FLOTILLA_PROJECT": "wren",
    }

    def call(*arguments: str, given: str = "", status: int = 0) -> Any:
        result = CliRunner().invoke(main, ["webhooks", *arguments], input=given, env=environment)
        assert result.exit_code == status, result.output
        return json.loads(result.output) if "--json" in arguments and not status else result.output

    return call


@pytest.mark.usefixtures("worker")
def test_make_test_look_replay_and_delete(run: Run) -> None:
    with receiving(Receiver()) as receiver:
        made = run(
            "create",
            "chat",
            "--url-file",
            "-",
            "-e",
            "version.*",
            "--json",
            given=f"http://127.0.0.1:{receiver.port}/\n",
        )
        assert "It arrived." in run("test", "chat")
        [delivery] = run("deliveries", "chat", "--state", "delivered", "--json")
        again = run("replay", "chat", delivery["id"], "--json")
        assert again["message_id"] == delivery["message_id"]
        changed = run("change", "chat", "--name", "talk", "-e", "model.*", "--off", "--json")
        assert (changed["name"], changed["events"], changed["is_enabled"]) == ("talk", ["model.*"], False)
        assert changed["format"] == "standard"
        assert run("change", "talk", "--name", "chat", "--on") == "chat is changed; it is active.\n"
        assert "Say what to change" in run("change", "chat", status=2)
        receiver.answer = b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"
        assert "It answered 503." in run("test", "chat", status=1)
    for headers, body in receiver.requests:
        signed = domain.sign(made["secret"], headers["webhook-id"], int(headers["webhook-timestamp"]), body)
        assert headers["webhook-signature"] == signed
    renewed = run("rotate-secret", "chat", "--json")
    assert renewed["secret"] not in ("", made["secret"]) and renewed["previous_secret_until"]
    assert "failing" in run("list") and made["secret"] not in run("list")
    assert "version.nothing" in run(
        "create", "x", "--url-file", "-", "-e", "version.nothing", given="https://example.com/", status=1
    )
    assert "no webhook y" in run("test", "y", status=1)
    assert "deleted" in run("delete", "chat")
    assert run("list", "--json") == []
