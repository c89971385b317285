"""One file of a version from the console to a folder: cut connections go on where they were, digests are checked."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from flotilla.sdk.transport import ApiError, Transport

# How often in a row nothing may arrive before it is given up.
_TRIES = 5
_READ_BYTES = 1024 * 1024


def fetch_file(
    transport: Transport,
    address: str,
    file: dict[str, Any],
    folder: Path,
    progress: Callable[[str, int, int], None],
) -> Path:
    """Write one file below ``folder`` and return where it is; see ``Catalog.download``."""
    name = PurePosixPath(file["path"])
    if name.is_absolute() or ".." in name.parts:
        raise ApiError(0, "unsafe_path", f"{file['path']!r} is not a path below a folder.")
    target = folder / name
    if target.is_file() and target.stat().st_size == file["size"] and _digest_of(target) == file["sha256"]:
        progress(file["path"], file["size"], file["size"])
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as out:
            digest = _receive(transport, address, file, out.write, progress)
        if digest != file["sha256"]:
            raise ApiError(0, "digest_mismatch", f"{file['path']} arrived damaged; nothing was kept of it.")
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return target


def _receive(
    transport: Transport,
    address: str,
    file: dict[str, Any],
    write: Callable[[bytes], Any],
    progress: Callable[[str, int, int], None],
) -> str:
    """Receive the bytes of a file and return their SHA-256 in hex."""
    found, done, size, tries = hashlib.sha256(), 0, int(file["size"]), _TRIES
    progress(file["path"], 0, size)
    while done < size:
        before = done
        try:
            for piece in transport.pieces(address, {"path": file["path"]}, start=done):
                write(piece)
                found.update(piece)
                done += len(piece)
                progress(file["path"], done, size)
                if done > size:
                    raise ApiError(0, "digest_mismatch", f"{file['path']} is longer than the console says.")
            if done < size:
                raise ApiError(0, "unreachable", f"{file['path']} ended after {done} of {size} bytes.")
        except ApiError as error:
            tries = _TRIES if done > before else tries - 1
            if error.code != "unreachable" or not tries:
                raise
    return found.hexdigest()


def _digest_of(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_READ_BYTES):
            found.update(piece)
    return found.hexdigest()
