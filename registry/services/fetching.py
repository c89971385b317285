"""Versions whose files come from an address that the operator allows."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from datetime import datetime
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.domain.import_sources import source_problem
from registry.errors import Conflict, Immutable, ValidationFailed
from registry.models import ModelVersion, Operation, OperationQueue, OperationState, VersionState
from registry.services import audit
from registry.services.contributors import contribution_note
from registry.services.operations import operation_create
from registry.services.permissions import require

KIND = "fetch_version"
_FOLDER = "fetch-"


def version_fetch(*, version: ModelVersion, address: str, actor: Actor) -> Operation:
    """Fetch the file at an address, or everything below a prefix of a store, into a version and submit it.

    Returns the operation ``fetch_version`` on queue jobs; its result names the operation of the checks.

    Raises:
        ValidationFailed: the operator does not allow the address, or it is none.
        Immutable: the version is not uploading any more.
        Conflict: files are being fetched into it already.
    """
    require(actor, "version.write", version)
    address = address.strip()
    if problem := source_problem(address, settings.IMPORT_SOURCES):
        raise ValidationFailed(problem, errors=[{"field": "address", "message": problem}])
    with transaction.atomic():
        state = ModelVersion.objects.select_for_update().values_list("state", flat=True).get(pk=version.pk)
        if state != VersionState.UPLOADING:
            raise Immutable(_("This version is %(state)s; make a new one.") % {"state": state})
        running = Operation.objects.filter(kind=KIND, subject_id=version.pk)
        if running.filter(state__in=(OperationState.PENDING, OperationState.RUNNING)).exists():
            raise Conflict(_("Files are being fetched into this version already."))
        contribution_note(version, actor)
        audit.record(actor=actor, action="version.fetch", obj=version, after={"address": address})
        return operation_create(
            kind=KIND,
            queue=OperationQueue.JOBS,
            subject_type="version",
            subject_id=version.pk,
            project=version.model.project,
            params={"address": address, "token": str(actor.token_id or "")},
            actor=actor,
        )


def fetch_folder(version_id: uuid.UUID) -> Path:
    """Return where what was fetched for a version waits until all of it is there."""
    return Path(settings.STAGING_DIR) / f"{_FOLDER}{version_id}"


def fetches_collect(_now: datetime) -> int:
    """Delete what fetches left behind that nobody goes on with: cancelled ones, and those given up. Return how many."""
    collected = 0
    for folder in Path(settings.STAGING_DIR).glob(f"{_FOLDER}*"):
        with contextlib.suppress(ValueError):
            version_id = uuid.UUID(folder.name.removeprefix(_FOLDER))
            waiting = (OperationState.PENDING, OperationState.RUNNING)
            if not Operation.objects.filter(kind=KIND, subject_id=version_id, state__in=waiting).exists():
                shutil.rmtree(folder, ignore_errors=True)
                collected += 1
    return collected
