"""Blobs on the node's disk, by SHA-256: verified before they get their name, bounded by a quota.

Layout: ``<root>/<first two hex digits>/<sha256>``; a download in progress is the same path with ``.part``.

Concurrency: every method may be called from worker threads; one lock guards the index. The lock is never held
while content is read or hashed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_CHUNK_BYTES = 1 << 20
_PART = ".part"


class BlobError(Exception):
    """Something about a blob is not acceptable. ``code`` is stable: digest_mismatch, disk_quota, in_use, not_found."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """One verified blob. Units: bytes, seconds since the epoch."""

    sha256: str
    size: int
    last_used: float
    in_use: bool


@dataclass(slots=True)
class _Entry:
    size: int
    last_used: float


def is_sha256(text: str) -> bool:
    """Tell whether ``text`` is a lower-case hexadecimal SHA-256."""
    return _SHA256.match(text) is not None


def file_sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file. Blocks: call it in a thread."""
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


class BlobStore:
    """The verified blobs of one node. ``quota_bytes`` 0 means no limit."""

    def __init__(self, root: Path, quota_bytes: int = 0) -> None:
        self.root = root
        self.quota_bytes = quota_bytes
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._pinned: frozenset[str] = frozenset()
        self._reserved: dict[str, int] = {}
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._scan()

    def __repr__(self) -> str:
        return f"<BlobStore {len(self._entries)} blobs, {self.used_bytes()} of {self.quota_bytes or 'unlimited'} bytes>"

    def path(self, sha256: str) -> Path:
        """Return where the blob is, or would be.

        Raises:
            BlobError: not_found when ``sha256`` is not a digest (it could otherwise name any path).
        """
        if not is_sha256(sha256):
            raise BlobError("not_found", f"'{sha256[:80]}' is not a SHA-256 digest")
        return self.root / sha256[:2] / sha256

    def partial_path(self, sha256: str) -> Path:
        """Return where an unfinished download of the blob is kept, with its folder made."""
        path = self.path(sha256)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return path.with_name(path.name + _PART)

    def has(self, sha256: str) -> bool:
        """Tell whether the blob is here. It was verified when it came; ``verify`` looks again."""
        return sha256 in self._entries

    def size(self, sha256: str) -> int:
        """Return the size in bytes of a blob that is here, else 0."""
        entry = self._entries.get(sha256)
        return entry.size if entry else 0

    def used_bytes(self) -> int:
        """Return the bytes of all blobs."""
        return sum(entry.size for entry in list(self._entries.values()))

    def pin(self, digests: Collection[str]) -> None:
        """Replace the set of blobs that are in use, which are never evicted nor deleted."""
        with self._lock:
            self._pinned = frozenset(digests)

    def commit(self, sha256: str, size: int) -> None:
        """Verify the finished download of a blob and give it its name. Blocks: call it in a thread.

        Raises:
            BlobError: digest_mismatch; the download is deleted, since nothing of it can be trusted.
        """
        part = self.partial_path(sha256)
        actual_size = part.stat().st_size
        actual = file_sha256(part) if actual_size == size else ""
        if actual != sha256:
            part.unlink(missing_ok=True)
            found = f"SHA-256 {actual}" if actual else f"{actual_size} bytes instead of {size}"
            raise BlobError("digest_mismatch", f"blob {sha256} has the wrong content: {found}")
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.chmod(0o400)
        part.rename(self.path(sha256))
        with self._lock:
            self._entries[sha256] = _Entry(size, time.time())

    def verify(self, sha256: str) -> bool:
        """Hash a blob again; a corrupted one is removed and False returned. Blocks: call it in a thread."""
        path = self.path(sha256)
        try:
            intact = file_sha256(path) == sha256
        except FileNotFoundError:
            intact = False
        if not intact:
            self._forget(sha256)
            return False
        self.touch(sha256)
        return True

    def read(self, sha256: str, offset: int, size: int) -> bytes:
        """Return a piece of a blob, empty behind its end. Blocks: call it in a thread.

        Raises:
            BlobError: not_found.
        """
        try:
            with self.path(sha256).open("rb") as source:
                source.seek(offset)
                return source.read(size)
        except FileNotFoundError:
            raise BlobError("not_found", f"blob {sha256} is not here") from None

    def touch(self, sha256: str) -> None:
        """Mark a blob as used now; the order of eviction survives restarts through the file's time."""
        now = time.time()
        with self._lock:
            entry = self._entries.get(sha256)
            if entry:
                entry.last_used = now
        with contextlib.suppress(OSError):
            os.utime(self.path(sha256), (now, now))

    def reserve(self, sha256: str, size: int) -> None:
        """Make room for a blob that is about to come; the room is held until ``release``.

        The least recently used blobs, none of them in use, are evicted as far as needed.

        Raises:
            BlobError: disk_quota when that is not possible; nothing is evicted in vain then.
        """
        with self._lock:
            if self.quota_bytes:
                others = sum(held for digest, held in self._reserved.items() if digest != sha256)
                used = sum(entry.size for entry in self._entries.values())
                self._evict(used + others + size - self.quota_bytes, size)
            self._reserved[sha256] = size

    def release(self, sha256: str) -> None:
        """Give back what ``reserve`` held; harmless when nothing was."""
        with self._lock:
            self._reserved.pop(sha256, None)

    def _evict(self, excess: int, size: int) -> None:
        if excess <= 0:
            return
        free = sorted(
            (entry.last_used, digest, entry.size)
            for digest, entry in self._entries.items()
            if digest not in self._pinned
        )
        if sum(freed for _, _, freed in free) < excess:
            raise BlobError(
                "disk_quota",
                f"{size} bytes do not fit: the quota is {self.quota_bytes} bytes and blobs in use are never evicted",
            )
        for _, digest, freed in free:
            if excess <= 0:
                break
            self._entries.pop(digest)
            self.path(digest).unlink(missing_ok=True)
            excess -= freed

    def delete(self, sha256: str) -> bool:
        """Remove one blob; False when it is not here.

        Raises:
            BlobError: in_use.
        """
        with self._lock:
            if sha256 in self._pinned:
                raise BlobError("in_use", f"blob {sha256} is in use")
            known = self._entries.pop(sha256, None) is not None
        if known:
            self.path(sha256).unlink(missing_ok=True)
        return known

    def list(self) -> list[BlobInfo]:
        """Return all blobs, least recently used first."""
        with self._lock:
            infos = [
                BlobInfo(digest, entry.size, entry.last_used, digest in self._pinned)
                for digest, entry in self._entries.items()
            ]
        return sorted(infos, key=lambda info: (info.last_used, info.sha256))

    def drop_partials(self, keep: Iterable[str]) -> int:
        """Delete unfinished downloads of blobs that nobody wants any more; return how many."""
        wanted = set(keep)
        dropped = 0
        for part in self.root.glob(f"*/*{_PART}"):
            if part.name.removesuffix(_PART) not in wanted:
                part.unlink(missing_ok=True)
                dropped += 1
        return dropped

    def _forget(self, sha256: str) -> None:
        with self._lock:
            self._entries.pop(sha256, None)
        self.path(sha256).unlink(missing_ok=True)

    def _scan(self) -> None:
        for path in self.root.glob("??/*"):
            if is_sha256(path.name) and path.is_file():
                stat = path.stat()
                self._entries[path.name] = _Entry(stat.st_size, stat.st_mtime)
