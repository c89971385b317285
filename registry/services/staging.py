"""The staging folder, where uploaded bytes wait until a worker has hashed them. Web and workers share it."""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path

from django.conf import settings
from django.db import transaction


def staging_path(upload_id: uuid.UUID) -> Path:
    """Return where the bytes of an upload are staged."""
    return Path(settings.STAGING_DIR) / str(upload_id)


def staged_remove(upload_id: uuid.UUID) -> None:
    """Delete the staged bytes of an upload after the commit; nothing happens when there are none."""
    path = staging_path(upload_id)

    def remove() -> None:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)

    transaction.on_commit(remove, robust=True)
