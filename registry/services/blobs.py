"""Content that comes from elsewhere than uploads, and collection of what no version holds any more."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from registry.models import Blob, VersionFile
from registry.storage import PARTS, StoredBlob, artifact_store, storage_key

# As often as the tidy task runs.
_TURN_SECONDS = 300


def blob_keep(path: Path) -> Blob:
    """Keep the content of a local file in the store and return its row. Nothing holds it yet: a grace time does.

    Raises:
        StorageFailed: the store did not take it.
    """
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    size, store = path.stat().st_size, artifact_store()
    if not store.exists(sha256):
        store.put_file(path, sha256)
    with transaction.atomic():
        values = {"size": size, "storage_key": storage_key(sha256)}
        Blob.objects.get_or_create(sha256=sha256, defaults=values)
        # Under the row's lock collection cannot take the content; it may have just before.
        blob = Blob.objects.select_for_update().get(sha256=sha256)
        if not store.exists(sha256):
            store.put_file(path, sha256)
    return blob


def blobs_due(now: datetime) -> QuerySet[Blob]:
    """Return the blobs that no version holds and that are older than the grace time."""
    held = VersionFile.objects.filter(blob=OuterRef("pk"))
    return Blob.objects.filter(~Exists(held), created_at__lt=_grace_ended(now)).order_by("created_at", "pk")


def blobs_collect(now: datetime, *, limit: int = 100) -> int:
    """Delete blobs without references that are older than the grace time, the oldest first; return how many.

    Concurrency: reuse locks the blob row too, so a blob is either reused or collected.
    """
    collected = 0
    for blob_id in list(blobs_due(now).values_list("pk", flat=True)[:limit]):
        with transaction.atomic():
            blob = Blob.objects.select_for_update(skip_locked=True).filter(pk=blob_id).first()
            if blob is None or VersionFile.objects.filter(blob=blob).exists():
                continue
            artifact_store().delete(blob.sha256)
            blob.delete()
            collected += 1
    return collected


def orphans_find(now: datetime, part: int) -> Iterator[StoredBlob]:
    """Yield the content in one of the store's ``PARTS`` that no row knows and that is older than the grace time.

    Raises:
        StorageFailed: the store cannot be listed.
    """
    end = _grace_ended(now)
    for listed in artifact_store().list_part(part):
        page = [one for one in listed if one.modified < end]
        known = set(Blob.objects.filter(sha256__in=[one.sha256 for one in page]).values_list("sha256", flat=True))
        yield from (one for one in page if one.sha256 not in known)


def orphans_collect(now: datetime, part: int, *, limit: int = 1000) -> int:
    """Delete up to ``limit`` of what ``orphans_find`` yields; return how many.

    Concurrency: whoever adds the same content waits for the row that stands here for a moment, and looks in the store
    afterwards (``blob_keep``, ``upload_store``).
    """
    collected = 0
    for orphan in islice(orphans_find(now, part), limit):
        with transaction.atomic():
            values = {"size": orphan.size, "storage_key": storage_key(orphan.sha256)}
            blob, is_ours = Blob.objects.get_or_create(sha256=orphan.sha256, defaults=values)
            if not is_ours:
                continue
            artifact_store().delete(orphan.sha256)
            blob.delete()
            collected += 1
    return collected


def orphans_collect_in_turn(now: datetime) -> int:
    """Collect orphans in the part whose turn it is: every five minutes another, so each of them about once a day."""
    return orphans_collect(now, int(now.timestamp() // _TURN_SECONDS) % PARTS)


def _grace_ended(now: datetime) -> datetime:
    return now - timedelta(hours=settings.BLOB_GRACE_HOURS)
