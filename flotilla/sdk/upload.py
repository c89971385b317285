"""Resumable uploads by the tus protocol, version 1.0.0: cut connections go on where they stopped.

A file is read and hashed once, while it is sent: each chunk carries the digest of everything up to its end, and the
last one that of the whole (``sha256-prefix``), so that neither side hashes anything twice.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import httpx2

from flotilla.sdk.transport import ApiError, Transport

_CHUNK_BYTES = 16 * 1024 * 1024
_ATTEMPTS = 6
_TUS = {"Tus-Resumable": "1.0.0"}
# At once; more gain nothing on one connection and cost the server memory.
_FILES_AT_ONCE = 3
Progress = Callable[[int, int], None]


def upload_files(
    transport: Transport,
    *,
    version: str,
    version_id: str,
    files: Mapping[str, Path],
    progress: Callable[[str, int, int], None] | None = None,
) -> None:
    """Send the files of a version, several at once; what the caller can read on the server already is not sent.

    ``version`` is the address of the version. ``progress(path, sent, total)`` is called after each chunk, in
    bytes, from several threads.

    Raises:
        ApiError: one was refused, or is still failing after several attempts; the others have been stopped.
    """
    known = _known_sizes(transport, version, (file.stat().st_size for file in files.values()))
    stopped: list[bool] = []

    def send(path: str, file: Path) -> None:
        if stopped:
            return
        size = file.stat().st_size
        told: Progress | None = None
        if progress is not None:
            told = lambda sent, total: progress(path, sent, total)  # noqa: E731
        if size in known and _attached(transport, version, path, file):
            if told is not None:
                told(size, size)
            return
        upload_file(transport, version_id=version_id, path=path, file=file, progress=told, is_stopped=lambda: stopped)

    with ThreadPoolExecutor(max_workers=_FILES_AT_ONCE, thread_name_prefix="upload") as threads:
        running = [threads.submit(send, path, file) for path, file in files.items()]
        try:
            wait(running, return_when=FIRST_EXCEPTION)
        finally:
            if not all(one.done() and one.exception() is None for one in running):
                stopped.append(True)
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
) -> None:
    """Send one file of a version.

    ``progress(sent, total)`` is called after each chunk, in bytes. ``is_stopped`` is asked between chunks.

    Raises:
        ApiError: refused, or still failing after several attempts.
    """
    size = file.stat().st_size
    metadata = {"version": version_id, "path": path}
    words = ",".join(f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in metadata.items())
    created = _create(transport, {**_TUS, "Upload-Length": str(size), "Upload-Metadata": words})
    with file.open("rb") as source:
        _send_chunks(transport, created.headers["Location"], source, size, progress, is_stopped)


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
    source: BinaryIO,
    size: int,
    progress: Progress | None,
    is_stopped: Callable[[], Any],
) -> None:
    offset, failures = 0, 0
    with _Chunks(source, size) as chunks:
        while offset < size and not is_stopped():
            chunk = chunks.at(offset)
            try:
                answer = transport.send(
                    "PATCH",
                    location,
                    content=chunk.content,
                    headers={
                        **_TUS,
                        "Upload-Offset": str(offset),
                        "Upload-Checksum": f"sha256-prefix {chunk.checksum}",
                        "Content-Type": "application/offset+octet-stream",
                    },
                )
                offset, failures = int(answer.headers["Upload-Offset"]), 0
            except ApiError as error:
                failures += 1
                if failures >= _ATTEMPTS or error.status not in (0, 409, 423, 460, 502, 503, 504):
                    raise
                time.sleep(min(2**failures * 0.1, 5))
                known = transport.send("HEAD", location, headers=_TUS)
                offset = int(known.headers["Upload-Offset"])
            if progress is not None:
                progress(offset, size)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """``digest`` is over all of the file up to the end of the chunk."""

    offset: int
    content: bytes
    digest: Any

    @property
    def end(self) -> int:
        return self.offset + len(self.content)

    @property
    def checksum(self) -> str:
        return base64.b64encode(self.digest.digest()).decode()


class _Chunks:
    """Chunks of a file; while one is sent, the next one is read and hashed. Going back costs reading from the start."""

    def __init__(self, source: BinaryIO, size: int) -> None:
        self._source = source
        self._size = size
        self._chunk: _Chunk | None = None
        self._next: Future[_Chunk] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hash")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def at(self, offset: int) -> _Chunk:
        """Return the chunk at ``offset``; the same again without reading when asked again.

        Raises:
            ApiError: the file ends before ``offset``: somebody cut it meanwhile.
        """
        chunk = self._chunk
        if chunk is None or offset != chunk.offset:
            following = self._next.result() if self._next is not None else None
            if following is not None and following.offset == offset:
                chunk = following
            else:
                chunk = self._read(offset, self._hash_until(offset))
            self._chunk, self._next = chunk, None
            if chunk.end < self._size:
                self._next = self._thread.submit(self._read, chunk.end, chunk.digest)
        return chunk

    def _read(self, offset: int, before: Any) -> _Chunk:
        self._source.seek(offset)
        content = self._source.read(_CHUNK_BYTES)
        if not content:
            raise ApiError(0, "file_changed", f"{self._source.name} became shorter while it was sent.")
        digest = before.copy()
        digest.update(content)
        return _Chunk(offset, content, digest)

    def _hash_until(self, offset: int) -> Any:
        digest = hashlib.sha256()
        self._source.seek(0)
        while offset:
            piece = self._source.read(min(_CHUNK_BYTES, offset))
            if not piece:
                break
            digest.update(piece)
            offset -= len(piece)
        return digest


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
