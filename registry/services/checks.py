"""Verdicts about a version, shown while they are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _

from registry import telemetry
from registry.domain.checks import check_kind
from registry.domain.storable import storable, storable_text
from registry.errors import ValidationFailed
from registry.models import Check, ModelVersion, Verdict

_LOG_LIMIT = 65536


def check_start(*, version: ModelVersion, kind: str) -> Check:
    """Begin (or begin again) a check of a version; verdict running. Pages see it at once.

    Raises:
        ValidationFailed: there is no such kind of check.
    """
    if check_kind(kind) is None:
        raise ValidationFailed(_("“%(kind)s” is no kind of check.") % {"kind": kind})
    check, _made = Check.objects.update_or_create(
        version=version,
        kind=kind,
        defaults={
            "verdict": Verdict.RUNNING,
            "summary": "",
            "evidence": {},
            "log": "",
            "started_at": timezone.now(),
            "finished_at": None,
        },
    )
    _publish(check)
    return check


def check_finish(
    *, check: Check, verdict: str, summary: str, evidence: Mapping[str, Any] | None = None, log: str = ""
) -> None:
    """Write a check's verdict: pass, warn, fail or error.

    Raises:
        ValidationFailed: no such verdict.
    """
    if verdict not in Verdict.values or verdict == Verdict.RUNNING:
        raise ValidationFailed(_("“%(verdict)s” is no final verdict.") % {"verdict": verdict})
    check.verdict = verdict
    # What a file says about itself may hold anything.
    check.summary = storable_text(summary)
    check.evidence = storable(dict(evidence or {}))
    check.log = storable_text(log[-_LOG_LIMIT:])
    check.finished_at = timezone.now()
    check.save(update_fields=["verdict", "summary", "evidence", "log", "finished_at"])
    _publish(check)


def _publish(check: Check) -> None:
    telemetry.publish_on_commit(f"version:{check.version_id}", project=check.version.model.project_id)
