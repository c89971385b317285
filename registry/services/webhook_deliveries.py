"""Deliveries as the workers see them: what is due, who tries it, how it ended.

A claim is a lease: it moves ``due_at`` on, so that a worker that dies leaves a delivery that is due again later. An
event may therefore arrive twice, with the same ``webhook-id``; it is never lost.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from registry import telemetry
from registry.domain import webhooks as domain
from registry.domain.actors import Actor
from registry.domain.storable import storable_text
from registry.errors import StorageFailed
from registry.models import DeliveryState, Transition, Webhook, WebhookAttempt, WebhookDelivery, WebhookEvent
from registry.services import audit
from registry.services.sealing import unseal

# Longer than any attempt may take (workers.webhooks.sending).
LEASE = timedelta(seconds=60)
KEEP_DELIVERIES = timedelta(days=30)
_KEEP_ANSWER = 1024
_GONE = 410
_SYSTEM = Actor.system("webhooks")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one attempt ended. ``status`` None: no answer came. ``error`` says what went wrong, else it is empty."""

    status: int | None
    seconds: float
    error: str = ""
    answer: str = ""
    retry_after: timedelta | None = None

    @property
    def is_success(self) -> bool:
        """Whether the receiver has taken the event."""
        return self.status is not None and domain.is_success(self.status)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A delivery that ``owner`` may try now, with all that is sent. ``secrets`` are never printed."""

    delivery: WebhookDelivery
    owner: str
    url: str
    body: bytes
    secrets: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Claimed({self.delivery.pk}, {self.owner})"


def webhooks_due(now: datetime) -> list[uuid.UUID]:
    """Return webhooks with a delivery that somebody may try now, those that wait longest first."""
    rows = WebhookDelivery.objects.filter(_due(now)).order_by("due_at").values_list("webhook_id", flat=True)
    return list(dict.fromkeys(rows[:1000]))


def delivery_claim(webhook_id: uuid.UUID, owner: str, now: datetime) -> Claimed | None:
    """Take the delivery of a webhook that has waited longest; None when there is none that is due.

    Of two claimers exactly one gets it. One whose address cannot be unsealed any more fails here.
    """
    due = WebhookDelivery.objects.filter(_due(now), webhook_id=webhook_id)
    while True:
        delivery = due.select_related("webhook", "event").order_by("due_at", "id").first()
        if delivery is None:
            return None
        # The attempts column makes a second look at the same facts miss.
        taken = WebhookDelivery.objects.filter(
            pk=delivery.pk, state=DeliveryState.PENDING, attempts=delivery.attempts, due_at=delivery.due_at
        ).update(attempts=F("attempts") + 1, due_at=now + LEASE, lease_owner=owner)
        if not taken:
            continue
        delivery.attempts += 1
        hook = delivery.webhook
        sealed = [hook.secret_sealed]
        if hook.previous_secret_until is not None and hook.previous_secret_until > now:
            sealed.append(hook.previous_secret_sealed)
        try:
            url, secrets = unseal(hook.url_sealed), tuple(unseal(one) for one in sealed)
        except StorageFailed as error:
            outcome = Outcome(None, 0.0, error=str(error))
            delivery_finish(Claimed(delivery, owner, "", b"", ()), outcome, now=now, is_last=True)
            continue
        body = domain.body_bytes(delivery.event.payload, slack=hook.format == "slack")
        return Claimed(delivery, owner, url, body, secrets)


def delivery_finish(claimed: Claimed, outcome: Outcome, *, now: datetime, is_last: bool = False) -> bool:
    """Note how an attempt ended; False: the lease was lost meanwhile, and only the attempt is noted.

    A failed one is tried again later, or has failed for good after the last pause (or with ``is_last``). A receiver
    that answers 410, or that has failed for five days, is switched off.
    """
    delivery = claimed.delivery
    pause = None if is_last else domain.pause_after(delivery.attempts, random.random(), outcome.retry_after)  # noqa: S311
    with transaction.atomic():
        # Deliveries of one webhook end one after the other, so that its counters are right; new events do not wait
        # for that, nor this for them (no_key).
        hook = Webhook.objects.select_for_update(no_key=True).filter(pk=delivery.webhook_id).first()
        if hook is None:
            return False  # deleted meanwhile, and the delivery with it
        WebhookAttempt.objects.create(
            delivery=delivery,
            number=delivery.attempts,
            seconds=outcome.seconds,
            status=outcome.status,
            error=storable_text(outcome.error)[:1000],
            answer=storable_text(outcome.answer)[:_KEEP_ANSWER],
        )
        mine = WebhookDelivery.objects.filter(
            pk=delivery.pk, state=DeliveryState.PENDING, lease_owner=claimed.owner, attempts=delivery.attempts
        )
        ended: str | None = None
        if outcome.is_success:
            ended = DeliveryState.DELIVERED
        elif pause is None or outcome.status == _GONE:
            ended = DeliveryState.FAILED
        still_mine = mine.update(
            last_status=outcome.status,
            last_error=storable_text(outcome.error)[:1000],
            lease_owner="",
            **({"state": ended, "finished_at": now} if ended else {"due_at": now + (pause or timedelta())}),
        )
        if still_mine and ended:
            _record_moves([delivery.pk], ended, outcome.error or f"HTTP {outcome.status}", _SYSTEM.name)
        _note_health(hook, outcome, now)
        telemetry.publish_on_commit(f"webhook:{hook.pk}", project=hook.project_id)
    return bool(still_mine)


def deliveries_cancel(deliveries: QuerySet[WebhookDelivery], *, cause: str, actor_name: str) -> int:
    """Cancel those that still wait; return how many. An attempt under way may arrive all the same."""
    with transaction.atomic():
        waiting = deliveries.filter(state=DeliveryState.PENDING).select_for_update(of=("self",))
        ids = list(waiting.values_list("pk", flat=True))
        WebhookDelivery.objects.filter(pk__in=ids).update(
            state=DeliveryState.CANCELLED, last_error=cause, lease_owner="", finished_at=timezone.now()
        )
        _record_moves(ids, DeliveryState.CANCELLED, cause, actor_name)
    return len(ids)


def deliveries_purge(now: datetime) -> int:
    """Delete deliveries that ended a month ago, then events that no delivery names; return how many deliveries.

    Those that came to wait for a webhook while it was being switched off are cancelled.
    """
    stranded = WebhookDelivery.objects.filter(webhook__is_enabled=False).exclude(event__type=domain.TEST_EVENT)
    deliveries_cancel(stranded, cause=switched_off(), actor_name=_SYSTEM.name)
    old = WebhookDelivery.objects.exclude(state=DeliveryState.PENDING).filter(finished_at__lt=now - KEEP_DELIVERIES)
    ids = list(old.values_list("pk", flat=True)[:5000])
    WebhookDelivery.objects.filter(pk__in=ids).delete()
    forgotten = WebhookEvent.objects.filter(deliveries=None, created_at__lt=now - KEEP_DELIVERIES)
    WebhookEvent.objects.filter(pk__in=list(forgotten.values_list("pk", flat=True)[:5000])).delete()
    return len(ids)


def switched_off() -> str:
    """Return why deliveries of a webhook that is off are cancelled."""
    return _("The webhook is switched off.")


def _due(now: datetime) -> Q:
    wanted = Q(webhook__is_enabled=True) | Q(event__type=domain.TEST_EVENT)
    rested = Q(webhook__resting_until__lte=now) | Q(event__type=domain.TEST_EVENT)
    return Q(state=DeliveryState.PENDING, due_at__lte=now) & wanted & rested


def _note_health(hook: Webhook, outcome: Outcome, now: datetime) -> None:
    if outcome.is_success:
        hook.failures, hook.failing_since, hook.resting_until = 0, None, now
    else:
        hook.failures += 1
        hook.failing_since = hook.failing_since or now
        hook.resting_until = now + domain.rest_after(hook.failures)
    reason = ""
    if outcome.status == _GONE:
        reason = _("The receiver answered 410: it is gone.")
    elif hook.failing_since is not None and now - hook.failing_since >= domain.DISABLE_AFTER:
        reason = _("Nothing could be delivered for %(days)d days.") % {"days": domain.DISABLE_AFTER.days}
    if reason and hook.is_enabled:
        hook.is_enabled, hook.disabled_reason = False, reason
        audit.record(actor=_SYSTEM, action="webhook.disable", obj=hook, after={"reason": reason})
        deliveries_cancel(hook.deliveries.all(), cause=switched_off(), actor_name=_SYSTEM.name)
    hook.save(update_fields=["failures", "failing_since", "resting_until", "is_enabled", "disabled_reason"])


def _record_moves(delivery_ids: Iterable[uuid.UUID], to: str, cause: str, actor_name: str) -> None:
    Transition.objects.bulk_create(
        Transition(
            object_type="webhookdelivery",
            object_id=delivery_id,
            from_state=DeliveryState.PENDING,
            to_state=to,
            cause=storable_text(cause)[:1000],
            actor_name=actor_name[:200],
        )
        for delivery_id in delivery_ids
    )
