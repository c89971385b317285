"""Resumable uploads: rows follow the bytes that lie in the staging folder."""

from __future__ import annotations

import uuid
from datetime import datetime
from pathlib import Path

from registry.domain.actors import Actor
from registry.models import Blob, ModelVersion, Upload


def staging_path(upload_id: uuid.UUID) -> Path:
    """Return where the bytes of an upload are staged."""
    raise NotImplementedError


def upload_create(*, version: ModelVersion, path: str, length: int, sha256: str = "", actor: Actor) -> Upload:
    """Begin an upload of ``length`` bytes to ``path`` of a version.

    Raises:
        ValidationFailed: a bad path, length or digest.
        Immutable: the version is not uploading.
        Conflict: the path is taken by a file or a running upload.
        QuotaExceeded: too large, or the project has no room left.
    """
    raise NotImplementedError


def upload_advance(*, upload_id: uuid.UUID, from_offset: int, to_offset: int) -> None:
    """Record that the staged file now has ``to_offset`` bytes, if it had ``from_offset`` until now.

    Raises:
        StaleWrite: another request moved the offset.
        InvalidTransition: the upload is not receiving.
    """
    raise NotImplementedError


def upload_received(*, upload_id: uuid.UUID) -> Upload:
    """Note that the last byte is there: receiving -> received. Doing it again changes nothing.

    Raises:
        InvalidTransition: bytes are missing, or it has ended.
    """
    raise NotImplementedError


def upload_store(*, upload_id: uuid.UUID) -> Blob:
    """Hash the staged bytes, keep them as a blob, and add the file to its version: received -> stored.

    For workers: reads the whole file. Doing it again returns the same blob.

    Raises:
        ValidationFailed: the digest is not the one the client promised; the upload has failed.
        StorageFailed: one sentence (a full disk); the upload stays received and may be tried again.
    """
    raise NotImplementedError


def upload_terminate(*, upload_id: uuid.UUID, actor: Actor) -> None:
    """End an upload and delete its bytes."""
    raise NotImplementedError


def uploads_expire(now: datetime) -> int:
    """End uploads past their expiry, abandon versions without any activity since, delete staged bytes of neither.

    Returns how many uploads ended.
    """
    raise NotImplementedError
