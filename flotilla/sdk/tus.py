"""Resumable uploads by the tus protocol, version 1.0.0: what goes over the wire for one of them."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import BufferedReader
from typing import Any

from flotilla.sdk.chunks import Chunks
from flotilla.sdk.transport import ApiError, Transport

_ATTEMPTS = 6
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


def send_chunks(
    transport: Transport,
    location: str,
    source: BufferedReader,
    size: int,
    progress: Progress | None,
    is_stopped: Callable[[], Any],
    *,
    offset: int = 0,
    start: int = 0,
) -> None:
    """Send ``size`` bytes of ``source`` from ``start``, of which the server has ``offset``.

    Raises:
        ApiError: refused, or still failing after several attempts.
    """
    failures = 0
    with Chunks(source, size, start) as chunks:
        while offset < size and not is_stopped():
            chunk = chunks.at(offset)
            begun = time.monotonic()
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
                chunks.note_success(time.monotonic() - begun)
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
