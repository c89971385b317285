"""Resumable uploads by the tus protocol, version 1.0.0: cut connections go on where they stopped.

A file is read and hashed once, while it is sent: each chunk carries the digest of everything up to its end, and the
last one that of the whole (``blake3-prefix``), so that neither side hashes anything twice.
"""

from __future__ import annotations

import base64
import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

import httpx2

from flotilla.sdk.chunks import Chunks
from flotilla.sdk.transport import ApiError, Transport

_ATTEMPTS = 6
_TUS = {"Tus-Resumable": "1.0.0"}
# At once; more gain nothing on one connection and cost the server memory.
_FILES_AT_ONCE = 3
_CHECKSUM_MISMATCH = 460
_PAGE = {"page_size": "200"}
Progress = Callable[[int, int], None]
FileProgress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class FileThere:
    """What the server has of a file. ``location`` is where the rest goes, empty when all of it is there."""

    size: int
    offset: int
    sha256: str = ""
    location: str = ""

    @property
    def is_whole(self) -> bool:
        """Say whether nothing is missing."""
        return not self.location


def files_there(transport: Transport, version: str) -> dict[str, FileThere]:
    """Return what the server has of the files of a version that is being uploaded, by path.

    Raises:
        ApiError: refused.
    """
    found = {}
    for row in transport.pages(f"{version}uploads/", {**_PAGE, "state": "receiving,received,stored"}):
        location = f"/api/v1/uploads/{row['id']}" if row["state"] == "receiving" else ""
        offset = row["offset"] if location else row["length"]
        found[row["path"]] = FileThere(row["length"], offset, row["sha256"], location)
    for row in transport.pages(f"{version}files/", _PAGE):
        found[row["path"]] = FileThere(row["size"], row["size"], row["sha256"])
    return found


def is_same_content(file: Path, there: FileThere) -> bool:
    """Say whether a local file is what the server has; it is read only when the sizes agree."""
    if file.stat().st_size != there.size or not there.sha256:
        return False
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest() == there.sha256


def upload_files(
    transport: Transport,
    *,
    version: str,
    version_id: str,
    files: Mapping[str, Path],
    progress: FileProgress | None = None,
    there: Mapping[str, FileThere] | None = None,
) -> None:
    """Send the files of a version, several at once; what the caller can read on the server already is not sent.

    ``version`` is the address of the version. ``there`` is what the server has of them already (``files_there``).
    ``progress(path, sent, total)`` is called when a file begins, with what is there, and after each chunk; in bytes,
    from several threads, one at a time.

    Raises:
        ApiError: one was refused, or is still failing after several attempts; the others have been stopped.
    """
    there = there or {}
    missing = [file for path, file in files.items() if path not in there]
    known = _known_sizes(transport, version, (file.stat().st_size for file in missing))
    stopped: list[bool] = []
    telling = threading.Lock()

    def send(path: str, file: Path) -> None:
        if stopped:
            return
        size = file.stat().st_size
        begun = there.get(path)

        def tell(sent: int, total: int) -> None:
            if progress is not None:
                with telling:
                    progress(path, sent, total)

        is_there = begun.is_whole if begun else size in known and _attached(transport, version, path, file)
        tell(size if is_there else begun.offset if begun else 0, size)
        if is_there:
            return
        upload_file(
            transport,
            version_id=version_id,
            path=path,
            file=file,
            progress=tell,
            is_stopped=lambda: stopped,
            begun=begun,
        )

    def send_or_stop(path: str, file: Path) -> None:
        try:
            send(path, file)
        except BaseException:
            stopped.append(True)
            raise

    with ThreadPoolExecutor(max_workers=_FILES_AT_ONCE, thread_name_prefix="upload") as threads:
        running = [threads.submit(send_or_stop, path, file) for path, file in files.items()]
        try:
            wait(running, return_when=FIRST_EXCEPTION)
        except BaseException:
            stopped.append(True)
            raise
        for one in running:
            one.result()


def upload_file(
    transport: Transport,
    *,
    version_id: str,
    path: str,
    file: Path,
    progress: Progress | None = None,
    is_stopped: Callable[[], Any] = bool,
    begun: FileThere | None = None,
) -> None:
    """Send one file of a version, or the rest of one that was ``begun``.

    ``progress(sent, total)`` is called after each chunk, in bytes. ``is_stopped`` is asked between chunks.

    Raises:
        ApiError: refused, or still failing after several attempts.
    """
    size = file.stat().st_size
    with file.open("rb") as source:
        if begun is not None and begun.location:
            if begun.size == size:
                try:
                    return _send_chunks(transport, begun.location, source, size, progress, is_stopped, begun.offset)
                except ApiError as error:
                    # What is there is not the beginning of this file: then all of it is sent.
                    if error.status != _CHECKSUM_MISMATCH:
                        raise
            transport.send("DELETE", begun.location, headers=_TUS)
        metadata = {"version": version_id, "path": path}
        words = ",".join(f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in metadata.items())
        created = _create(transport, {**_TUS, "Upload-Length": str(size), "Upload-Metadata": words})
        return _send_chunks(transport, created.headers["Location"], source, size, progress, is_stopped)


def _create(transport: Transport, headers: Mapping[str, str]) -> httpx2.Response:
    """Begin an upload; once more while the server says that it did nothing because it is overloaded."""
    for attempt in range(1, _ATTEMPTS):
        try:
            return transport.send("POST", "uploads/", headers=headers)
        except ApiError as error:
            if error.status != 503:
                raise
        time.sleep(min(2**attempt * 0.1, 5))
    return transport.send("POST", "uploads/", headers=headers)


def _send_chunks(
    transport: Transport,
    location: str,
    source: BufferedReader,
    size: int,
    progress: Progress | None,
    is_stopped: Callable[[], Any],
    offset: int = 0,
) -> None:
    failures = 0
    with Chunks(source, size) as chunks:
        while offset < size and not is_stopped():
            chunk = chunks.at(offset)
            start = time.monotonic()
            try:
                answer = transport.send(
                    "PATCH",
                    location,
                    content=chunk,
                    headers={
                        **_TUS,
                        "Content-Length": str(len(chunk.content)),
                        "Upload-Offset": str(offset),
                        "Upload-Checksum": chunk.checksum,
                        "Content-Type": "application/offset+octet-stream",
                    },
                )
                offset, failures = int(answer.headers["Upload-Offset"]), 0
                chunks.note_success(time.monotonic() - start)
            except ApiError as error:
                failures += 1
                chunks.note_failure()
                if failures >= _ATTEMPTS or error.status not in (0, 409, 423, 460, 502, 503, 504):
                    raise
                time.sleep(min(2**failures * 0.1, 5))
                known = transport.send("HEAD", location, headers=_TUS)
                offset = int(known.headers["Upload-Offset"])
            if progress is not None:
                progress(offset, size)


def _known_sizes(transport: Transport, version: str, sizes: Iterable[int]) -> frozenset[int]:
    """Return those sizes at which the caller can read content already: only such files are worth hashing first."""
    found = transport.send("POST", f"{version}files/known", json={"sizes": sorted(set(sizes))[:10_000]}).json()
    return frozenset(found["sizes"])


def _attached(transport: Transport, version: str, path: str, file: Path) -> bool:
    """Let the server take content that it has; return whether it did."""
    with file.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256").hexdigest()
    try:
        transport.send("POST", f"{version}files/", json={"path": path, "sha256": digest})
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    return True
