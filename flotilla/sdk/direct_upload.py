"""Large files in parts, straight to the object store of the installation, where it signs addresses for that.

Parts go several at once, read from the file as they are sent; meanwhile another thread hashes the file. The server's
worker compares the digest before the file becomes part of a version.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import httpx2

from flotilla.sdk.chunks import Line
from flotilla.sdk.transport import ApiError, Transport

# Smaller files are there sooner by tus than a part's address is signed.
_LEAST_BYTES = 64 * 1024 * 1024
_PARTS_AT_ONCE = 4
_SIGNED_AT_ONCE = 16
_ATTEMPTS = 6
_PIECE = 1024 * 1024
_TIMEOUT = httpx2.Timeout(60.0, connect=10.0)
# An address that is not valid any more; a new one is asked for.
_EXPIRED = frozenset({400, 401, 403})
# The server offers nothing of the kind, or only tus.
_NOT_OFFERED = frozenset({404, 405, 409})
Progress = Callable[[int, int], None]


class StoreUnreachable(Exception):
    """Not one part could be sent: the store cannot be reached from here."""


def begin_direct(transport: Transport, version: str, path: str, size: int, line: Line) -> str | None:
    """Begin an upload in parts and return its address; None when tus is to be used, which ``line`` remembers.

    Raises:
        ApiError: refused, for a reason that tus would not change.
    """
    if size < _LEAST_BYTES or not line.is_direct:
        return None
    try:
        body = {"path": path, "length": size}
        created = transport.send("POST", f"{version}uploads/", json=body, once=True).json()
    except ApiError as error:
        if error.status in _NOT_OFFERED:
            line.is_direct = False
            return None
        raise
    return f"{version}uploads/{created['id']}/"


def send_direct(
    transport: Transport,
    upload: str,
    file: Path,
    size: int,
    progress: Progress | None,
    is_stopped: Callable[[], Any],
) -> None:
    """Send the parts of a file that the store lacks, and complete the upload.

    Raises:
        StoreUnreachable: nothing could be sent; the upload can be given up.
        ApiError: refused, or still failing after several attempts.
    """
    known = transport.send("GET", f"{upload}parts").json()
    sending = _Sending(transport, upload, file, size, known["part_bytes"], set(known["present"]), progress)
    missing = [number for number in range(1, known["count"] + 1) if number not in set(known["present"])]
    stopped: list[bool] = []

    def send(number: int) -> None:
        if stopped or is_stopped():
            return
        try:
            sending.send(number, client, lambda: stopped or is_stopped())
        except BaseException:
            stopped.append(True)
            raise

    with (
        ThreadPoolExecutor(max_workers=1, thread_name_prefix="hash") as hashing,
        httpx2.Client(timeout=_TIMEOUT) as client,
        ThreadPoolExecutor(max_workers=_PARTS_AT_ONCE, thread_name_prefix="part") as threads,
    ):
        digest = hashing.submit(_digest, file, lambda: stopped or is_stopped())
        running = [threads.submit(send, number) for number in missing]
        wait(running, return_when=FIRST_EXCEPTION)
        for one in running:
            one.result()
        if is_stopped():
            return
        sha256 = digest.result()
    transport.send("POST", f"{upload}complete", json={"sha256": sha256}, once=True)


class _Sending:
    """The parts of one file. Safe to use from several threads."""

    def __init__(
        self,
        transport: Transport,
        upload: str,
        file: Path,
        size: int,
        part_bytes: int,
        present: set[int],
        progress: Progress | None,
    ) -> None:
        self._transport = transport
        self._upload = upload
        self._file = file
        self._size = size
        self._part_bytes = part_bytes
        self._count = -(-size // part_bytes)
        self._done = set(present)
        self._progress = progress
        self._lock = threading.Lock()
        self._addresses: dict[int, Mapping[str, Any]] = {}

    def send(self, number: int, client: httpx2.Client, is_stopped: Callable[[], Any]) -> None:
        """Send one part, again after failures."""
        for attempt in range(1, _ATTEMPTS + 1):
            why = self._try(number, client)
            if not why or is_stopped():
                return
            if attempt < _ATTEMPTS:
                time.sleep(min(2**attempt * 0.1, 5))
        with self._lock:
            is_first = not self._done
        if is_first:
            raise StoreUnreachable(why)
        raise ApiError(0, "store_unreachable", f"Part {number} of {self._file.name} could not be sent: {why}")

    def _try(self, number: int, client: httpx2.Client) -> str:
        """Return why it did not work, empty when it did."""
        signed = self._address(number)
        headers = {**signed["headers"], "Content-Length": str(signed["size"])}
        try:
            answer = client.put(signed["url"], content=self._pieces(number, signed["size"]), headers=headers)
        except httpx2.HTTPError as error:
            return str(error) or type(error).__name__
        if answer.status_code < 300:
            with self._lock:
                self._done.add(number)
                sent = sum(min(self._part_bytes, self._size - (one - 1) * self._part_bytes) for one in self._done)
                if self._progress is not None:
                    self._progress(sent, self._size)
            return ""
        if answer.status_code in _EXPIRED:
            with self._lock:
                self._addresses.pop(number, None)
        return f"the store answered {answer.status_code}"

    def _address(self, number: int) -> Mapping[str, Any]:
        with self._lock:
            if number not in self._addresses:
                near = range(number, min(number + _SIGNED_AT_ONCE, self._count + 1))
                numbers = [one for one in near if one not in self._done]
                signed = self._transport.send("POST", f"{self._upload}parts", json={"numbers": numbers}).json()
                self._addresses |= {one["number"]: one for one in signed["parts"]}
            return self._addresses[number]

    def _pieces(self, number: int, size: int) -> Iterator[bytes]:
        start = (number - 1) * self._part_bytes
        with self._file.open("rb") as source:
            source.seek(start)
            while size:
                piece = source.read(min(_PIECE, size))
                if not piece:
                    raise ApiError(0, "file_changed", f"{self._file.name} became shorter while it was sent.")
                size -= len(piece)
                yield piece


def _digest(file: Path, is_stopped: Callable[[], Any]) -> str:
    digest = hashlib.sha256()
    with file.open("rb", buffering=0) as source:
        while not is_stopped() and (piece := source.read(4 * _PIECE)):
            digest.update(piece)
    return digest.hexdigest()
