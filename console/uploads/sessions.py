"""What an upload request may touch: the row, the right to it, the lock on its bytes. Blocking, with database access."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from django.conf import settings
from django.utils import timezone
from django.utils.translation import gettext as _

from console.uploads.digests import RunningDigest
from console.uploads.protocol import SHA256_PREFIX, Checksum, ProtocolError, storage_full
from console.uploads.room import require_room, take_room
from console.uploads.staging import FULL, Busy, StagedFile, staged_size
from registry.domain.actors import Actor
from registry.errors import NotFound, PermissionDenied, ValidationFailed
from registry.models import ModelVersion, Upload, UploadState
from registry.selectors.permissions import Denied, can
from registry.services import uploads
from registry.services.concatenation import MAX_PARTS, upload_concatenate
from registry.services.digests import Digests
from registry.services.permissions import require

_ENDED = {UploadState.FAILED, UploadState.TERMINATED}


def find(actor: Actor, upload_id: uuid.UUID) -> Upload:
    """Return an upload of the actor's own that it may still write to.

    Raises:
        NotFound: there is none, it is somebody else's, or the actor does not see its project any more.
        PermissionDenied: the actor sees the project but may no longer write there.
        ProtocolError: 410, it has ended or expired.
    """
    upload = Upload.objects.select_related("version__model__project").filter(pk=upload_id).first()
    if upload is None or upload.owner_id != actor.user_id:
        raise NotFound(_("There is no such upload."))
    verdict = can(actor, "version.write", upload.version)
    if isinstance(verdict, Denied):
        if not can(actor, "project.view", upload.version):
            raise NotFound(_("There is no such upload."))
        raise PermissionDenied(verdict.reason)
    is_expired = upload.state == UploadState.RECEIVING and upload.expires_at <= timezone.now()
    if upload.state in _ENDED or is_expired:
        raise ProtocolError(410, upload.error or _("The upload has ended; start a new one."), "gone")
    return upload


def create(actor: Actor, metadata: dict[str, str], length: int, *, is_part: bool = False) -> Upload:
    """Begin the upload that the metadata describes: ``version`` (id), ``path`` (or ``filename``), ``sha256``.

    Of a part ``part`` says which one it is, from 0.
    """
    version = _version(actor, metadata.get("version", ""))
    require(actor, "version.write", version)
    staging = Path(settings.STAGING_DIR)
    staging.mkdir(parents=True, exist_ok=True, mode=0o700)
    require_room(staging, length)
    upload = uploads.upload_create(
        version=version,
        path=_path(metadata),
        length=length,
        sha256=metadata.get("sha256", ""),
        part=_part(metadata) if is_part else None,
        actor=actor,
    )
    try:
        with StagedFile(uploads.staging_path(upload.pk)) as staged:
            staged.settle(0)
            take_room(staged.descriptor, length)
    except OSError as error:
        # Without its file and the room for it the row would only keep the path from being uploaded again.
        uploads.upload_terminate(upload_id=upload.pk, actor=actor)
        if error.errno in FULL:
            raise storage_full() from error
        raise
    return upload


def concatenate(actor: Actor, metadata: dict[str, str], parts: Sequence[uuid.UUID]) -> Upload:
    """Make one upload out of parts, as the metadata describes: ``version``, ``path``, ``sha256``, ``xxh3``."""
    return upload_concatenate(
        version=_version(actor, metadata.get("version", "")),
        path=_path(metadata),
        parts=parts,
        promised=Digests(metadata.get("sha256", ""), metadata.get("xxh3", "")),
        actor=actor,
    )


def concat_of(upload: Upload) -> str:
    """Return Upload-Concat of an upload; empty for a plain one."""
    if upload.is_part:
        return "partial"
    parts = upload.parts.order_by("position").values_list("pk", flat=True)
    return "final;" + " ".join(f"/api/v1/uploads/{part}" for part in parts) if parts else ""


def _path(metadata: dict[str, str]) -> str:
    return metadata.get("path") or metadata.get("filename") or ""


def _part(metadata: dict[str, str]) -> int:
    text = metadata.get("part", "0")
    if not (text.isascii() and text.isdigit() and int(text[:9]) < MAX_PARTS):
        message = _("The number of a part is from 0 to %(most)d.") % {"most": MAX_PARTS - 1}
        raise ValidationFailed(message, errors=[{"field": "part", "message": message}])
    return int(text)


def _version(actor: Actor, text: str) -> ModelVersion:
    try:
        version_id = uuid.UUID(text)
    except ValueError:
        detail = _("Upload-Metadata must name the version by its id.")
        raise ValidationFailed(detail, errors=[{"field": "version", "message": detail}]) from None
    version = ModelVersion.objects.select_related("model__project").filter(pk=version_id).first()
    if version is None or not can(actor, "project.view", version):
        raise NotFound(_("There is no such version."))
    return version


def present_offset(upload: Upload) -> int:
    """Return how many bytes count: those that the database knows and that are really on disk."""
    if upload.state != UploadState.RECEIVING:
        return upload.length
    if upload.part_bytes:
        return upload.offset
    return min(upload.offset, staged_size(uploads.staging_path(upload.pk)))


def begin(actor: Actor, upload_id: uuid.UUID, offset: int) -> tuple[Upload, StagedFile]:
    """Lock an upload for one PATCH at ``offset``; the caller closes the file.

    Raises:
        ProtocolError: 423 while another PATCH runs, 409 for another offset; and what ``find`` raises.
    """
    staged = _lock(actor, upload_id)
    try:
        upload = find(actor, upload_id)  # Now that nobody else can move it.
        if upload.state != UploadState.RECEIVING and not upload.is_part and upload.parts.exists():
            raise ProtocolError(403, _("This upload was made out of parts."), "upload_is_joined")
        if upload.state != UploadState.RECEIVING:
            _refuse_offset(upload.length)
        present = staged.settle(upload.offset)
        with contextlib.suppress(OSError):  # What was cut off has gone back; when somebody took it, what fits counts.
            take_room(staged.descriptor, upload.length)
        if present != upload.offset:
            uploads.upload_advance(upload_id=upload_id, from_offset=upload.offset, to_offset=present)
            upload.offset = present
        if present != offset:
            _refuse_offset(present)
    except BaseException:
        staged.close()
        raise
    return upload, staged


def _lock(actor: Actor, upload_id: uuid.UUID) -> StagedFile:
    """Open the bytes of an upload. For writing to them the actor still needs ``find``."""
    path = uploads.staging_path(upload_id)
    try:
        try:
            return StagedFile(path, is_new=False)
        except FileNotFoundError:
            # The disk has lost them; nobody makes files for uploads that are not there.
            if find(actor, upload_id).part_bytes:
                told = _("The bytes of this upload go to the store, in parts.")
                raise ProtocolError(409, told, "upload_in_parts") from None
            return StagedFile(path)
    except Busy:
        raise ProtocolError(423, _("Another request writes to this upload."), "locked") from None


def _refuse_offset(present: int) -> NoReturn:
    detail = _("The upload is at byte %(offset)d.") % {"offset": present}
    raise ProtocolError(409, detail, "offset_mismatch")


def commit(
    upload: Upload, offset: int, committed: int, digest: RunningDigest | None, *, promise: Checksum | None = None
) -> int:
    """Record that ``offset`` bytes are there, and return it; with the last one, on the disk, the upload is received.

    ``digest`` is over all bytes, or None when nobody has read them all: then a worker does, and compares what it finds
    with ``promise``, what the client said about all bytes up to here.

    Raises:
        ValidationFailed: all bytes are there, and they are not those that were promised; the upload has failed.
    """
    if offset == upload.length:
        uploads.upload_received(
            upload_id=upload.pk,
            from_offset=committed,
            sha256=digest.sha256.hex() if digest else "",
            promised=_promised(promise),
        )
    elif offset != committed:
        uploads.upload_advance(upload_id=upload.pk, from_offset=committed, to_offset=offset)
    return offset


def _promised(promise: Checksum | None) -> Digests:
    if promise is None:
        return Digests()
    is_sha256 = promise.algorithm == SHA256_PREFIX
    return Digests(sha256=promise.digest.hex()) if is_sha256 else Digests(xxh3=promise.digest.hex())


def terminate(actor: Actor, upload_id: uuid.UUID) -> None:
    """End an upload and delete its bytes; 423 while a PATCH runs."""
    upload = find(actor, upload_id)
    if upload.state == UploadState.STORED:
        raise ProtocolError(410, _("The file belongs to its version already."), "gone")
    if upload.part_bytes:
        uploads.upload_terminate(upload_id=upload_id, actor=actor)
        return
    staged = _lock(actor, upload_id)
    with staged:
        uploads.upload_terminate(upload_id=upload_id, actor=actor)
        uploads.staging_path(upload_id).unlink(missing_ok=True)
