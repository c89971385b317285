"""Delivers what is due: webhooks side by side, the deliveries of each one after the other.

A receiver that fails rests (registry.domain.webhooks.rest_after), so that a dead one costs one attempt now and then
and holds up nobody else.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from django.conf import settings
from django.db import connections
from django.utils import timezone

from registry.domain import webhooks as domain
from registry.domain.addresses import Network, parse_networks
from registry.services.webhook_deliveries import Claimed, Outcome, delivery_claim, delivery_finish, webhooks_due
from workers.locks.leases import new_owner
from workers.webhooks.sending import send

THREADS = 8
# A pass begins nothing new after this; what is left is found by the next one.
PASS_SECONDS = 20.0

Attempt = Callable[[Claimed, datetime], Outcome]


def attempt(claimed: Claimed, now: datetime) -> Outcome:
    """Sign and send one delivery."""
    networks: tuple[Network, ...] = parse_networks(settings.WEBHOOK_ALLOWED_NETWORKS)
    message = domain.message_id(claimed.delivery.event_id)
    headers = domain.headers(claimed.secrets, message, int(now.timestamp()), claimed.body)
    return send(claimed.url, headers, claimed.body, allowed=networks)


def deliver_due(attempt: Attempt = attempt) -> int:
    """Deliver what is due now and return how many attempts were made."""
    deadline = time.monotonic() + PASS_SECONDS
    tried = 0
    while due := webhooks_due(timezone.now()):
        with ThreadPoolExecutor(THREADS, thread_name_prefix="webhooks") as pool:
            made = sum(pool.map(lambda webhook_id: _in_thread(webhook_id, deadline, attempt), due))
        tried += made
        if not made or time.monotonic() > deadline:
            break
    return tried


def deliver_to(webhook_id: uuid.UUID, deadline: float, attempt: Attempt) -> int:
    """Deliver what is due to one webhook, until one attempt fails; return how many attempts were made."""
    owner, tried = new_owner(), 0
    while time.monotonic() < deadline:
        now = timezone.now()
        claimed = delivery_claim(webhook_id, owner, now)
        if claimed is None:
            break
        outcome = attempt(claimed, now)
        tried += 1
        delivery_finish(claimed, outcome, now=timezone.now())
        if not outcome.is_success:
            break
    return tried


def _in_thread(webhook_id: uuid.UUID, deadline: float, attempt: Attempt) -> int:
    try:
        return deliver_to(webhook_id, deadline, attempt)
    finally:
        connections.close_all()
