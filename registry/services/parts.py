"""Parts of an upload that were sent beside each other: on the disk, and when their whole ends. For workers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from registry.domain.actors import Actor
from registry.models import Upload, UploadState
from registry.services.staging import staged_remove, staging_path
from registry.services.transition import move

_COPY_BYTES = 64 << 20


def parts_join(upload: Upload) -> None:
    """Make the staged file of a whole out of those of its parts, which go one after the other.

    Doing it again goes on where it stopped: the first part becomes the whole, and each other one is appended, and on
    the disk, before its own file goes. So it takes room for one part more, not for all of it twice.

    Raises:
        OSError: a part is not there, or the disk is full; what was joined stays joined.
    """
    parts = list(upload.parts.order_by("position"))
    if parts:
        join_files(staging_path(upload.pk), [(staging_path(part.pk), part.length) for part in parts])


def parts_end(upload: Upload, to: UploadState, cause: str) -> None:
    """Move the parts of a whole that has ended along, and delete their bytes."""
    for part in upload.parts.filter(state=UploadState.RECEIVED):
        move(part, "state", to, cause=cause, actor=Actor.system("uploads"))
        staged_remove(part.pk)


def join_files(target: Path, parts: Sequence[tuple[Path, int]]) -> None:
    """Append files of known lengths to ``target``, which the first one becomes; see ``parts_join``."""
    first, _length = parts[0]
    with contextlib.suppress(FileExistsError, FileNotFoundError):  # It was begun before.
        os.link(first, target)
    sink = os.open(target, os.O_RDWR | os.O_CLOEXEC)
    try:
        end = 0
        for path, length in parts:
            if os.fstat(sink).st_size < end + length:
                _append(sink, path, end, length)
            end += length
            path.unlink(missing_ok=True)
    finally:
        os.close(sink)


def _append(sink: int, path: Path, start: int, length: int) -> None:
    os.ftruncate(sink, start)
    os.lseek(sink, start, os.SEEK_SET)
    with path.open("rb") as source:
        done = 0
        while done < length:
            # In the kernel, and without copying at all where the file system shares blocks.
            count = os.copy_file_range(source.fileno(), sink, min(_COPY_BYTES, length - done))
            if not count:
                raise FileNotFoundError(f"{path} ends early")
            done += count
    os.fsync(sink)
