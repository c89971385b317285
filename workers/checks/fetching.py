"""Files of a version from an address, in turns: each fetches for a while, keeps what it has, and queues the next one.

Everything lands in the staging folder first, counted while it comes; whole files go to the store; the version gets its
files at the end, all or none. What a turn has is noted beside the files, so that a worker that dies costs little.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
from django.conf import settings
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.domain.import_sources import source_problem
from registry.domain.paths import MAX_FILES, clash, path_problem
from registry.errors import QuotaExceeded, StorageFailed, ValidationFailed
from registry.models import ApiToken, Blob, ModelVersion, Operation, User, VersionState
from registry.selectors.quotas import bytes_used
from registry.services.blobs import blob_keep
from registry.services.fetching import fetch_folder
from registry.services.quotas import require_bytes
from registry.services.versions import version_add_file, version_submit
from workers.checks.fetch_sources import SOURCE_ERRORS, Changed, Fetched, Opened, Source, source_at
from workers.checks.verdicts import VersionRejected
from workers.locks.leases import Lease, Unfinished

# A turn lasts so long; from servers that know no ranges longer, as what they sent is lost at its end. A task of a
# worker has 15 minutes (CELERY_TASK_TIME_LIMIT), and the last file of a turn is hashed in what is left.
TURN_SECONDS, WHOLE_SECONDS = 120.0, 10 * 60.0
MOST_RESTARTS = 3
_NOTED_EVERY = 64 * 1024 * 1024
_TOLD_SECONDS = 3.0
_NOTED_SECONDS = 1.0
_MIB = 2**20


def fetch_version(operation: Operation, lease: Lease) -> Mapping[str, Any]:
    """Fetch, add and submit; return ``{"version", "operation"}``, the operation of the checks.

    Raises:
        Unfinished: the turn is over and there is more.
        VersionRejected: the address or what is there is not allowed, or too large; the version goes on waiting.
        StorageFailed: the source or the store does not answer; trying again may help.
    """
    version = ModelVersion.objects.select_related("model__project").get(pk=operation.subject_id)
    folder = fetch_folder(version.pk)
    try:
        found = _Fetch(operation, version, folder, lease).turn()
        lease.check()
        with transaction.atomic():
            require_bytes(version.model.project_id, sum(blob.size for blob in found.values()))
            for path, blob in found.items():
                version_add_file(version=version, path=path, blob=blob)
            submitted = version_submit(version=version, actor=_actor(operation))
    except (ValidationFailed, QuotaExceeded) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise VersionRejected(error.message) from error
    shutil.rmtree(folder, ignore_errors=True)
    return {"version": str(version.pk), "operation": str(submitted.pk)}


def _actor(operation: Operation) -> Actor:
    """Whoever asked, with the rights of now; of a key these are gone when it was revoked, not when it ran out."""
    token_id = operation.params.get("token")
    user = User.objects.filter(pk=str(operation.actor_id)).first()
    if user is None:
        raise ValidationFailed(_("Whoever asked for this has no account any more."))
    if not token_id:
        return Actor.person(user)
    token = ApiToken.objects.filter(pk=str(token_id), revoked_at=None).first()
    if token is None:
        raise ValidationFailed(_("The key with which this was asked for was revoked."))
    return Actor.person(user, token=token)


class _Fetch:
    """One turn. ``folder`` holds the files by number and ``state.json``, what is known about them."""

    def __init__(self, operation: Operation, version: ModelVersion, folder: Path, lease: Lease) -> None:
        self._operation = operation
        self._version = version
        self._folder = folder
        self._lease = lease
        self._address = str(operation.params["address"])
        self._files: list[Fetched] = []
        self._restarts = 0
        self._began = time.monotonic()
        self._told_at = self._noted_at = float("-inf")
        self._has_kept = False
        self._room = 0

    def turn(self) -> dict[str, Blob]:
        """Fetch for a while; return the content of all files by path once it is there."""
        if problem := source_problem(self._address, settings.IMPORT_SOURCES):
            raise ValidationFailed(problem)
        if self._version.state != VersionState.UPLOADING:
            raise ValidationFailed(_("The version is %(state)s meanwhile.") % {"state": self._version.state})
        # Nothing holds what was fetched but the grace time of content, and an upload of a client has no longer either.
        hours = min(settings.UPLOAD_EXPIRY_HOURS, settings.BLOB_GRACE_HOURS)
        if timezone.now() - self._operation.created_at > timedelta(hours=hours):
            raise ValidationFailed(_("Fetching took longer than %(hours)d hours.") % {"hours": hours})
        project = self._version.model.project
        self._room = max(0, project.quota_bytes - bytes_used(project))
        try:
            source = source_at(self._address)
            self._load(source)
            digests = [file.sha256 for file in self._files if file.sha256]
            there = {blob.sha256: blob for blob in Blob.objects.filter(sha256__in=digests)}
            return {
                file.path: there.get(file.sha256) or self._kept(index, file, source)
                for index, file in enumerate(self._files)
            }
        except httpx2.HTTPStatusError as error:
            words = {"address": self._address, "status": error.response.status_code}
            raise ValidationFailed(_("%(address)s answered %(status)d.") % words) from error
        except SOURCE_ERRORS as error:
            raise StorageFailed(self._unreadable(error)) from error

    def _load(self, source: Source) -> None:
        """Take up what an earlier turn noted, or look what there is."""
        # Also lets a store find out whether its address is a prefix or one object.
        listed = source.files()
        try:
            state = json.loads((self._folder / "state.json").read_bytes())
            self._files = [Fetched(**row) for row in state["files"]]
            self._restarts = state["restarts"]
            return
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError):
            shutil.rmtree(self._folder, ignore_errors=True)  # Cut off while it was written.
        self._folder.mkdir(parents=True, exist_ok=True)
        if not listed:
            raise ValidationFailed(_("There is nothing at %(address)s.") % {"address": self._address})
        if len(listed) > MAX_FILES:
            raise ValidationFailed(_("A version has at most %(count)s files.") % {"count": MAX_FILES})
        for file in listed:
            if problem := path_problem(file.path):
                raise ValidationFailed(f"{file.path[:200]}: {problem}")
        if problem := clash([file.path for file in listed]):
            raise ValidationFailed(problem)
        self._files = listed
        self._note()

    def _kept(self, index: int, file: Fetched, source: Source) -> Blob:
        """Fetch a file and keep its content."""
        if self._has_kept and time.monotonic() - self._began > TURN_SECONDS:
            self._note()
            raise Unfinished(self._progress(file))
        local = self._folder / str(index)
        while not self._fetched(file, local, source):
            pass
        self._tell(file)
        blob = blob_keep(local)
        self._has_kept = True
        file.sha256, file.size = blob.sha256, blob.size
        # Of many small files the last few are fetched again when the worker dies.
        if time.monotonic() - self._noted_at > _NOTED_SECONDS:
            self._note()
        local.unlink()
        return blob

    def _fetched(self, file: Fetched, local: Path, source: Source) -> bool:
        """Fetch what is missing of a file; return False when it has to begin anew."""
        with local.open("ab") as sink:
            file.offset = min(file.offset, sink.tell()) if not file.sha256 else 0
            sink.truncate(file.offset)
            sink.seek(file.offset)
            if file.size is not None and file.offset == file.size:
                return True
            if file.offset and not file.tag:
                self._restart(file, sink)
            start, opened = file.offset, None
            try:
                with source.open(file) as opened:
                    if opened.offset != file.offset:
                        self._restart(file, sink)
                    file.size, file.tag = opened.size, opened.tag
                    self._write(file, opened, sink)
            except Changed:
                self._restart(file, sink)
                return False
            except httpx2.HTTPStatusError:
                raise
            except SOURCE_ERRORS as error:
                self._note(sink)
                if opened is not None and opened.can_continue and file.offset > start:
                    raise Unfinished(self._unreadable(error)) from error
                raise
        return True

    def _write(self, file: Fetched, opened: Opened, sink: Any) -> None:
        room = self._room - sum(one.offset for one in self._files if one is not file)
        room = max(0, min(settings.MAX_UPLOAD_BYTES, room))
        until = self._began + (TURN_SECONDS if opened.can_continue else WHOLE_SECONDS)
        noted = file.offset
        self._require_room(file.size or 0, room)
        for piece in opened.pieces:
            self._lease.check()
            self._require_room(file.offset + len(piece), room)
            sink.write(piece)
            file.offset += len(piece)
            if file.offset - noted >= _NOTED_EVERY:
                noted = file.offset
                self._note(sink)
            self._tell(file)
            if time.monotonic() > until and file.offset != file.size:
                if not opened.can_continue:
                    self._restart(file, sink)
                self._note(sink)
                raise Unfinished(self._progress(file))
        if file.size is not None and file.offset != file.size:
            raise OSError(_("it ended after %(offset)d of %(size)d bytes") % {"offset": file.offset, "size": file.size})
        file.size = file.offset

    def _require_room(self, size: int, room: int) -> None:
        if size > room:
            raise ValidationFailed(_("There is room for only %(room)d bytes more.") % {"room": room})

    def _restart(self, file: Fetched, sink: Any) -> None:
        """Begin a file anew: it changed, or its server cannot send the rest of one."""
        self._restarts += 1
        if self._restarts > MOST_RESTARTS:
            told = _(
                "%(address)s was begun anew %(count)d times: it changes while it is fetched, or its server sends no "
                "ranges of a file with an ETag or Last-Modified and takes too long for all of it."
            )
            raise ValidationFailed(told % {"address": self._address, "count": MOST_RESTARTS})
        file.offset, file.size, file.tag = 0, None, ""
        sink.truncate(0)
        sink.seek(0)
        self._note(sink)

    def _note(self, sink: Any = None) -> None:
        """Write down what there is; what is named there is on the disk."""
        if sink is not None:
            sink.flush()
            os.fsync(sink.fileno())
        state = {"files": [asdict(file) for file in self._files], "restarts": self._restarts}
        new = self._folder / "state.new"
        new.write_text(json.dumps(state))
        new.replace(self._folder / "state.json")
        self._noted_at = time.monotonic()

    def _tell(self, file: Fetched) -> None:
        now = time.monotonic()
        if now - self._told_at >= _TOLD_SECONDS:
            self._told_at = now
            done, whole = sum(one.offset for one in self._files), sum(one.size or 0 for one in self._files)
            percent = 90 * done // whole if whole >= done > 0 else 0
            self._lease.report(min(90, percent), self._progress(file))

    def _progress(self, file: Fetched) -> str:
        words = {"path": file.path, "done": f"{file.offset / _MIB:.1f}"}
        if file.size is None:
            return _("Fetching %(path)s: %(done)s MiB") % words
        return _("Fetching %(path)s: %(done)s of %(size)s MiB") % {**words, "size": f"{file.size / _MIB:.1f}"}

    def _unreadable(self, error: Exception) -> str:
        why = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        return _("%(address)s cannot be read: %(why)s") % {"address": self._address, "why": why}
