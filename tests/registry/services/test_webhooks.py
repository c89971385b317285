"""Events from what happens, claims as leases, retries, what ends a webhook, and what is kept."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from registry.domain import webhooks as domain
from registry.errors import Conflict, PermissionDenied, QuotaExceeded
from registry.models import (
    AuditEvent,
    DeliveryState,
    Project,
    Transition,
    Webhook,
    WebhookAttempt,
    WebhookDelivery,
    WebhookEvent,
)
from registry.services import approvals, fleet, models, versions, webhooks
from registry.services.webhook_deliveries import (
    KEEP_DELIVERIES,
    LEASE,
    Outcome,
    deliveries_purge,
    delivery_claim,
    delivery_finish,
    webhooks_due,
)
from registry.services.webhook_events import page_path
from tests.registry.services.test_concurrency import at_once

OK, DOWN = Outcome(200, 0.01), Outcome(None, 0.01, error="It cannot be reached: refused")


def make(world: Any, *events: str, project: Project | None = None, **extra: Any) -> Webhook:
    return webhooks.webhook_create(
        project=project or world.project,
        name=extra.pop("name", "hook"),
        url="https://example.com/hook",
        events=events or ["*"],
        actor=world.actor(world.alice),
        **extra,
    )[0]


def sent(hook: Webhook) -> list[str]:
    return list(hook.deliveries.order_by("created_at", "id").values_list("event__type", flat=True))


def at(delivery: WebhookDelivery) -> datetime:
    delivery.refresh_from_db()
    hook = Webhook.objects.get(pk=delivery.webhook_id)
    return max(delivery.due_at, hook.resting_until)


def attempt(hook: Webhook, outcome: Outcome, now: datetime) -> WebhookDelivery:
    claimed = delivery_claim(hook.pk, "worker", now)
    assert claimed is not None
    assert delivery_finish(claimed, outcome, now=now)
    claimed.delivery.refresh_from_db()
    return claimed.delivery


def test_what_happens_in_a_project_is_told_to_those_who_want_it(world: Any) -> None:
    everything = make(world)
    ready = make(world, "version.ready", "rollout.*", name="ready")
    off = make(world, name="off")
    webhooks.webhook_update(webhook=off, is_enabled=False, actor=world.actor(world.alice))
    model = world.model("mlp")
    world.ready(model)
    node = world.node()
    deployment = world.deploy(model, world.development, world.spec({"version": 1, "weight": 100})).deployment
    world.settle(deployment, node)
    assert sent(ready) == ["version.ready", "rollout.succeeded"]
    assert sent(off) == []
    seen = sent(everything)
    for name in ("model.create", "version.ready", "deployment.create", "deployment.deploy", "rollout.succeeded"):
        assert name in seen
    event = WebhookEvent.objects.get(type="version.ready")
    assert event.payload["data"]["object"]["label"] == "mlp v1"
    assert event.payload["data"]["project"] == "team"


def test_projects_and_site_hear_only_of_their_own(world: Any) -> None:
    own = make(world)
    site = webhooks.webhook_create(
        project=None, name="site", url="https://example.com/", events=["*"], actor=world.actor(world.alice)
    )[0]
    world.model("theirs", project=world.other)
    world.node("n1")
    assert sent(own) == []
    assert sent(site) == ["node.join"]


def test_what_is_rolled_back_is_told_to_nobody(world: Any) -> None:
    hook = make(world)
    with transaction.atomic():
        world.model("mlp")
        transaction.set_rollback(True)
    assert sent(hook) == [] and not WebhookEvent.objects.exists()


def test_an_approval_is_told_with_its_page(world: Any) -> None:
    hook = make(world, "approval.*")
    model = world.model("mlp")
    world.ready(model)
    approval = world.deploy(model, world.production, world.spec({"version": 1, "weight": 100})).approval
    approvals.approval_review(
        approval=approval, decision="approve", plan_digest=approval.plan_digest, actor=world.actor(world.bob)
    )
    assert sent(hook) == ["approval.request", "approval.approve"]
    payload = WebhookEvent.objects.get(type="approval.request").payload
    assert payload["data"]["object"]["url"].endswith(f"/approvals/{approval.pk}/")


def test_pages_of_events_are_pages_of_the_console(world: Any) -> None:
    from django.urls import resolve

    model = world.model("mlp")
    version = world.ready(model)
    node = world.node()
    config = model.configs.get()
    outcome = world.deploy(model, world.development, world.spec({"version": 1, "weight": 100}))
    asked = world.deploy(model, world.production, world.spec({"version": 1, "weight": 100}))
    rollout = outcome.deployment.rollouts.get()
    rows = {
        "model": model, "version-by-id": version, "node": node, "config": config, "approval": asked.approval,
        "webhook": make(world)
    }  # fmt: skip
    found = {name: resolve(page_path("team", row)).url_name for name, row in rows.items()}
    assert found == {name: name for name in rows}
    assert {resolve(page_path("team", row)).url_name for row in (outcome.deployment, rollout)} == {"deployment"}
    assert page_path("team", world.project) == ""


def test_each_published_event_is_one_that_the_services_record(world: Any) -> None:
    """The catalogue names nothing that never happens."""
    import re
    from pathlib import Path

    text = "".join(path.read_text() for path in (Path(__file__).parents[3] / "registry/services").glob("*.py"))
    recorded = set(re.findall(r'action ?= ?"([a-z_.]+)"', text))
    recorded |= {f"deployment.{kind}" for kind in re.findall(r'kind="([a-z]+)"', text)}
    recorded |= {f"approval.{decision}" for decision in ("approve", "reject", "request_changes", "comment")}
    recorded |= {f"user.second_factor_{change}" for change in ("added", "removed")}
    recorded |= {f"version.{to}" for to in ("archived", "quarantined")}
    recorded |= {f"model.{to}" for to in ("archived", "active")}
    recorded |= set(re.findall(r'"((?:project_)?token\.expires_soon)"', text))
    recorded |= {f"rollout.{to}" for to in ("succeeded", "failed", "rolled_back")}
    recorded |= set(re.findall(r'_steer\(.*"(rollout\.[a-z]+)"', text))
    recorded |= {f"project.{field}" for field in re.findall(r'_set\(project, "([a-z_]+)"', text)}
    assert (domain.PROJECT_EVENTS.keys() | domain.SITE_EVENTS.keys()) - recorded == set()


def test_a_delivery_ends_once(world: Any) -> None:
    hook = make(world)
    world.model("mlp")
    delivery = attempt(hook, OK, timezone.now())
    assert (delivery.state, delivery.attempts, delivery.last_status) == (DeliveryState.DELIVERED, 1, 200)
    assert delivery_claim(hook.pk, "worker", timezone.now() + timedelta(days=9)) is None
    moves = Transition.objects.filter(object_type="webhookdelivery").values_list("from_state", "to_state")
    assert list(moves) == [("pending", "delivered")]


def test_it_is_tried_again_with_growing_pauses_and_then_fails(world: Any) -> None:
    hook = make(world, "model.create")
    world.model("mlp")
    now = timezone.now()
    pauses = []
    for _attempt in range(domain.MAX_ATTEMPTS - 1):
        delivery = attempt(hook, DOWN, now)
        assert delivery.state == DeliveryState.PENDING
        assert delivery_claim(hook.pk, "worker", now) is None
        pauses.append(delivery.due_at - now)
        now = at(delivery)
        Webhook.objects.filter(pk=hook.pk).update(failing_since=now)  # less than five days
    assert pauses == sorted(pauses)
    delivery = attempt(hook, DOWN, now)
    assert (delivery.state, delivery.attempts) == (DeliveryState.FAILED, domain.MAX_ATTEMPTS)
    assert delivery.log.count() == domain.MAX_ATTEMPTS
    assert delivery.last_error == DOWN.error


def test_a_receiver_that_fails_rests_and_a_success_ends_the_rest(world: Any) -> None:
    hook = make(world, "model.create")
    for name in ("a", "b", "c"):
        world.model(name)
    now = timezone.now()
    attempt(hook, DOWN, now)
    assert delivery_claim(hook.pk, "worker", now) is None
    assert webhooks_due(now) == []
    hook.refresh_from_db()
    later = hook.resting_until
    attempt(hook, OK, later)
    hook.refresh_from_db()
    assert (hook.failures, hook.failing_since) == (0, None)
    assert attempt(hook, OK, later).state == DeliveryState.DELIVERED


def test_a_worker_that_died_leaves_it_to_the_next(world: Any) -> None:
    hook = make(world)
    world.model("mlp")
    now = timezone.now()
    first = delivery_claim(hook.pk, "first", now)
    assert first is not None
    assert delivery_claim(hook.pk, "second", now + LEASE / 2) is None
    second = delivery_claim(hook.pk, "second", now + LEASE)
    assert second is not None and second.body == first.body
    # The first one was only slow: what it says is noted, and decides nothing.
    assert not delivery_finish(first, DOWN, now=now + LEASE)
    assert delivery_finish(second, OK, now=now + LEASE)
    delivery = hook.deliveries.get()
    assert (delivery.state, delivery.attempts, delivery.log.count()) == (DeliveryState.DELIVERED, 2, 2)


def test_a_receiver_that_is_gone_is_switched_off(world: Any) -> None:
    hook = make(world)
    world.model("a")
    world.model("b")
    assert attempt(hook, Outcome(410, 0.01, error="It answered 410."), timezone.now()).state == DeliveryState.FAILED
    hook.refresh_from_db()
    assert not hook.is_enabled and "410" in hook.disabled_reason
    assert set(hook.deliveries.values_list("state", flat=True)) == {"failed", "cancelled"}
    assert AuditEvent.objects.filter(action="webhook.disable", actor_name="webhooks").count() == 1


def test_five_days_of_failures_switch_it_off(world: Any) -> None:
    hook = make(world)
    world.model("a")
    now = timezone.now()
    delivery = attempt(hook, DOWN, now)
    attempt(hook, DOWN, max(at(delivery), now + domain.DISABLE_AFTER))
    hook.refresh_from_db()
    assert not hook.is_enabled and "5" in hook.disabled_reason
    webhooks.webhook_update(webhook=hook, is_enabled=True, actor=world.actor(world.alice))
    hook.refresh_from_db()
    assert (hook.is_enabled, hook.disabled_reason, hook.failing_since) == (True, "", None)


def test_a_test_reaches_one_that_is_off(world: Any) -> None:
    hook = make(world)
    actor = world.actor(world.alice)
    hook = webhooks.webhook_update(webhook=hook, is_enabled=False, actor=actor)
    other = make(world, name="other")
    delivery = webhooks.webhook_test(webhook=hook, actor=actor)
    assert sent(other) == []
    assert attempt(hook, OK, timezone.now()).pk == delivery.pk
    with pytest.raises(Conflict):
        webhooks.delivery_replay(delivery=delivery, actor=actor)


def test_both_secrets_sign_for_a_day(world: Any) -> None:
    actor = world.actor(world.alice)
    hook, first = webhooks.webhook_create(
        project=world.project, name="hook", url="https://example.com/", events=["*"], actor=actor
    )
    second = webhooks.webhook_rotate_secret(webhook=hook, actor=actor)
    world.model("a")
    now = timezone.now()
    claimed = delivery_claim(hook.pk, "worker", now)
    assert claimed is not None and claimed.secrets == (second, first)
    assert first not in repr(claimed) and second not in repr(claimed)
    later = delivery_claim(hook.pk, "worker", now + timedelta(days=2))
    assert later is not None and later.secrets == (second,)


def test_an_address_that_cannot_be_unsealed_fails_at_once(world: Any, settings: Any) -> None:
    hook = make(world)
    world.model("a")
    settings.SECRET_KEY = "another"
    assert delivery_claim(hook.pk, "worker", timezone.now()) is None
    delivery = hook.deliveries.get()
    assert (delivery.state, delivery.attempts) == (DeliveryState.FAILED, 1)
    assert "secret key" in delivery.last_error


def test_there_is_an_end_to_webhooks_and_to_what_one_asks(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "MAX_WEBHOOKS", 2)
    monkeypatch.setattr(webhooks, "MAX_ASKED", 2)
    hook = make(world)
    make(world, name="second")
    with pytest.raises(QuotaExceeded):
        make(world, name="third")
    actor = world.actor(world.alice)
    webhooks.webhook_test(webhook=hook, actor=actor)
    webhooks.webhook_test(webhook=hook, actor=actor)
    with pytest.raises(QuotaExceeded):
        webhooks.webhook_test(webhook=hook, actor=actor)


def test_only_administrators_manage_them(world: Any) -> None:
    hook = make(world)
    for user in (world.bob, world.carol, world.dan, world.eve):
        actor = world.actor(user)
        for call in (
            lambda actor=actor: webhooks.webhook_update(webhook=hook, name="x", actor=actor),
            lambda actor=actor: webhooks.webhook_rotate_secret(webhook=hook, actor=actor),
            lambda actor=actor: webhooks.webhook_test(webhook=hook, actor=actor),
            lambda actor=actor: webhooks.webhook_delete(webhook=hook, actor=actor),
        ):
            with pytest.raises(PermissionDenied):
                call()


def test_old_deliveries_and_their_events_go(world: Any) -> None:
    hook = make(world)
    world.model("a")
    world.model("b")
    now = timezone.now()
    attempt(hook, OK, now)
    assert deliveries_purge(now) == 0
    WebhookEvent.objects.update(created_at=now - 2 * KEEP_DELIVERIES)
    assert deliveries_purge(now + KEEP_DELIVERIES + timedelta(seconds=1)) == 1
    assert (WebhookDelivery.objects.count(), WebhookEvent.objects.count(), WebhookAttempt.objects.count()) == (1, 1, 0)


def test_a_deleted_webhook_takes_its_deliveries_along(world: Any) -> None:
    hook = make(world)
    world.model("a")
    claimed = delivery_claim(hook.pk, "worker", timezone.now())
    assert claimed is not None
    webhooks.webhook_delete(webhook=hook, actor=world.actor(world.alice))
    assert not WebhookDelivery.objects.exists()
    assert not delivery_finish(claimed, OK, now=timezone.now())


@pytest.mark.django_db(transaction=True)
def test_of_two_claimers_one_gets_it(transactional_db: None, world: Any) -> None:
    hook = make(world)
    world.model("a")
    now = timezone.now()
    found = at_once(*(lambda name=name: delivery_claim(hook.pk, name, now) for name in ("one", "two", "three")))
    assert sum(claimed is not None for claimed in found) == 1


@pytest.mark.django_db(transaction=True)
def test_of_two_equal_replays_one_is_made(transactional_db: None, world: Any) -> None:
    hook = make(world)
    world.model("a")
    delivery = attempt(hook, OK, timezone.now())
    actor = world.actor(world.alice)

    def replay() -> WebhookDelivery:
        fresh = WebhookDelivery.objects.select_related("webhook__project").get(pk=delivery.pk)
        return webhooks.delivery_replay(delivery=fresh, actor=actor)

    results = at_once(replay, replay)
    assert sorted(type(result).__name__ for result in results) == ["Conflict", "WebhookDelivery"]
    assert hook.deliveries.count() == 2


def test_events_in_the_middle_of_a_review_stay_in_order(world: Any) -> None:
    hook = make(world)
    model = models.model_create(project=world.project, slug="a", actor=world.actor(world.carol))
    version = versions.version_create(model=model, actor=world.actor(world.carol))
    versions.version_abandon(version=version, reason="no", actor=world.actor(world.carol))
    fleet.fleet_create(
        slug="x", name="X", environment=world.development.environment, selector={}, actor=world.actor(world.alice)
    )
    now = timezone.now()
    tried = [attempt(hook, OK, now).event.type for _one in range(hook.deliveries.count())]
    assert tried == ["model.create", "version.abandon"]
