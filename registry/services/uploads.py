"""Resumable uploads: rows follow the bytes that lie in the staging folder."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from registry import telemetry
from registry.domain.actors import Actor
from registry.domain.parts import part_sizes
from registry.domain.paths import MAX_FILES, require_path
from registry.errors import (
    Conflict,
    Immutable,
    InvalidTransition,
    NotFound,
    PermissionDenied,
    QuotaExceeded,
    StaleWrite,
    StorageFailed,
    ValidationFailed,
)
from registry.models import Blob, ModelVersion, Project, Upload, UploadState, VersionFile, VersionState
from registry.services import audit, quotas
from registry.services.contributors import contribution_note
from registry.services.digests import Digests, digests_of, require_digests
from registry.services.parts import parts_end, parts_join
from registry.services.permissions import require
from registry.services.staging import staged_remove, staging_path
from registry.services.transition import move
from registry.services.versions import version_abandon, version_add_file
from registry.storage import DigestDiffers, StagedPart, artifact_store, storage_key

__all__ = [
    "staged_collect",
    "staging_path",
    "upload_advance",
    "upload_create",
    "upload_received",
    "upload_store",
    "upload_terminate",
    "uploads_expire",
]

_RUNNING = (UploadState.RECEIVING, UploadState.RECEIVED)
_UNKNOWN = Digests()
_FILE_SECONDS, _FOLDER_SECONDS = 3600, 24 * 3600


def upload_create(
    *,
    version: ModelVersion,
    path: str,
    length: int,
    sha256: str = "",
    part: int | None = None,
    part_bytes: int = 0,
    actor: Actor,
) -> Upload:
    """Begin an upload of ``length`` bytes to ``path`` of a version, or of a ``part`` of it (``upload_concatenate``).

    ``part`` says which one, from 0, for those who look at what is there; parts may have the same path. With
    ``part_bytes`` the bytes go to the store directly (registry.services.direct_uploads).

    Raises:
        ValidationFailed: a bad path, length or digest.
        Immutable: the version is not uploading.
        Conflict: the path is taken by a file or a running upload.
        QuotaExceeded: too large, or the project has no room left.
    """
    owner_id = require_uploader(version, path, actor)
    if length <= 0:
        message = _("The file is empty.") if length == 0 else _("The length must be a positive number of bytes.")
        raise ValidationFailed(message, errors=[{"field": "length", "message": message}])
    with transaction.atomic():
        project = hold_uploading(version)
        require_free_path(version, path, is_part=part is not None)
        require_size(length)
        quotas.require_bytes(project.pk, length)
        return upload_begin(
            version=version,
            path=path,
            length=length,
            promised=Digests(sha256),
            actor=actor,
            owner_id=owner_id,
            is_part=part is not None,
            position=part,
            part_bytes=part_bytes,
        )


def upload_begin(
    *, version: ModelVersion, path: str, length: int, promised: Digests, actor: Actor, **columns: Any
) -> Upload:
    """Write the row of an upload whose conditions have been looked at. In a transaction.

    Raises:
        ValidationFailed: a digest that is none.
    """
    promised = require_digests(promised)
    upload = Upload.objects.create(
        version=version,
        path=path,
        length=length,
        expected_sha256=promised.sha256,
        expected_xxh3=promised.xxh3,
        expires_at=_expiry(timezone.now()),
        **columns,
    )
    contribution_note(version, actor)
    audit.record(actor=actor, action="upload.create", obj=upload, after={"path": path, "length": length})
    _publish(upload)
    return upload


def require_uploader(version: ModelVersion, path: str, actor: Actor) -> uuid.UUID:
    """Return the id of the actor, who may upload to a path of the version.

    Raises:
        PermissionDenied: they may not.
        ValidationFailed: a bad path.
    """
    require(actor, "version.write", version)
    if actor.user_id is None:
        raise PermissionDenied(_("An upload needs an owner."))
    require_path(path)
    return actor.user_id


def hold_uploading(version: ModelVersion) -> Project:
    """Hold the project and the version, in this order, until the transaction ends; return the project.

    Raises:
        Immutable: the version is not uploading.
    """
    # Rows that name the project may be written meanwhile: whoever holds the version may write such a row.
    project = Project.objects.select_for_update(no_key=True).get(pk=version.model.project_id)
    state = ModelVersion.objects.select_for_update().values_list("state", flat=True).get(pk=version.pk)
    if state != VersionState.UPLOADING:
        raise Immutable(_("This version is %(state)s; make a new one.") % {"state": state})
    return project


def upload_advance(*, upload_id: uuid.UUID, from_offset: int, to_offset: int) -> None:
    """Record that the staged file now has ``to_offset`` bytes, if it had ``from_offset`` until now.

    Raises:
        NotFound: no such upload.
        StaleWrite: another request moved the offset.
        InvalidTransition: the upload is not receiving.
        ValidationFailed: more bytes than were announced.
    """
    changed = Upload.objects.filter(
        pk=upload_id,
        offset=from_offset,
        state=UploadState.RECEIVING,
        length__gte=to_offset,
    ).update(offset=to_offset, expires_at=_expiry(timezone.now()))
    if changed:
        return
    upload = Upload.objects.filter(pk=upload_id).first()
    if upload is None:
        raise NotFound(_("There is no such upload."))
    if upload.state != UploadState.RECEIVING:
        raise InvalidTransition(_("The upload is %(state)s.") % {"state": upload.state})
    if to_offset > upload.length:
        raise ValidationFailed(_("More bytes than announced."))
    raise StaleWrite(_("The upload is at byte %(offset)s.") % {"offset": upload.offset}, offset=upload.offset)


def upload_received(
    *,
    upload_id: uuid.UUID,
    from_offset: int | None = None,
    sha256: str = "",
    promised: Digests = _UNKNOWN,
) -> Upload:
    """Note that the last byte is on the disk: receiving -> received. Doing it again changes nothing.

    ``from_offset`` is where the upload stood until now, when the same act moves it to its end. ``sha256`` is over
    all its bytes, taken while they arrived; without it a worker reads the bytes once, and requires what was
    ``promised``, at the beginning or now.

    Raises:
        NotFound: no such upload.
        InvalidTransition: bytes are missing, or it has ended.
        StaleWrite: another request moved the offset.
        ValidationFailed: the digest is not the one the client promised; the upload has failed.
    """
    upload = Upload.objects.select_related("version__model").filter(pk=upload_id).first()
    if upload is None:
        raise NotFound(_("There is no such upload."))
    if upload.state in (UploadState.RECEIVED, UploadState.STORED):
        return upload
    if sha256 and upload.expected_sha256 not in ("", sha256):
        _fail(upload, _damaged(upload))
    with transaction.atomic():
        if from_offset is not None:
            upload_advance(upload_id=upload_id, from_offset=from_offset, to_offset=upload.length)
            upload.offset = upload.length
        if upload.offset != upload.length:
            raise InvalidTransition(
                _("The upload has %(offset)s of %(length)s bytes.") % {"offset": upload.offset, "length": upload.length}
            )
        move(
            upload,
            "state",
            UploadState.RECEIVED,
            cause="last byte received",
            actor=Actor.system("uploads"),
            sha256=sha256,
            expected_sha256=upload.expected_sha256 or promised.sha256,
            expected_xxh3=upload.expected_xxh3 or promised.xxh3,
        )
        _publish(upload)
    return upload


def upload_store(*, upload_id: uuid.UUID) -> Blob:
    """Keep the staged bytes as a blob, and add the file to its version: received -> stored.

    For workers: moves the file, after reading it when its digests are not known. Doing it again returns the same blob.

    Raises:
        ValidationFailed: the digest is not the one the client promised; the upload has failed.
        StorageFailed: one sentence (a full disk); the upload stays received and may be tried again.
        InvalidTransition: it is not received.
    """
    upload = Upload.objects.select_related("version__model").get(pk=upload_id)
    if upload.state == UploadState.STORED:
        return VersionFile.objects.select_related("blob").get(version=upload.version_id, path=upload.path).blob
    if upload.state != UploadState.RECEIVED:
        raise InvalidTransition(_("The upload is %(state)s.") % {"state": upload.state})
    if upload.part_bytes:
        return _store_parts(upload)
    path = staging_path(upload.id)
    try:
        parts_join(upload)
    except OSError as error:
        raise _unreadable(error) from error
    _require_complete(upload, path)
    if not upload.sha256:
        found = _hash_file(path)
        _require_promised(upload, found)
        upload.sha256 = found.sha256
        upload.save(update_fields=["sha256"])
    sha256 = upload.sha256
    store = artifact_store()
    if not store.exists(sha256):
        store.take_file(path, sha256)
    return _add_stored(upload, lambda: store.take_file(path, sha256))


def _store_parts(upload: Upload) -> Blob:
    """Keep the parts that lie in the store as a blob, once they have the digest that was promised."""
    store, sha256 = artifact_store(), upload.expected_sha256
    sizes = part_sizes(upload.length, upload.part_bytes)
    try:
        store.join_parts(upload.pk, sizes, sha256)
    except DigestDiffers:
        _fail(upload, _damaged(upload))
    upload.sha256 = sha256
    upload.save(update_fields=["sha256"])
    blob = _add_stored(upload, lambda: store.join_parts(upload.pk, sizes, sha256))
    with contextlib.suppress(StorageFailed):  # The sweep takes what stays.
        store.delete_parts([StagedPart(upload.pk, number, size) for number, size in enumerate(sizes, 1)])
    return blob


def _add_stored(upload: Upload, store_again: Callable[[], object]) -> Blob:
    """Add content that the store holds, as ``upload.sha256``, to the version: received -> stored."""
    sha256, store = upload.sha256, artifact_store()
    with transaction.atomic():
        # The version before the blob, as everywhere, so that two callers cannot wait for each other.
        ModelVersion.objects.select_for_update().get(pk=upload.version_id)
        Blob.objects.get_or_create(
            sha256=sha256,
            defaults={"size": upload.length, "storage_key": storage_key(sha256)},
        )
        # Under the row's lock collection cannot take the content; it may have just before.
        blob = Blob.objects.select_for_update().get(sha256=sha256)
        if not store.exists(sha256):
            store_again()
        version_add_file(version=upload.version, path=upload.path, blob=blob)
        move(upload, "state", UploadState.STORED, cause="stored", actor=Actor.system("uploads"))
        parts_end(upload, UploadState.STORED, "stored with its whole")
        staged_remove(upload.id)
        _publish(upload)
    return blob


def upload_terminate(*, upload_id: uuid.UUID, actor: Actor) -> None:
    """End an upload and delete its bytes; ending it again changes nothing.

    Raises:
        NotFound: no such upload, or it is somebody else's.
        InvalidTransition: its file is part of the version already.
    """
    upload = Upload.objects.select_related("version__model").filter(pk=upload_id).first()
    if upload is None or (not actor.is_system and upload.owner_id != actor.user_id):
        raise NotFound(_("There is no such upload."))
    if upload.state == UploadState.TERMINATED:
        return
    if upload.version.state != VersionState.UPLOADING and not actor.is_system:
        raise Immutable(_("This version is being checked."))
    if upload.whole_id is not None:
        raise Conflict(_("This part belongs to another upload; end that one."))
    with transaction.atomic():
        move(upload, "state", UploadState.TERMINATED, cause=f"ended by {actor.name}", actor=actor)
        parts_end(upload, UploadState.TERMINATED, "its whole ended")
        audit.record(actor=actor, action="upload.terminate", obj=upload, after={"path": upload.path})
        staged_remove(upload.id)
        _publish(upload)


def uploads_expire(now: datetime) -> int:
    """End uploads past their expiry and abandon versions that nobody has touched since; return how many uploads ended.

    Uploads of versions that are being checked are left alone.
    """
    actor = Actor.system("expiry")
    ended = 0
    expired = Upload.objects.filter(
        state__in=_RUNNING, whole=None, expires_at__lt=now, version__state=VersionState.UPLOADING
    ).values_list("id", flat=True)
    for upload_id in list(expired[:500]):
        with contextlib.suppress(InvalidTransition):  # It moved in between.
            upload_terminate(upload_id=upload_id, actor=actor)
            ended += 1
    idle = ModelVersion.objects.filter(
        state=VersionState.UPLOADING, created_at__lt=now - timedelta(hours=settings.UPLOAD_EXPIRY_HOURS)
    ).exclude(uploads__state__in=_RUNNING)
    for version in idle.select_related("model")[:500]:
        with contextlib.suppress(InvalidTransition):
            version_abandon(version=version, reason=_("Nothing was uploaded in time."), actor=actor)
    return ended


def staged_collect(now: datetime, *, limit: int = 1000) -> int:
    """Delete what lies in the staging folder and belongs to nothing any more; return how many.

    A process that died between a commit and its deletion leaves the bytes of an upload that has ended; a worker that
    died leaves a folder, which nobody works in after a day.
    """
    collected = 0
    folder = Path(settings.STAGING_DIR)
    for path in folder.iterdir() if folder.exists() else ():
        with contextlib.suppress(OSError):
            age = now.timestamp() - path.stat(follow_symlinks=False).st_mtime
            if path.is_dir() and age > _FOLDER_SECONDS:
                shutil.rmtree(path)
                collected += 1
            elif age > _FILE_SECONDS and _is_of_ended_upload(path.name):
                path.unlink()
                collected += 1
        if collected >= limit:
            break
    return collected


def _is_of_ended_upload(name: str) -> bool:
    try:
        upload_id = uuid.UUID(name)
    except ValueError:
        return False
    return not Upload.objects.filter(pk=upload_id, state__in=_RUNNING).exists()


def require_free_path(version: ModelVersion, path: str, *, is_part: bool = False) -> None:
    """Do nothing when a file may go to the path, or a part of one.

    Raises:
        Conflict: a file or an upload has it.
        QuotaExceeded: the version has as many files as it may have.
    """
    if VersionFile.objects.filter(version=version, path=path).exists():
        raise Conflict(_("The version has a file “%(path)s” already.") % {"path": path})
    running = Upload.objects.filter(version=version, state__in=_RUNNING)
    # Beside the upload of a whole there is no place for parts, but parts are beside each other.
    if running.filter(path=path, is_part=False).exists() or (
        not is_part and running.filter(path=path, is_part=True, whole=None).exists()
    ):
        raise Conflict(_("An upload to “%(path)s” is under way.") % {"path": path})
    if running.count() + VersionFile.objects.filter(version=version).count() >= MAX_FILES:
        raise QuotaExceeded(_("A version has at most %(count)s files.") % {"count": MAX_FILES})


def require_size(length: int) -> None:
    """Do nothing when one file may be so large. Raises QuotaExceeded."""
    if length > settings.MAX_UPLOAD_BYTES:
        raise QuotaExceeded(
            _("A file may have at most %(limit)s bytes.") % {"limit": settings.MAX_UPLOAD_BYTES},
            errors=[{"field": "length", "message": _("Too large.")}],
        )


def _require_complete(upload: Upload, path: Path) -> None:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise _unreadable(error) from error
    if size != upload.length:
        _fail(upload, _("“%(path)s” was cut short: upload it again.") % {"path": upload.path})


def _require_promised(upload: Upload, found: Digests) -> None:
    promised = Digests(upload.expected_sha256, upload.expected_xxh3)
    if any(said and said != is_so for said, is_so in zip(promised, found, strict=True)):
        _fail(upload, _damaged(upload))


def _damaged(upload: Upload) -> str:
    return _("“%(path)s” was damaged on the way: its digest differs.") % {"path": upload.path}


def _hash_file(path: Path) -> Digests:
    """Return the digests of a staged file."""
    try:
        return digests_of(path)
    except OSError as error:
        raise _unreadable(error) from error


def _unreadable(error: OSError) -> StorageFailed:
    return StorageFailed(_("The uploaded bytes cannot be read: %(why)s.") % {"why": error.strerror})


def _fail(upload: Upload, message: str) -> NoReturn:
    with transaction.atomic():
        actor = Actor.system("uploads")
        move(upload, "state", UploadState.FAILED, cause=message, actor=actor, error=message)
        parts_end(upload, UploadState.TERMINATED, "its whole failed")
        audit.record(actor=actor, action="upload.fail", obj=upload, after={"path": upload.path, "error": message})
        staged_remove(upload.id)
        _publish(upload)
    raise ValidationFailed(message, errors=[{"field": upload.path, "message": message}])


def _expiry(now: datetime) -> datetime:
    return now + timedelta(hours=settings.UPLOAD_EXPIRY_HOURS)


def _publish(upload: Upload) -> None:
    telemetry.publish_on_commit(f"version:{upload.version_id}", project=upload.version.model.project_id)
