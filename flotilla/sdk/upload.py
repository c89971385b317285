"""Resumable uploads by the tus protocol, version 1.0.0: cut connections go on where they stopped.

A file is read and hashed once, while it is sent: the last chunk carries the digest of the whole (``xxh3-prefix``), so
that neither side hashes anything twice.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from flotilla.sdk import parts, tus
from flotilla.sdk.chunks import Line
from flotilla.sdk.direct_upload import StoreUnreachable, begin_direct, send_direct
from flotilla.sdk.transport import ApiError, Transport
from flotilla.sdk.tus import FileThere, Progress

__all__ = ["FileProgress", "FileThere", "files_there", "is_same_content", "upload_file", "upload_files"]

# At once; more gain nothing on one connection and cost the server memory.
_FILES_AT_ONCE = 3
_PAGE = {"page_size": "200"}
FileProgress = Callable[[str, int, int], None]


def files_there(transport: Transport, version: str) -> dict[str, FileThere]:
    """Return what the server has of the files of a version that is being uploaded, by path.

    Raises:
        ApiError: refused.
    """
    found: dict[str, FileThere] = {}
    in_parts: dict[str, dict[int, FileThere]] = {}
    for row in transport.pages(f"{version}uploads/", {**_PAGE, "state": "receiving,received,stored"}):
        location = f"/api/v1/uploads/{row['id']}"
        offset = row["offset"] if row["state"] == "receiving" else row["length"]
        if row["part_bytes"] and row["state"] == "receiving":
            found[row["path"]] = FileThere(row["length"], offset, direct=f"{version}uploads/{row['id']}/")
        elif not row["is_part"]:
            rest = location if row["state"] == "receiving" else ""
            found[row["path"]] = FileThere(row["length"], offset, row["sha256"], rest)
        elif row["whole"] is None:
            in_parts.setdefault(row["path"], {})[row["position"]] = FileThere(row["length"], offset, location=location)
    for path, some in in_parts.items():
        sizes = [one.size for one in some.values()], [one.offset for one in some.values()]
        found[path] = FileThere(sum(sizes[0]), sum(sizes[1]), parts=some)
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
    ``progress(path, sent, total)`` is called when a file begins, with what is there, and now and then; in bytes,
    from several threads, one at a time.

    Raises:
        ApiError: one was refused, or is still failing after several attempts; the others have been stopped.
    """
    there = there or {}
    missing = [file for path, file in files.items() if path not in there]
    known = _known_sizes(transport, version, (file.stat().st_size for file in missing))
    line = Line()
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
            version=version,
            version_id=version_id,
            path=path,
            file=file,
            progress=tell,
            is_stopped=lambda: stopped,
            begun=begun,
            line=line,
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
    version: str,
    version_id: str,
    path: str,
    file: Path,
    progress: Progress | None = None,
    is_stopped: Callable[[], Any] = bool,
    begun: FileThere | None = None,
    line: Line | None = None,
) -> None:
    """Send one file of a version, or the rest of one that was ``begun``: in parts to the store, or by tus.

    ``progress(sent, total)`` is called now and then, in bytes; what got lost on the way counts no more.
    ``is_stopped`` is asked as often. ``line`` is what other files have found out.

    Raises:
        ApiError: refused, or still failing after several attempts.
    """
    size = file.stat().st_size
    line = line or Line()
    if begun is None or begun.direct:
        if _sent_directly(transport, version, path, file, begun, progress, is_stopped, line):
            return None
        begun = None
    metadata = {"version": version_id, "path": path}
    there = begun.parts if begun is not None else {}
    if there or (size >= parts.LEAST_BYTES and not (begun is not None and begun.location)):
        return parts.send(transport, metadata, file, there, progress=progress, is_stopped=is_stopped, line=line)
    words = {"Upload-Length": str(size)}
    with file.open("rb") as source:
        tus.send(transport, metadata, words, source, size, progress, is_stopped, line, begun=begun)
    return None


def _sent_directly(
    transport: Transport,
    version: str,
    path: str,
    file: Path,
    begun: FileThere | None,
    progress: Progress | None,
    is_stopped: Callable[[], Any],
    line: Line,
) -> bool:
    """Send a file, or the rest of it, to the object store; return False when the server has to take it."""
    size = file.stat().st_size
    upload = begun.direct if begun else begin_direct(transport, version, path, size, line)
    if upload is None:
        return False
    if begun is None or begun.size == size:
        try:
            send_direct(transport, upload, file, size, progress, is_stopped)
        except StoreUnreachable:
            line.is_direct = False  # The server takes the bytes itself, of other files too.
        else:
            return True
    tus.end(transport, f"/api/v1/uploads/{upload.rstrip('/').rpartition('/')[2]}")
    return False


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
