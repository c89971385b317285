"""Webhooks through the API: who manages them, what is shown, what is refused, what is sent and sent again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from registry.models import AuditEvent, Webhook, WebhookDelivery
from registry.services.webhook_deliveries import Outcome, delivery_claim, delivery_finish
from tests.console.conftest import Cast

BASE = "/api/v1/webhooks/"
BODY = {"project": "wren", "name": "chat", "url": "https://hooks.example.com/T0/secret-path", "events": ["version.*"]}


@pytest.fixture
def hook(cast: Cast, api: Callable[..., Any]) -> dict[str, Any]:
    made = api("alice").post(BASE, BODY)
    assert made.status_code == 201, made.json()
    return dict(made.json())


def test_only_administrators_manage_them(cast: Cast, api: Callable[..., Any], hook: dict[str, Any]) -> None:
    for name in ("bob", "vera"):
        assert api(name).get(BASE).json()["results"] == []
        assert api(name).get(f"{BASE}{hook['id']}/").status_code == 404
        assert api(name).post(BASE, {**BODY, "name": "own"}).status_code == 403
    assert api("charlie").post(BASE, {**BODY, "name": "own"}).status_code == 404
    assert api("bob").post(BASE, {"name": "site", "url": BODY["url"], "events": ["*"]}).status_code == 403
    assert api("alice", "write").post(BASE, {**BODY, "name": "own"}).status_code == 403
    assert [row["name"] for row in api("alice").get(BASE).json()["results"]] == ["chat"]


def test_secrets_are_shown_once_and_kept_sealed(cast: Cast, api: Callable[..., Any], hook: dict[str, Any]) -> None:
    alice = api("alice")
    assert hook["secret"].startswith("whsec_")
    again = alice.get(f"{BASE}{hook['id']}/")
    assert "secret" not in again.json() and again.json()["origin"] == "https://hooks.example.com"
    renewed = alice.post(f"{BASE}{hook['id']}/rotate-secret").json()
    assert renewed["secret"] != hook["secret"] and renewed["previous_secret_until"]
    kept = str(list(Webhook.objects.values())) + str(list(AuditEvent.objects.values()))
    for secret in ("secret-path", hook["secret"], renewed["secret"]):
        assert secret not in kept and secret not in again.content.decode()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"url": "http://hooks.example.com/"}, "url"),
        ({"url": "https://127.0.0.1/x"}, "url"),
        ({"url": "https://[::ffff:10.0.0.1]/x"}, "url"),
        ({"url": "https://user:word@example.com/"}, "url"),
        ({"url": "gopher://example.com/"}, "url"),
        ({"url": "https://exa mple.com/"}, "url"),
        ({"url": "https://example.com:99999/"}, "url"),
        ({"events": []}, "events"),
        ({"events": ["version.nothing"]}, "events"),
        ({"events": ["node.join"]}, "events"),
        ({"name": " "}, "name"),
        ({"format": "pigeon"}, "format"),
    ],
)
def test_what_cannot_work_is_refused_at_its_field(
    change: dict[str, Any], field: str, cast: Cast, api: Callable[..., Any]
) -> None:
    answer = api("alice").post(BASE, {**BODY, **change})
    assert answer.status_code == 400, answer.content
    assert {problem["field"].partition(".")[0] for problem in answer.json()["errors"]} == {field}
    assert not Webhook.objects.exists()


def test_a_name_is_taken_once(cast: Cast, api: Callable[..., Any], hook: dict[str, Any]) -> None:
    alice = api("alice")
    assert alice.post(BASE, BODY).status_code == 409
    site = {"name": "chat", "url": BODY["url"], "events": ["*"]}
    assert alice.post(BASE, site).status_code == 201
    assert alice.post(BASE, site).status_code == 409


def test_two_who_change_it_do_not_overwrite_each_other(
    cast: Cast, api: Callable[..., Any], hook: dict[str, Any]
) -> None:
    alice, address = api("alice"), f"{BASE}{hook['id']}/"
    tag = alice.get(address)["ETag"]
    assert alice.patch(address, {"name": "other"}, HTTP_IF_MATCH=tag).json()["name"] == "other"
    assert alice.patch(address, {"name": "third"}, HTTP_IF_MATCH=tag).status_code == 412
    assert alice.delete(address, HTTP_IF_MATCH=tag).status_code == 412
    assert alice.delete(address, HTTP_IF_MATCH="*").status_code == 204
    assert alice.get(address).status_code == 404


def test_a_test_is_delivered_logged_and_replayed(cast: Cast, api: Callable[..., Any], hook: dict[str, Any]) -> None:
    alice = api("alice")
    deliveries = f"{BASE}{hook['id']}/deliveries/"
    made = alice.post(f"{BASE}{hook['id']}/test", HTTP_IDEMPOTENCY_KEY=f"test-{hook['id']}").json()
    again = alice.post(f"{BASE}{hook['id']}/test", HTTP_IDEMPOTENCY_KEY=f"test-{hook['id']}").json()
    assert made == again and WebhookDelivery.objects.count() == 1
    assert alice.post(f"{deliveries}{made['id']}/replay").status_code == 409  # it waits still

    claimed = delivery_claim(Webhook.objects.get().pk, "worker", timezone.now())
    assert claimed is not None and claimed.url == BODY["url"]
    delivery_finish(claimed, Outcome(204, 0.1, answer="thanks"), now=timezone.now())
    read = alice.get(f"{deliveries}{made['id']}/").json()
    assert (read["state"], read["attempts"], read["payload"]["type"]) == ("delivered", 1, "webhook.test")
    assert [(one["status"], one["answer"]) for one in read["log"]] == [(204, "thanks")]

    replayed = alice.post(f"{deliveries}{made['id']}/replay")
    assert replayed.status_code == 201
    assert (replayed.json()["replay_of"], replayed.json()["message_id"]) == (made["id"], made["message_id"])
    states = [row["state"] for row in alice.get(deliveries).json()["results"]]
    assert states == ["pending", "delivered"]
    assert len(alice.get(f"{deliveries}?state=pending").json()["results"]) == 1
    assert api("bob").get(deliveries).status_code == 404
    assert api("bob").post(f"{deliveries}{made['id']}/replay").status_code == 404
