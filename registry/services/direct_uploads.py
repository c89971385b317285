"""Uploads whose bytes go to the object store without passing through here: in parts, to signed addresses.

Each part is an object of its own below ``staging/<upload>/``. A worker reads them once, in their order, to hash them
and to write the blob (``ArtifactStore.join_parts``); nothing becomes a blob under a digest not computed here.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.domain.parts import part_count, part_size, part_sizes
from registry.errors import Conflict, InvalidTransition, ValidationFailed
from registry.models import ModelVersion, Upload, UploadState
from registry.services.digests import Digests
from registry.services.permissions import require
from registry.services.uploads import upload_create, upload_received
from registry.storage import artifact_store

SIGNED_SECONDS = 900
MOST_AT_ONCE = 100
_RUNNING = (UploadState.RECEIVING, UploadState.RECEIVED)
_MOST_TOLD = 100


@dataclass(frozen=True, slots=True)
class PartAddress:
    """Where one part may be PUT until ``expires_at``. Whoever has the address may: it is a secret."""

    number: int
    size: int
    url: str
    headers: dict[str, str]
    expires_at: datetime


def direct_upload_create(*, version: ModelVersion, path: str, length: int, actor: Actor) -> Upload:
    """Begin an upload of ``length`` bytes to ``path`` of a version, in parts of ``part_bytes``.

    Raises:
        Conflict: this installation takes uploads by tus only, or the path is taken.
        ValidationFailed: a bad path or length.
        Immutable: the version is not uploading.
        QuotaExceeded: too large, or the project has no room left.
    """
    if not settings.DIRECT_UPLOADS or artifact_store().sign_part(uuid.UUID(int=0), 1, seconds=1) is None:
        require(actor, "version.write", version)
        raise Conflict(_("This server takes uploads by the tus protocol only."))
    return upload_create(version=version, path=path, length=length, part_bytes=part_size(length), actor=actor)


def parts_sign(*, upload: Upload, numbers: Sequence[int]) -> list[PartAddress]:
    """Return addresses for parts, and let the upload live on; ``offset`` follows what the store has.

    Raises:
        InvalidTransition: the upload has ended.
        ValidationFailed: a number that no part has.
    """
    _require_receiving(upload)
    count = part_count(upload.length, upload.part_bytes)
    if wrong := [number for number in numbers if not 1 <= number <= count]:
        message = _("The upload has parts 1 to %(count)d, no part %(number)d.") % {"count": count, "number": wrong[0]}
        raise ValidationFailed(message, errors=[{"field": "numbers", "message": message}])
    present = sum(parts_present(upload=upload).values())
    now = timezone.now()
    expires_at = now + timedelta(hours=settings.UPLOAD_EXPIRY_HOURS)
    offset = min(present, upload.length)
    if not Upload.objects.filter(pk=upload.pk, state=UploadState.RECEIVING).update(
        offset=offset, expires_at=expires_at
    ):
        raise InvalidTransition(_("The upload has ended; start a new one."))
    store, sizes = artifact_store(), part_sizes(upload.length, upload.part_bytes)
    until = now + timedelta(seconds=SIGNED_SECONDS)
    addresses = []
    for number in sorted(set(numbers)):
        signed = store.sign_part(upload.pk, number, seconds=SIGNED_SECONDS)
        if signed is None:
            raise Conflict(_("The store signs no addresses any more; use the tus protocol."))
        addresses.append(PartAddress(number, sizes[number - 1], signed, store.part_headers, until))
    return addresses


def parts_present(*, upload: Upload) -> dict[int, int]:
    """Return the parts that the store has whole, number -> size; those of another size count as missing.

    Raises:
        StorageFailed: the store does not answer.
    """
    sizes = part_sizes(upload.length, upload.part_bytes)
    found = artifact_store().list_parts(upload.pk)
    return {number: size for number, size in found.items() if 1 <= number <= len(sizes) and sizes[number - 1] == size}


def direct_upload_complete(*, upload: Upload, sha256: str) -> Upload:
    """Note that all parts are there, and what digest they promise together; a worker compares. Again changes nothing.

    Raises:
        ValidationFailed: parts are missing; ``errors`` names the first hundred.
        InvalidTransition: the upload has ended.
    """
    if upload.state in (UploadState.RECEIVED, UploadState.STORED):
        return upload
    _require_receiving(upload)
    present = parts_present(upload=upload)
    missing = [number for number in range(1, part_count(upload.length, upload.part_bytes) + 1) if number not in present]
    if missing:
        told = [{"field": f"parts.{number}", "message": _("The part is missing.")} for number in missing[:_MOST_TOLD]]
        message = _("%(count)d part(s) are missing, the first is %(number)d.")
        raise ValidationFailed(message % {"count": len(missing), "number": missing[0]}, errors=told)
    with transaction.atomic():
        held = Upload.objects.select_for_update().get(pk=upload.pk)
        return upload_received(upload_id=upload.pk, from_offset=held.offset, promised=Digests(sha256))


def parts_collect(now: datetime, *, limit: int = 1000) -> int:
    """Delete up to ``limit`` parts of uploads that are not under way; return how many.

    Those of ended uploads and of deleted models, and what somebody still sent to a signed address afterwards.

    Raises:
        StorageFailed: the store cannot be listed.
    """
    collected = 0
    for page in artifact_store().list_staged():
        running = Upload.objects.filter(pk__in={one.upload_id for one in page}, state__in=_RUNNING)
        kept = set(running.values_list("pk", flat=True))
        due = [one for one in page if one.upload_id not in kept][: limit - collected]
        artifact_store().delete_parts(due)
        collected += len(due)
        if collected >= limit:
            break
    return collected


def _require_receiving(upload: Upload) -> None:
    if upload.state != UploadState.RECEIVING or upload.expires_at <= timezone.now():
        raise InvalidTransition(upload.error or _("The upload has ended; start a new one."))
