"""The bytes of one upload in the staging folder, where workers read them. Blocking: call from a thread."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any, Self

# The disk, or what we may use of it, has no room left.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class Busy(Exception):
    """Somebody else writes to this upload."""


class StagedFile:
    """An open staging file under an exclusive lock, which ends with the process that holds it.

    Raises:
        Busy: on opening, when the lock is taken.
        OSError: the disk is full or broken.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            if isinstance(error, BlockingIOError):
                raise Busy from None
            raise
        self.offset = 0

    def settle(self, offset: int) -> int:
        """Make the file end at ``offset``, the bytes that count, or earlier when fewer are there; return where it ends.

        What lies behind was never accepted: a chunk that failed its checksum, or one whose process died.
        """
        size = os.fstat(self._descriptor).st_size
        if size > offset:
            os.ftruncate(self._descriptor, offset)
        self.offset = min(size, offset)
        return self.offset

    def append(self, chunk: bytes | bytearray, hasher: Any | None = None) -> None:
        """Write all of ``chunk`` and feed it to ``hasher``. After an OSError ``offset`` counts what was written."""
        view = memoryview(chunk)
        while view:
            written = os.pwrite(self._descriptor, view, self.offset)
            if hasher is not None:
                hasher.update(view[:written])
            self.offset += written
            view = view[written:]

    def sync(self) -> None:
        """Wait until the bytes are on the disk."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file and give up the lock."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def staged_size(path: Path) -> int:
    """Return how many bytes are on disk, 0 when there is no file."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
