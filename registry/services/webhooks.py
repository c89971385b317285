"""Webhooks as people manage them: make, change, delete, test, replay."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import timedelta

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from registry import signals, telemetry
from registry.domain import webhooks as domain
from registry.domain.actors import Actor
from registry.domain.addresses import parse_networks, url_problem
from registry.errors import Conflict, QuotaExceeded, ValidationFailed
from registry.models import DeliveryState, Project, Webhook, WebhookDelivery, WebhookFormat
from registry.services import audit
from registry.services.permissions import require
from registry.services.sealing import seal
from registry.services.webhook_deliveries import deliveries_cancel, switched_off
from registry.services.webhook_events import event_test

# Each event is kept and sent once a webhook.
MAX_WEBHOOKS = 20
# So many tests and replays of one webhook may wait at once.
MAX_ASKED = 100


def webhook_create(
    *, project: Project | None, name: str, url: str, events: Sequence[str], format: str = "standard", actor: Actor
) -> tuple[Webhook, str]:
    """Make a webhook of a project, or of the site (None); return it with its signing secret, shown only this once.

    Raises:
        ValidationFailed: a bad name, address, event or format; ``errors`` names the field.
        Conflict: the name is taken.
        QuotaExceeded: there are too many.
    """
    _require(actor, project)
    secret = domain.new_secret(secrets.token_bytes(domain.SECRET_BYTES))
    hook = Webhook(
        project=project,
        name=_name(name),
        events=_events(events, project),
        format=_format(format),
        secret_sealed=seal(secret),
        created_by_id=actor.user_id,
    )
    _set_url(hook, url)
    with transaction.atomic():
        if project is not None:
            Project.objects.select_for_update().get(pk=project.pk)
        if Webhook.objects.filter(project=project).count() >= MAX_WEBHOOKS:
            raise QuotaExceeded(
                _("There are %(limit)d webhooks already, the most there may be.") % {"limit": MAX_WEBHOOKS}
            )
        _save(hook)
        audit.record(actor=actor, action="webhook.create", obj=hook, after=_facts(hook))
        _publish(hook)
    return hook, secret


def webhook_update(
    *,
    webhook: Webhook,
    name: str | None = None,
    url: str | None = None,
    events: Sequence[str] | None = None,
    format: str | None = None,
    is_enabled: bool | None = None,
    actor: Actor,
) -> Webhook:
    """Change what is given. Switching off cancels what waits; switching on forgets earlier failures."""
    _require(actor, webhook.project)
    with transaction.atomic():
        hook = Webhook.objects.select_for_update(of=("self",), no_key=True).select_related("project").get(pk=webhook.pk)
        before = _facts(hook)
        if name is not None:
            hook.name = _name(name)
        if url is not None:
            _set_url(hook, url)
        if events is not None:
            hook.events = _events(events, hook.project)
        if format is not None:
            hook.format = _format(format)
        if is_enabled is not None and is_enabled != hook.is_enabled:
            hook.is_enabled, hook.disabled_reason = is_enabled, ""
            hook.failures, hook.failing_since, hook.resting_until = 0, None, timezone.now()
            if not is_enabled:
                deliveries_cancel(hook.deliveries.all(), cause=switched_off(), actor_name=actor.name)
        _save(hook)
        audit.record(
            actor=actor,
            action="webhook.update",
            obj=hook,
            before=before,
            after={**_facts(hook), "url_changed": url is not None},
        )
        _publish(hook)
    return hook


def webhook_rotate_secret(*, webhook: Webhook, actor: Actor) -> str:
    """Give the webhook a new secret and return it; for a day both sign, so that the receiver can change over."""
    _require(actor, webhook.project)
    secret = domain.new_secret(secrets.token_bytes(domain.SECRET_BYTES))
    with transaction.atomic():
        hook = Webhook.objects.select_for_update(no_key=True).get(pk=webhook.pk)
        hook.previous_secret_sealed, hook.secret_sealed = hook.secret_sealed, seal(secret)
        hook.previous_secret_until = timezone.now() + domain.SECRET_OVERLAP
        hook.save(update_fields=["previous_secret_sealed", "secret_sealed", "previous_secret_until"])
        audit.record(actor=actor, action="webhook.rotate_secret", obj=hook)
    return secret


def webhook_delete(*, webhook: Webhook, actor: Actor) -> None:
    """Delete a webhook with its deliveries."""
    _require(actor, webhook.project)
    with transaction.atomic():
        audit.record(actor=actor, action="webhook.delete", obj=webhook, before=_facts(webhook))
        _publish(webhook)
        Webhook.objects.filter(pk=webhook.pk).delete()


def webhook_test(*, webhook: Webhook, actor: Actor) -> WebhookDelivery:
    """Send event ``webhook.test`` to this webhook, also when it is switched off."""
    _require(actor, webhook.project)
    with transaction.atomic():
        _require_room(webhook)
        audit.record(actor=actor, action="webhook.test", obj=webhook)
        delivery = event_test(webhook, actor_name=actor.name)
        _publish(webhook)
    return delivery


def delivery_replay(*, delivery: WebhookDelivery, actor: Actor) -> WebhookDelivery:
    """Send an event again, with the same ``webhook-id`` and body, as a new delivery.

    Raises:
        Conflict: it still waits, or its webhook is switched off.
    """
    hook = delivery.webhook
    _require(actor, hook.project)
    with transaction.atomic():
        _require_room(hook)
        if not Webhook.objects.filter(pk=hook.pk, is_enabled=True).exists():
            raise Conflict(_("The webhook is switched off; switch it on first."))
        if WebhookDelivery.objects.filter(
            webhook=hook, event_id=delivery.event_id, state=DeliveryState.PENDING
        ).exists():
            raise Conflict(_("This event still waits to be delivered."))
        again = WebhookDelivery.objects.create(webhook=hook, event_id=delivery.event_id, replay_of=delivery)
        audit.record(
            actor=actor, action="webhook.replay", obj=hook, after={"delivery": str(delivery.pk), "again": str(again.pk)}
        )
        signals.send_webhooks_due()
        _publish(hook)
    return again


def _require(actor: Actor, project: Project | None) -> None:
    if project is None:
        require(actor, "site.webhooks")
    else:
        require(actor, "project.webhooks", project)


def _require_room(hook: Webhook) -> None:
    """Refuse what would let one person fill the queue. The lock also lets only one of two equal replays through."""
    Webhook.objects.select_for_update(of=("self",), no_key=True).get(pk=hook.pk)
    day = timezone.now() - timedelta(days=1)
    waiting = WebhookDelivery.objects.filter(webhook=hook, state=DeliveryState.PENDING, created_at__gte=day)
    if waiting.count() >= MAX_ASKED:
        raise QuotaExceeded(_("%(count)d deliveries wait already; try again later.") % {"count": MAX_ASKED})


def _set_url(hook: Webhook, url: str) -> None:
    problem = url_problem(url, parse_networks(settings.WEBHOOK_ALLOWED_NETWORKS))
    if problem:
        raise _invalid("url", problem)
    hook.origin, hook.url_sealed = domain.origin_of(url)[:300], seal(url)


def _name(name: str) -> str:
    name = name.strip()
    if not name or len(name) > 100 or not name.isprintable():
        raise _invalid("name", _("Give the webhook a name of at most 100 characters."))
    return name


def _events(events: Sequence[str], project: Project | None) -> list[str]:
    if not events:
        raise _invalid("events", _("Choose at least one event, or * for all."))
    for pattern in events:
        problem = domain.pattern_problem(pattern, of_project=project is not None)
        if problem:
            raise _invalid("events", problem)
    return sorted(set(events))


def _format(format: str) -> str:
    if format not in WebhookFormat.values:
        raise _invalid("format", _("There is no such format."))
    return format


def _save(hook: Webhook) -> None:
    try:
        with transaction.atomic():
            hook.save()
    except IntegrityError:
        message = _("There is a webhook “%(name)s” already.") % {"name": hook.name}
        raise Conflict(message, errors=[{"field": "name", "message": _("This name is taken.")}]) from None


def _facts(hook: Webhook) -> dict[str, object]:
    return {
        "name": hook.name,
        "origin": hook.origin,
        "events": hook.events,
        "format": hook.format,
        "is_enabled": hook.is_enabled,
    }


def _publish(hook: Webhook) -> None:
    telemetry.publish_on_commit(f"webhook:{hook.pk}", project=hook.project_id)


def _invalid(field: str, message: str) -> ValidationFailed:
    return ValidationFailed(message, errors=[{"field": field, "message": message}])
