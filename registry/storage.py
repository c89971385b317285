"""The artifact store: content by SHA-256 in a folder or an object store (obstore)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def storage_key(sha256: str) -> str:
    """Return the key of a blob in the store: ``blobs/<first two>/<sha256>``."""
    return f"blobs/{sha256[:2]}/{sha256}"


class ArtifactStore:
    """Blobs by digest, at ``settings.ARTIFACT_STORE_URL``. Use ``artifact_store()``; safe to share among threads."""

    def __init__(self, url: str) -> None:
        raise NotImplementedError

    def put_file(self, path: Path, sha256: str) -> str:
        """Store a local file under its digest and return the storage key. Storing it again changes nothing.

        Raises:
            StorageFailed: one sentence, for example that the disk is full.
        """
        raise NotImplementedError

    def exists(self, sha256: str) -> bool:
        """Say whether the store has the blob."""
        raise NotImplementedError

    def open_range(self, sha256: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the bytes ``start`` (inclusive) to ``end`` (exclusive, None: all) in pieces of at most 1 MiB.

        Raises:
            StorageFailed: the blob is missing or unreadable (raised before the first piece).
        """
        raise NotImplementedError

    def copy_to(self, sha256: str, path: Path) -> None:
        """Write the blob to a local file.

        Raises:
            StorageFailed: it cannot be read or written.
        """
        raise NotImplementedError

    def presign(self, sha256: str, *, seconds: int = 900) -> str | None:
        """Return an address from which anybody may read the blob for a while; None on a local folder."""
        raise NotImplementedError

    def delete(self, sha256: str) -> None:
        """Remove the blob; nothing happens when it is absent."""
        raise NotImplementedError


def artifact_store() -> ArtifactStore:
    """Return the store of this process."""
    raise NotImplementedError
