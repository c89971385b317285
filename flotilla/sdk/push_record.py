"""What a push has reached, in a file of the user's cache folder, so that one that was killed goes on where it stopped.

One file for each server, project, model and content. Each line of it is a JSON object with what has become known; what
counts is all lines together, and a last line that was not written whole counts as not there. Whoever works on a push
holds a lock on its file, which ends with the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

# Content counts as the same when sizes and this much of the beginning, middle and end of each file are; the server
# compares the digest of every byte before it goes on.
_SAMPLE_BYTES = 64 * 1024
# The server forgets an upload that nobody touches after a day, unless its operator says otherwise.
_KEPT_SECONDS = 14 * 24 * 3600.0


class PushRecord:
    """What is known about one push. As a context manager it lets go of its file, which stays until ``forget``.

    Without a file it remembers nothing beyond this process.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._facts: dict[str, Any] = {}
        if path is not None:
            # A cache that cannot be had is no reason not to push.
            with contextlib.suppress(OSError):
                self._descriptor = _locked(path)
        if self._descriptor is not None:
            self._facts = _facts(self._descriptor)
        self.is_resumed = bool(self._facts)
        if not self._facts:
            self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._close()

    @property
    def version(self) -> str:
        """The id of the version, empty while the server has not told it."""
        return str(self._facts.get("version", ""))

    @property
    def operation(self) -> str:
        """The id of the operation that checks it, empty while it is not submitted."""
        return str(self._facts.get("operation", ""))

    def key(self, purpose: str) -> dict[str, str]:
        """Return the header by which the server knows a write that it has done already."""
        return {"Idempotency-Key": f"{self._facts['key']}-{purpose}"}

    def was_sent(self, path: str, file: Path) -> bool:
        """Say whether a file is the one that was being sent, by size and time of change."""
        return bool(self._facts.get("files", {}).get(path) == _state(file))

    def note(self, **facts: Any) -> None:
        """Add what has become known."""
        self._facts |= facts
        if self._descriptor is not None:
            line = (json.dumps(facts) + "\n").encode()
            with contextlib.suppress(OSError):
                os.write(self._descriptor, line)

    def note_files(self, files: Mapping[str, Path]) -> None:
        """Add what the files look like now."""
        self.note(files={path: _state(file) for path, file in files.items()})

    def restart(self) -> None:
        """Forget what was known; what follows is another push."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
        self.is_resumed = False
        self._begin()

    def forget(self) -> None:
        """Remove the file: the push has come to its end."""
        if self._descriptor is not None and self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
        self._close()

    def _begin(self) -> None:
        self._facts = {}
        self.note(key=uuid.uuid4().hex)

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def record_of(folder: Path, *, what: Mapping[str, Any], files: Mapping[str, Path]) -> PushRecord:
    """Return the record of a push of ``files`` in a folder of records.

    ``what``: everything else that makes it this push (server, project, model, facts about the version), as JSON has it.

    Raises:
        OSError: a file cannot be read.
    """
    whole = {"what": dict(what), "files": {path: _fingerprint(file) for path, file in files.items()}}
    name = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
    _remove_old(folder)
    return PushRecord(folder / f"{name}.push")


def _fingerprint(file: Path) -> list[Any]:
    size = file.stat().st_size
    digest = hashlib.sha256()
    with file.open("rb") as source:
        for start in sorted({0, max(0, (size - _SAMPLE_BYTES) // 2), max(0, size - _SAMPLE_BYTES)}):
            source.seek(start)
            digest.update(source.read(_SAMPLE_BYTES))
    return [size, digest.hexdigest()]


def _state(file: Path) -> list[int]:
    status = file.stat()
    return [status.st_size, status.st_mtime_ns]


def _locked(path: Path) -> int | None:
    """Open a file for this process alone; None when another one works on the same push.

    Raises:
        OSError: the folder cannot be written to.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(descriptor, 0o600)
            # Whoever had it may have removed it just before: then this is nobody's file any more.
            if os.fstat(descriptor).st_nlink:
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _facts(descriptor: int) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    whole, _newline, _rest = os.pread(descriptor, os.fstat(descriptor).st_size, 0).rpartition(b"\n")
    try:
        for line in whole.splitlines():
            facts |= json.loads(line)
    except (ValueError, TypeError):
        facts = {}
    if "key" not in facts:
        # Damaged, or its first line was not written whole: as if it were not there.
        os.ftruncate(descriptor, 0)
        return {}
    if _rest:
        os.ftruncate(descriptor, len(whole) + 1)
    return facts


def _remove_old(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for path in folder.glob("*.push"):
            if path.stat().st_mtime < time.time() - _KEPT_SECONDS:
                path.unlink(missing_ok=True)
