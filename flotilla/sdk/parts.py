"""Very large files in parts beside each other (tus concatenation): one connection is often slower than the line.

The server checks every part while it arrives, and the whole when it has joined them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Lock
from typing import Any

from xxhash import xxh3_128

from flotilla.sdk import tus
from flotilla.sdk.chunks import Line
from flotilla.sdk.transport import Transport
from flotilla.sdk.tus import FileThere, Progress

LEAST_BYTES = 4 << 30
_PARTS = 4
_READ_BYTES = 4 << 20


def send(
    transport: Transport,
    metadata: Mapping[str, str],
    file: Path,
    there: Mapping[int, FileThere],
    *,
    progress: Progress | None,
    is_stopped: Callable[[], Any],
    line: Line,
) -> None:
    """Send a file in parts, or what is missing of those that are ``there``.

    Raises:
        ApiError: a part was refused, or is still failing after several attempts; the others have been stopped.
    """
    size = file.stat().st_size
    lengths = list(_lengths(size))
    if any(number >= len(lengths) or one.size != lengths[number] for number, one in there.items()):
        for one in there.values():  # Of a file that was of another size then.
            tus.end(transport, one.location)
        there = {}
    sent = [there[number].offset if number in there else 0 for number in range(len(lengths))]
    failed: list[bool] = []
    telling = Lock()

    def send_part(number: int) -> str:
        def tell(offset: int, _length: int) -> None:
            with telling:
                sent[number] = offset
                if progress is not None:
                    progress(sum(sent), size)

        start, length = sum(lengths[:number]), lengths[number]
        return _send_part(
            transport,
            {**metadata, "part": str(number)},
            file,
            start,
            length,
            there.get(number),
            tell,
            lambda: failed or is_stopped(),
            line,
        )

    with ThreadPoolExecutor(max_workers=_PARTS + 1, thread_name_prefix="part") as threads:
        running = [threads.submit(send_part, number) for number in range(len(lengths))]
        digest = threads.submit(_digest, file, lambda: failed or is_stopped())
        try:
            wait([*running, digest], return_when=FIRST_EXCEPTION)
        finally:
            if not all(one.done() and one.exception() is None for one in running):
                failed.append(True)
        locations = [one.result() for one in running]
        promised = digest.result()
    if not is_stopped():
        words = {"Upload-Concat": "final;" + " ".join(locations)}
        tus.create(transport, {**metadata, "xxh3": promised}, words, is_repeatable=True)


def _lengths(size: int) -> Iterator[int]:
    """Yield the lengths of the parts, all but the last one of them alike; the same for the same size."""
    length = -(-size // _PARTS)
    for start in range(0, size, length):
        yield min(length, size - start)


def _send_part(
    transport: Transport,
    metadata: Mapping[str, str],
    file: Path,
    start: int,
    length: int,
    begun: FileThere | None,
    tell: Progress,
    is_stopped: Callable[[], Any],
    line: Line,
) -> str:
    """Send a part, or the rest of it, and return its location."""
    words = {"Upload-Concat": "partial", "Upload-Length": str(length)}
    with file.open("rb") as source:
        return tus.send(transport, metadata, words, source, length, tell, is_stopped, line, begun=begun, start=start)


def _digest(file: Path, is_stopped: Callable[[], Any]) -> str:
    digest = xxh3_128()
    with file.open("rb") as source:
        while not is_stopped() and (piece := source.read(_READ_BYTES)):
            digest.update(piece)
    return digest.hexdigest()
