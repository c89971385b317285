"""The beginning of a file of a version, as text."""

from __future__ import annotations

from registry.domain.previews import MAX_PREVIEW_BYTES, Preview, preview
from registry.domain.storable import storable_text
from registry.models import VersionFile
from registry.storage import artifact_store


def file_preview(file: VersionFile) -> Preview:
    """Read the first bytes of a file and say whether they are text.

    Raises:
        StorageFailed: the store does not give them.
    """
    head = file_head(file, MAX_PREVIEW_BYTES)
    return preview(head, file.blob.size)


def file_text(file: VersionFile, limit: int) -> str:
    """Return a file of at most ``limit`` bytes as text; what is no UTF-8 becomes replacement characters."""
    return storable_text(file_head(file, limit).decode("utf-8", "replace"))


def file_head(file: VersionFile, limit: int) -> bytes:
    """Return the first ``limit`` bytes of a file."""
    return b"".join(artifact_store().open_range(file.blob.sha256, 0, limit))
