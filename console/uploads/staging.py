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
# What disks and file systems want offsets, lengths and memory to be a multiple of, when bytes go past the page cache.
BLOCK_BYTES = 4096
_LEAST_DIRECT_BYTES = 64 * 1024


class Busy(Exception):
    """Somebody else writes to this upload."""


class StagedFile:
    """An open staging file under an exclusive lock, which ends with the process that holds it.

    Whole blocks go past the page cache where the file system can do that: filling the cache with gigabytes that nobody
    reads soon costs more than hashing them, and a flush at the end has nothing left to do.

    Raises:
        Busy: on opening, when the lock is taken.
        FileNotFoundError: likewise, there is no such file and it is not to be made.
        OSError: the disk is full or broken.
    """

    def __init__(self, path: Path, *, is_new: bool = True) -> None:
        create = os.O_CREAT if is_new else 0
        self._descriptor = os.open(path, os.O_RDWR | create | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            if isinstance(error, BlockingIOError):
                raise Busy from None
            raise
        self.offset = 0
        self._is_open = True
        try:
            self._direct = os.open(path, os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
        except OSError:
            self._direct = -1  # a file system in memory, for example
        # A request may be cancelled while a thread still writes for it; its number must not be another file's by then.
        self._lock = threading.Lock()

    @property
    def is_direct(self) -> bool:
        """Whether large pieces go to the disk at once."""
        return self._direct >= 0

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

    def append(self, chunk: bytes | bytearray | memoryview) -> None:
        """Write all of ``chunk``. After an OSError ``offset`` counts what was written."""
        view = memoryview(chunk)
        with self._lock:
            if not self._is_open:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            while view:
                written = self._write(view)
                self.offset += written
                view = view[written:]

    def _write(self, view: memoryview) -> int:
        whole = len(view) - len(view) % BLOCK_BYTES
        if self.is_direct and whole >= _LEAST_DIRECT_BYTES and self.offset % BLOCK_BYTES == 0:
            try:
                return os.pwrite(self._direct, view[:whole], self.offset)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                # Its blocks are larger, or the memory does not lie on one.
                os.close(self._direct)
                self._direct = -1
        return os.pwrite(self._descriptor, view, self.offset)

    def sync(self) -> None:
        """Wait until the bytes are on the disk."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file and give up the lock."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                os.close(self._descriptor)
                if self.is_direct:
                    os.close(self._direct)

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
