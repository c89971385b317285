"""A file in chunks, read and hashed once, while it is sent.

Most of it goes in stretches: long ones, read piece by piece, of which everything counts that arrived. The last chunk,
and the first one of an upload that is gone on with, are checked: they carry the digest of everything up to their end,
and count whole or not at all.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from io import BufferedReader
from typing import Any

from xxhash import xxh3_128

from flotilla.sdk.transport import ApiError

# The code of an error that no other attempt mends.
FILE_CHANGED = "file_changed"
FIRST_BYTES = 16 << 20
# Each chunk costs both sides some milliseconds; but what stands between them may want an answer now and then.
LEAST_BYTES, MOST_BYTES = 1 << 20, 1 << 30
_GROW_WITHIN_SECONDS = 1.0
_GROWTH = 4
_PIECE_BYTES = 1 << 20
# A digest on the way is 2 KB; one that is kept saves reading the file from the start after a cut.
_KEPT_EVERY = 16 << 20


@dataclass(frozen=True, slots=True)
class Chunk:
    """``length`` bytes from ``offset``. ``checksum`` is what ``Upload-Checksum`` says, empty for a stretch."""

    offset: int
    length: int
    checksum: str
    content: Callable[[], Iterator[bytes]]

    def __iter__(self) -> Iterator[bytes]:
        """Yield the bytes, in pieces that an HTTP client sends without copying them; again and again."""
        return self.content()


class Line:
    """What is learned about the line to the server while files go over it; for all files of a push.

    ``is_direct``: large files may go to an object store instead, as far as anybody knows.
    """

    def __init__(self) -> None:
        self.is_direct = True
        self._wanted = FIRST_BYTES
        self._most = MOST_BYTES

    @property
    def chunk_bytes(self) -> int:
        """Return how long the next chunk may be."""
        return self._wanted

    def note_success(self, length: int, seconds: float) -> None:
        """Let chunks grow when one of ``length`` bytes took no time to speak of."""
        if seconds < _GROW_WITHIN_SECONDS:
            self._wanted = max(self._wanted, min(_GROWTH * length, self._most))

    def note_failure(self, length: int, *, is_too_large: bool = False) -> None:
        """Let chunks shrink after one of ``length`` bytes; for good when something on the way takes none so large."""
        if is_too_large:
            self._wanted = self._most = max(min(self._wanted, length // 2), LEAST_BYTES)
        elif length <= self._wanted:  # Otherwise another connection's failure has shortened them already.
            self._wanted = max(self._wanted // 2, LEAST_BYTES)


class Chunks:
    """Chunks of a file or of a part of one."""

    def __init__(
        self, source: BufferedReader, size: int, start: int, offset: int, passing: Callable[[int], None], line: Line
    ) -> None:
        """``size`` bytes of ``source`` from ``start``; offsets count from there.

        ``offset`` is where the first chunk will be. ``passing`` hears within a stretch how far it is read.
        """
        self._source = source
        self._size = size
        self._start = start
        self._passing = passing
        self._line = line
        # Whether what the server has is the beginning of this file.
        self._is_known = offset == 0
        self._digest, self._reached = xxh3_128(), 0
        self._kept: dict[int, Any] = {}

    def at(self, offset: int) -> Chunk:
        """Return the chunk at ``offset``.

        Raises:
            ApiError: the file ends before: somebody cut it meanwhile. Also on reading the chunk.
        """
        rest = self._size - offset
        wanted = self._line.chunk_bytes
        most_checked = min(FIRST_BYTES, wanted)
        if self._is_known and rest > most_checked:
            # Something is left for the last chunk.
            length = min(wanted, rest - 1)
            return Chunk(offset, length, "", partial(self._stretch, offset, length))
        length = min(rest, most_checked)
        pieces = list(self._read(offset, length))
        checksum = f"xxh3-prefix {base64.b64encode(self._digest.digest()).decode()}"
        return Chunk(offset, length, checksum, pieces.__iter__)

    def note_success(self, chunk: Chunk, seconds: float) -> None:
        """Take what the server has from now on for the beginning of this file."""
        self._is_known = True
        self._line.note_success(chunk.length, seconds)

    def _stretch(self, offset: int, length: int) -> Iterator[bytes]:
        for piece in self._read(offset, length):
            before = self._reached - len(piece)
            if before > offset:
                self._passing(before)
            yield piece

    def _read(self, offset: int, length: int) -> Iterator[bytes]:
        self._go_to(offset)
        end = offset + length
        while offset < end:
            piece = self._source.read(min(_PIECE_BYTES, end - offset))
            if not piece:
                raise ApiError(0, FILE_CHANGED, f"{self._source.name} became shorter while it was sent.")
            self._take(piece)
            offset += len(piece)
            yield piece

    def _take(self, piece: bytes) -> None:
        self._digest.update(piece)
        before, self._reached = self._reached, self._reached + len(piece)
        if before // _KEPT_EVERY != self._reached // _KEPT_EVERY:
            self._kept[self._reached] = self._digest.copy()

    def _go_to(self, offset: int) -> None:
        """Let the digest be that of all before ``offset``, and the source stand there."""
        if self._reached != offset:
            self._kept = {mark: digest for mark, digest in self._kept.items() if mark <= offset}
            self._reached = max(self._kept, default=0)
            self._digest = self._kept[self._reached].copy() if self._reached else xxh3_128()
        self._source.seek(self._start + self._reached)
        while self._reached < offset:
            piece = self._source.read(min(_PIECE_BYTES, offset - self._reached))
            if not piece:
                break
            self._take(piece)
