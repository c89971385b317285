"""What goes by the clock, so that nothing grows for ever. Each step stands alone: one that fails stops no other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from importlib import import_module

from django.conf import settings

from registry.models import JoinToken
from registry.services.approvals import approvals_expire
from registry.services.blobs import blobs_collect, orphans_collect_in_turn
from registry.services.ci_exchange import issuer_uses_purge
from registry.services.direct_uploads import parts_collect
from registry.services.fetching import fetches_collect
from registry.services.idempotency import answers_purge
from registry.services.login_requests import login_requests_purge
from registry.services.operations import operations_purge
from registry.services.retention import approvals_purge, refused_versions_purge, rollouts_purge
from registry.services.samples import partitions_drop, partitions_ensure
from registry.services.tokens import job_tokens_purge, tokens_tell_expiry
from registry.services.uploads import staged_collect, uploads_expire
from registry.services.usage import use_sweep
from registry.services.webhook_deliveries import deliveries_purge
from workers.scratch import environments_collect

_log = logging.getLogger(__name__)

# A token that nobody used in time is of no interest any more; who made it is in the audit log.
_KEEP_JOIN_TOKENS = timedelta(days=30)


def join_tokens_purge(now: datetime) -> int:
    """Delete join tokens that ran out a month ago and return how many."""
    deleted, _by_model = JoinToken.objects.filter(expires_at__lt=now - _KEEP_JOIN_TOKENS).delete()
    return deleted


def sessions_purge(now: datetime) -> None:
    """Delete sessions of browsers that ran out."""
    import_module(settings.SESSION_ENGINE).SessionStore.clear_expired()


STEPS: Mapping[str, Callable[[datetime], object]] = {
    "partitions_ensure": partitions_ensure,
    "partitions_drop": partitions_drop,
    "uploads_expire": uploads_expire,
    "staged_collect": staged_collect,
    "approvals_expire": approvals_expire,
    "operations_purge": operations_purge,
    "blobs_collect": blobs_collect,
    "orphans_collect": orphans_collect_in_turn,
    "parts_collect": parts_collect,
    "fetches_collect": fetches_collect,
    "refused_versions_purge": refused_versions_purge,
    "rollouts_purge": rollouts_purge,
    "approvals_purge": approvals_purge,
    "deliveries_purge": deliveries_purge,
    "tokens_tell_expiry": tokens_tell_expiry,
    "job_tokens_purge": job_tokens_purge,
    "issuer_uses_purge": issuer_uses_purge,
    "login_requests_purge": login_requests_purge,
    "answers_purge": answers_purge,
    "join_tokens_purge": join_tokens_purge,
    "sessions_purge": sessions_purge,
    "environments_collect": environments_collect,
    "use_sweep": use_sweep,
}


def tidy_up(now: datetime, steps: Mapping[str, Callable[[datetime], object]] = STEPS) -> list[str]:
    """Do every step and return the names of those that failed."""
    failed = []
    for name, step in steps.items():
        try:
            step(now)
        except Exception:
            _log.exception("tidy.failed step=%s", name)
            failed.append(name)
    return failed
