"""From what happens to the receiver: signed, in turn, with nobody waiting for a dead one."""

from __future__ import annotations

import json
import threading
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from registry.domain import webhooks as domain
from registry.models import DeliveryState, Project, RegisteredModel, Webhook, WebhookDelivery
from registry.services import models
from registry.services.webhook_deliveries import Claimed, Outcome
from registry.services.webhooks import webhook_create, webhook_test
from tests.workers import factories
from tests.workers.webhooks.receiver import Receiver, receiving
from workers.tasks import definitions
from workers.tasks.hints import DELIVER_WEBHOOKS
from workers.webhooks import deliver_due
from workers.webhooks.delivering import attempt

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _own_networks(settings: Any) -> None:
    settings.WEBHOOK_ALLOWED_NETWORKS = ["127.0.0.0/8"]


@pytest.fixture
def project() -> Project:
    return factories.make_model().project


def hook_to(project: Project, port: int, name: str = "hook", **extra: Any) -> tuple[Webhook, str]:
    url = f"http://127.0.0.1:{port}/hook"
    return webhook_create(project=project, name=name, url=url, events=["model.create"], actor=factories.SYSTEM, **extra)


def happen(project: Project, *names: str) -> None:
    for name in names:
        owner = RegisteredModel.objects.filter(project=project).first()
        assert owner is not None
        models.model_create(project=project, slug=name, actor=factories.Actor.person(owner.owner))


def test_what_happened_arrives_signed(project: Project, hints: list[tuple[str, str]]) -> None:
    with receiving(Receiver()) as receiver:
        _hook, secret = hook_to(project, receiver.port)
        happen(project, "finch")
        assert DELIVER_WEBHOOKS in {task for task, _argument in hints}
        definitions.deliver_webhooks()
    [(headers, body)] = receiver.requests
    signature = domain.sign(secret, headers["webhook-id"], int(headers["webhook-timestamp"]), body)
    assert headers["webhook-signature"] == signature
    sent = json.loads(body)
    assert (sent["type"], sent["data"]["object"]["label"]) == ("model.create", "finch")
    delivery = WebhookDelivery.objects.get()
    assert delivery.state == DeliveryState.DELIVERED
    assert headers["webhook-id"] == domain.message_id(delivery.event_id)
    assert abs(int(headers["webhook-timestamp"]) - datetime.now().timestamp()) < 60


def test_slack_gets_a_message(project: Project, hints: list[tuple[str, str]]) -> None:
    with receiving(Receiver(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")) as receiver:
        hook_to(project, receiver.port, format="slack")
        happen(project, "finch")
        assert deliver_due() == 1
    [(_headers, body)] = receiver.requests
    assert json.loads(body).keys() == {"text"} and "finch" in json.loads(body)["text"]


def test_a_sweep_finds_what_lost_hints_left(project: Project, hints: list[tuple[str, str]]) -> None:
    hook_to(project, 1)
    definitions.sweep()
    hints.clear()
    definitions.sweep()
    assert DELIVER_WEBHOOKS not in {task for task, _argument in hints}
    happen(project, "finch")
    hints.clear()
    definitions.sweep()
    assert DELIVER_WEBHOOKS in {task for task, _argument in hints}


def test_a_dead_receiver_costs_one_attempt_and_holds_up_nobody(project: Project, hints: list[tuple[str, str]]) -> None:
    dead, living = hook_to(project, 1, "dead")[0], hook_to(project, 1, "living")[0]
    happen(project, "a", "b", "c")
    both = threading.Barrier(2, timeout=20)
    tried: list[tuple[str, str]] = []

    def tell(claimed: Claimed, now: datetime) -> Outcome:
        name = claimed.delivery.webhook.name
        if not any(seen == name for seen, _label in tried):
            both.wait()  # they are tried side by side
        tried.append((name, claimed.delivery.event.payload["data"]["object"]["label"]))
        return Outcome(None, 0.0, "refused") if name == "dead" else Outcome(200, 0.0)

    assert deliver_due(tell) == 4
    assert [label for name, label in tried if name == "living"] == ["a", "b", "c"]
    assert [label for name, label in tried if name == "dead"] == ["a"]
    assert set(living.deliveries.values_list("state", flat=True)) == {"delivered"}
    assert set(dead.deliveries.values_list("state", flat=True)) == {"pending"}
    assert deliver_due(tell) == 0  # it rests


def test_what_failed_arrives_later_with_the_same_id(project: Project, hints: list[tuple[str, str]]) -> None:
    refusing = Receiver(b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops")
    with receiving(refusing) as receiver:
        hook, _secret = hook_to(project, receiver.port)
        happen(project, "finch")
        assert deliver_due() == 1
        delivery = hook.deliveries.get()
        assert (delivery.state, delivery.last_status, delivery.log.get().answer) == ("pending", 500, "oops")
        receiver.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        past = timezone.now() - timedelta(seconds=1)
        WebhookDelivery.objects.update(due_at=past)
        Webhook.objects.update(resting_until=past)
        assert deliver_due() == 1
    ids = [headers["webhook-id"] for headers, _body in receiver.requests]
    assert len(ids) == 2 and len(set(ids)) == 1
    assert receiver.requests[0][1] == receiver.requests[1][1]
    delivery.refresh_from_db()
    assert (delivery.state, delivery.attempts) == ("delivered", 2)


def test_networks_that_are_no_longer_allowed_are_not_called(
    project: Project, hints: list[tuple[str, str]], settings: Any
) -> None:
    with receiving(Receiver()) as receiver:
        hook, _secret = hook_to(project, receiver.port)
        webhook_test(webhook=hook, actor=factories.SYSTEM)
        settings.WEBHOOK_ALLOWED_NETWORKS = []
        assert deliver_due(attempt) == 1
    assert receiver.requests == []
    assert hook.deliveries.get().last_status is None
