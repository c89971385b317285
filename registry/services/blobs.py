"""Content that comes from elsewhere than uploads, and collection of what no version holds any more."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from pathlib import Path

from blake3 import blake3
from django.db import transaction
from django.db.models import Exists, OuterRef

from registry.models import Blob, VersionFile
from registry.storage import artifact_store, storage_key

_READ_SIZE = 4 * 1024 * 1024


def blob_keep(path: Path) -> Blob:
    """Keep the content of a local file in the store and return its row. Nothing holds it yet: a grace time does.

    Raises:
        StorageFailed: the store did not take it.
    """
    first, second, size = hashlib.sha256(), blake3(), 0
    with path.open("rb") as file:
        while piece := file.read(_READ_SIZE):
            first.update(piece)
            second.update(piece)
            size += len(piece)
    sha256, store = first.hexdigest(), artifact_store()
    if not store.exists(sha256):
        store.put_file(path, sha256)
    with transaction.atomic():
        values = {"blake3": second.hexdigest(), "size": size, "storage_key": storage_key(sha256)}
        Blob.objects.get_or_create(sha256=sha256, defaults=values)
        # Under the row's lock collection cannot take the content; it may have just before.
        blob = Blob.objects.select_for_update().get(sha256=sha256)
        if not store.exists(sha256):
            store.put_file(path, sha256)
    return blob


def blobs_collect(now: datetime, *, grace_seconds: int = 24 * 3600, limit: int = 100) -> int:
    """Delete blobs without references that are older than the grace time; return how many.

    Concurrency: reuse locks the blob row too, so a blob is either reused or collected.
    """
    held = VersionFile.objects.filter(blob=OuterRef("pk"))
    loose = Blob.objects.filter(~Exists(held), created_at__lt=now - timedelta(seconds=grace_seconds))
    collected = 0
    for blob_id in list(loose.values_list("pk", flat=True)[:limit]):
        with transaction.atomic():
            blob = Blob.objects.select_for_update(skip_locked=True).filter(pk=blob_id).first()
            if blob is None or VersionFile.objects.filter(blob=blob).exists():
                continue
            artifact_store().delete(blob.sha256)
            blob.delete()
            collected += 1
    return collected
