"""Resumable uploads by the tus protocol, version 1.0.0: cut connections go on where they stopped."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from flotilla.sdk.transport import ApiError, Transport

_CHUNK_BYTES = 8 * 1024 * 1024
_ATTEMPTS = 6
Progress = Callable[[int, int], None]


def upload_file(
    transport: Transport, *, version_id: str, path: str, file: Path, progress: Progress | None = None
) -> None:
    """Send one file of a version.

    ``progress(sent, total)`` is called after each chunk, in bytes.

    Raises:
        ApiError: refused, or still failing after several attempts.
    """
    size = file.stat().st_size
    metadata = {"version": version_id, "path": path, "sha256": _sha256(file)}
    created = transport.send(
        "POST",
        "uploads/",
        headers={
            "Tus-Resumable": "1.0.0",
            "Upload-Length": str(size),
            "Upload-Metadata": ",".join(
                f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in metadata.items()
            ),
        },
    )
    location = created.headers["Location"]
    with file.open("rb") as source:
        _send_chunks(transport, location, source, size, progress)


def _send_chunks(transport: Transport, location: str, source: BinaryIO, size: int, progress: Progress | None) -> None:
    offset, failures = 0, 0
    while offset < size:
        source.seek(offset)
        chunk = source.read(_CHUNK_BYTES)
        try:
            answer = transport.send(
                "PATCH",
                location,
                content=chunk,
                headers={
                    "Tus-Resumable": "1.0.0",
                    "Upload-Offset": str(offset),
                    "Upload-Checksum": "sha256 " + base64.b64encode(hashlib.sha256(chunk).digest()).decode(),
                    "Content-Type": "application/offset+octet-stream",
                },
            )
            offset, failures = int(answer.headers["Upload-Offset"]), 0
        except ApiError as error:
            failures += 1
            if failures >= _ATTEMPTS or error.status not in (0, 409, 423, 460, 502, 503, 504):
                raise
            time.sleep(min(2**failures * 0.1, 5))
            known = transport.send("HEAD", location, headers={"Tus-Resumable": "1.0.0"})
            offset = int(known.headers["Upload-Offset"])
        if progress is not None:
            progress(offset, size)


def _sha256(file: Path) -> str:
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
