"""Resumable uploads by the tus protocol, version 1.0.0: what goes over the wire for one of them."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import BufferedReader
from typing import Any

from flotilla.sdk.chunks import FILE_CHANGED, Chunk, Chunks, Line
from flotilla.sdk.transport import ApiError, Transport

CHECKSUM_MISMATCH = 460
_TOO_LARGE = 413
_PASSING = frozenset({0, 408, 409, 423, CHECKSUM_MISMATCH, 502, 503, 504})
_ATTEMPTS = 6
# A digest that differs twice does so because of what came before.
_MISMATCHES = 2
_TUS = {"Tus-Resumable": "1.0.0"}
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class FileThere:
    """What the server has of a file. ``location`` is where the rest goes, empty when all of it is there.

    ``parts`` are those of a file that goes in parts, by number; each has its location, whole or not. ``direct`` is the
    address of an upload whose parts go to the object store.
    """

    size: int
    offset: int
    sha256: str = ""
    location: str = ""
    parts: Mapping[int, FileThere] = field(default_factory=dict)
    direct: str = ""

    @property
    def is_whole(self) -> bool:
        """Say whether nothing is missing."""
        return not (self.location or self.parts or self.direct)


def create(
    transport: Transport, metadata: Mapping[str, str], headers: Mapping[str, str], *, is_repeatable: bool = False
) -> str:
    """Begin an upload and return its location; again while the server says that it did nothing, being overloaded.

    ``is_repeatable``: doing it twice is doing it once, so that it is sent again when the answer got lost, too.

    Raises:
        ApiError: refused.
    """
    words = ",".join(f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in metadata.items())
    headers = {**_TUS, "Upload-Metadata": words, **headers}
    for attempt in range(1, _ATTEMPTS):
        try:
            return transport.send("POST", "uploads/", headers=headers).headers["Location"]
        except ApiError as error:
            if error.status != 503 and not (is_repeatable and error.status in (0, 502, 504)):
                raise
        time.sleep(min(2**attempt * 0.1, 5))
    return transport.send("POST", "uploads/", headers=headers).headers["Location"]


def end(transport: Transport, location: str) -> None:
    """Give an upload up.

    Raises:
        ApiError: refused.
    """
    transport.send("DELETE", location, headers=_TUS)


def send(
    transport: Transport,
    metadata: Mapping[str, str],
    headers: Mapping[str, str],
    source: BufferedReader,
    size: int,
    progress: Progress | None,
    is_stopped: Callable[[], Any],
    line: Line,
    *,
    begun: FileThere | None = None,
    start: int = 0,
) -> str:
    """Send ``size`` bytes of ``source`` from ``start``, or the rest of what was ``begun``; return the location.

    Once more from the beginning where what the server has turns out to be something else, or was damaged on the way.

    Raises:
        ApiError: refused, or still failing after several attempts.
    """
    location, offset = (begun.location, begun.offset) if begun is not None else ("", 0)
    if begun is not None and begun.size != size:
        end(transport, location)
        location, offset = "", 0
    try:
        location = location or create(transport, metadata, headers)
        send_chunks(transport, location, source, size, progress, is_stopped, line, offset=offset, start=start)
    except ApiError as error:
        if error.status != CHECKSUM_MISMATCH:
            raise
        end(transport, location)
        location = create(transport, metadata, headers)
        send_chunks(transport, location, source, size, progress, is_stopped, line, start=start)
    return location


class _Stopped(Exception):
    """Somebody else failed, or wants no more."""


def send_chunks(
    transport: Transport,
    location: str,
    source: BufferedReader,
    size: int,
    progress: Progress | None,
    is_stopped: Callable[[], Any],
    line: Line,
    *,
    offset: int = 0,
    start: int = 0,
) -> None:
    """Send ``size`` bytes of ``source`` from ``start``, of which the server has ``offset``.

    Raises:
        ApiError: refused, or still failing after several attempts.
    """

    def note_passing(reached: int) -> None:
        if is_stopped():
            raise _Stopped
        if progress is not None:
            progress(reached, size)

    failures = 0
    chunks = Chunks(source, size, start, offset, note_passing, line)
    while offset < size and not is_stopped():
        chunk = chunks.at(offset)
        begun = time.monotonic()
        try:
            offset, failures = _send_chunk(transport, location, chunk), 0
            chunks.note_success(chunk, time.monotonic() - begun)
        except _Stopped:
            return
        except ApiError as error:
            failures += 1
            # The server itself says "too_large" when no smaller chunk would do; others on the way do not.
            is_too_large = error.status == _TOO_LARGE and error.code != "too_large"
            line.note_failure(chunk.length, is_too_large=is_too_large)
            may_pass = is_too_large or (error.status in _PASSING and error.code != FILE_CHANGED)
            if not may_pass or failures >= (_MISMATCHES if error.status == CHECKSUM_MISMATCH else _ATTEMPTS):
                raise
            time.sleep(min(2**failures * 0.1, 5))
            before, offset = offset, int(transport.send("HEAD", location, headers=_TUS).headers["Upload-Offset"])
            if offset > before:
                failures = 0
        if progress is not None:
            progress(offset, size)


def _send_chunk(transport: Transport, location: str, chunk: Chunk) -> int:
    """Send one and return where the upload stands then. Raises ApiError."""
    headers = {
        **_TUS,
        "Content-Length": str(chunk.length),
        "Upload-Offset": str(chunk.offset),
        "Content-Type": "application/offset+octet-stream",
    }
    if chunk.checksum:
        headers["Upload-Checksum"] = chunk.checksum
    return int(transport.send("PATCH", location, content=chunk, headers=headers).headers["Upload-Offset"])
