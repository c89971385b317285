"""Verdicts about a version: shown while they are made, made again on request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from registry import telemetry
from registry.domain.actors import Actor
from registry.domain.checks import Cause, check_kind, kinds_for
from registry.domain.protection import read_checks
from registry.domain.storable import storable, storable_text
from registry.errors import Conflict, NotFound, ValidationFailed
from registry.models import Check, Environment, ModelVersion, Operation, OperationQueue, OperationState, Verdict
from registry.services import audit
from registry.services.operations import operation_create
from registry.services.permissions import require

KIND = "check_version"
"""Kind of the operation that makes checks of a numbered version."""
AUTOMATIC = ("smoke",)
"""What is checked once a version is ready without anybody asking, whatever environments require."""
_KINDS = ("validate_version", KIND)
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


def checks_begin(*, version: ModelVersion) -> Operation | None:
    """Ask for the checks that a version gets once it is ready; None where nothing is run in a sandbox.

    Their rows are there from now on, so that what is approved next is bound to them. Called with the row of the
    version locked.
    """
    if not settings.SANDBOX:
        return None
    kinds = _following(version)
    for kind in kinds:
        check_start(version=version, kind=kind)
    return _ask(version, kinds, Actor.system("checks"))


def check_rerun(*, version: ModelVersion, kind: str, actor: Actor) -> Operation:
    """Make one check of a numbered version again: operation ``check_version`` on queue jobs.

    Raises:
        NotFound: there is no such kind, or this version has no such check that can be made again.
        Conflict: the version has no number yet, or checks of it are under way.
    """
    require(actor, "version.write", version)
    known = check_kind(kind)
    if known is None or not known.is_repeatable or not known.applies_to(version.format):
        raise NotFound(_("There is no check “%(kind)s” to make again for this version.") % {"kind": kind})
    with transaction.atomic():
        locked = ModelVersion.objects.select_for_update(no_key=True).get(pk=version.pk)
        if locked.number is None:
            raise Conflict(_("The version has no number yet; its checks are made when it is submitted."))
        row = Check.objects.filter(version=version, kind=kind).first()
        if row is None and known.cause is not Cause.AFTER and not known.can_begin_late:
            raise NotFound(_("This version has no check “%(kind)s”.") % {"kind": kind})
        if _under_way().filter(kind=KIND, subject_id=version.pk).exists():
            raise Conflict(_("Checks of this version are under way; wait for them."))
        audit.record(
            actor=actor,
            action="version.recheck",
            obj=version,
            before={"kind": kind, "verdict": row.verdict if row is not None else ""},
            after={"kind": kind},
        )
        check_start(version=version, kind=kind)
        return _ask(version, (kind,), actor)


def checks_stranded() -> int:
    """End checks that nobody makes any more, as cancelled or given up; return how many."""
    theirs = _under_way().filter(subject_id=OuterRef("version_id"))
    rows = Check.objects.filter(verdict=Verdict.RUNNING).exclude(Exists(theirs))
    count = 0
    for row in rows.select_related("version__model")[:100]:
        last = Operation.objects.filter(kind__in=_KINDS, subject_id=row.version_id).order_by("-created_at").first()
        reason = (last.error or {}).get("message") if last is not None else None
        text = _("The check could not be finished: %(reason)s") % {"reason": reason or _("it was cancelled.")}
        check_finish(check=row, verdict=Verdict.ERROR, summary=text)
        count += 1
    return count


def _following(version: ModelVersion) -> list[str]:
    """Return the checks that follow once a version is ready: the usual ones, and what any environment requires."""
    rules = Environment.objects.values_list("required_checks", flat=True)
    wanted = {*AUTOMATIC, *(check.kind for documents in rules for check in read_checks(documents))}
    return [kind.name for kind in kinds_for(version.format) if kind.name in wanted and kind.cause is Cause.AFTER]


def _under_way() -> QuerySet[Operation]:
    return Operation.objects.filter(kind__in=_KINDS, state__in=(OperationState.PENDING, OperationState.RUNNING))


def _ask(version: ModelVersion, kinds: Sequence[str], actor: Actor) -> Operation:
    return operation_create(
        kind=KIND,
        queue=OperationQueue.JOBS,
        subject_type="version",
        subject_id=version.id,
        project=version.model.project,
        params={"kinds": list(kinds)},
        actor=actor,
    )


def _publish(check: Check) -> None:
    telemetry.publish_on_commit(f"version:{check.version_id}", project=check.version.model.project_id)
