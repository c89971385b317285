"""The bytes of one upload in the staging folder, where workers read them. Blocking: call from a thread."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

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
        self._is_open = True
        # A request may be cancelled while a thread still writes for it; its number must not be another file's by then.
        self._lock = threading.Lock()

    @property
    def descriptor(self) -> int:
        """The number of the open file, for reading what is there."""
        return self._descriptor

    def settle(self, offset: int) -> int:
        """Make the file end at ``offset``, the bytes that count, or earlier when fewer are there; return where it ends.

        What lies behind was never accepted: a chunk that failed its checksum, or one whose process died.
        """
        size = os.fstat(self._descriptor).st_size
        if size > offset:
            os.ftruncate(self._descriptor, offset)
        self.offset = min(size, offset)
        return self.offset

    def append(self, chunk: bytes | bytearray) -> None:
        """Write all of ``chunk``. After an OSError ``offset`` counts what was written."""
        view = memoryview(chunk)
        with self._lock:
            if not self._is_open:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            while view:
                written = os.pwrite(self._descriptor, view, self.offset)
                self.offset += written
                view = view[written:]

    def sync(self) -> None:
        """Wait until the bytes are on the disk."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file and give up the lock."""
        with self._lock:
            if self._is_open:
                self._is_open = False
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


class Flusher:
    """Brings staged bytes to the disk while more arrive, so that little is left to wait for at the last one.

    Nothing depends on it: what counts is ``StagedFile.sync`` before an upload is called received.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="flusher")
        self._asked: set[Path] = set()

    def ask(self, path: Path) -> None:
        """Flush a file soon; asking again before it was done changes nothing."""
        if path not in self._asked:
            self._asked.add(path)
            self._thread.submit(self._flush, path)

    def _flush(self, path: Path) -> None:
        self._asked.discard(path)
        # A descriptor of its own: a copied one would hold the writer's lock.
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
