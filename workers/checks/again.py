"""Checks of versions that have their number: those that follow, and any of them once more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _

from registry.domain.checks import CHECK_KINDS, Cause
from registry.models import Check, ModelVersion, Operation, Verdict
from registry.services.checks import check_finish
from workers.checks.smoke import check_on_scratch_node
from workers.checks.validation import recheck
from workers.checks.verdicts import CheckFailed, recording
from workers.locks.leases import Lease
from workers.scratch import remove_left_behind


def check_version(operation: Operation, lease: Lease) -> Mapping[str, Any]:
    """Make the checks ``operation.params["kinds"]`` of the version it is about; return ``{"version", "verdicts"}``.

    A bad verdict is a result like any other: the operation succeeds, and the version stays as it is.

    Raises:
        StorageFailed: the store did not give the files; trying again may help.
    """
    version = ModelVersion.objects.select_related("model__project").get(pk=operation.subject_id)
    remove_left_behind(version)
    kinds = [kind for kind in CHECK_KINDS.values() if kind.name in operation.params["kinds"]]
    early = [kind.name for kind in kinds if kind.cause is Cause.SUBMIT]
    late = [kind.name for kind in kinds if kind.cause is Cause.AFTER]
    if early:
        _again(version, early, lease)
    if late:
        check_on_scratch_node(version, late, lease)
    lease.check()
    rows = Check.objects.filter(version=version, kind__in=[kind.name for kind in kinds])
    verdicts = dict(rows.values_list("kind", "verdict"))
    return {"version": str(version.pk), "number": version.number, "verdicts": verdicts}


def _again(version: ModelVersion, kinds: list[str], lease: Lease) -> None:
    """Make checks of the files once more. One that others stand before, and fail, is not made: error."""
    why = _("This version has no such check any more.")
    with recording(frozenset(kinds)):
        try:
            recheck(version, lease)
        except CheckFailed as error:
            why = _("Another check fails before this one can be made: %(why)s") % {"why": error}
    for row in Check.objects.filter(version=version, kind__in=kinds, verdict=Verdict.RUNNING):
        check_finish(check=row, verdict=Verdict.ERROR, summary=why)
