"""Collection of content that no version holds any more."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef

from registry.models import Blob, VersionFile
from registry.storage import artifact_store


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
