"""A file in chunks, read and hashed once: each knows the digest of everything up to its end."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from io import BufferedReader
from typing import Any, Self

from blake3 import blake3

from flotilla.sdk.transport import ApiError

FIRST_BYTES = 16 << 20
# A chunk counts whole or not at all: over a bad connection only short ones arrive, over a good one long ones cost less.
LEAST_BYTES, MOST_BYTES = 1 << 20, 32 << 20
_GROW_WITHIN_SECONDS = 1.0
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Chunk:
    """``before`` and ``digest`` are over all of the file up to the beginning and up to the end of the chunk."""

    offset: int
    memory: bytearray
    content: memoryview
    before: Any
    digest: Any

    def __iter__(self) -> Iterator[memoryview]:
        """Yield the bytes in pieces that an HTTP client copies cheaply; again and again."""
        for start in range(0, len(self.content), _PIECE_BYTES):
            yield self.content[start : start + _PIECE_BYTES]

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + len(self.content)

    @property
    def checksum(self) -> str:
        """What ``Upload-Checksum`` says."""
        return f"blake3-prefix {base64.b64encode(self.digest.digest()).decode()}"


class Chunks:
    """Chunks of a file or of a part of one; while one is sent, the next one is read and hashed.

    Going back costs reading from the start.
    """

    def __init__(self, source: BufferedReader, size: int, start: int = 0) -> None:
        """``size`` bytes of ``source`` from ``start``; offsets count from there."""
        self._source = source
        self._size = size
        self._start = start
        self._wanted = FIRST_BYTES
        self._chunk: Chunk | None = None
        self._next: Future[Chunk] | None = None
        self._memory: list[bytearray] = []
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hash")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def at(self, offset: int) -> Chunk:
        """Return the chunk at ``offset``; the same again without reading, or less of it, when asked again.

        What the one before held is overwritten.

        Raises:
            ApiError: the file ends before ``offset``: somebody cut it meanwhile.
        """
        chunk = self._chunk
        if chunk is not None and chunk.offset == offset and len(chunk.content) <= self._wanted:
            return chunk
        following = self._next.result() if self._next is not None else None
        if following is not None and following.offset == offset:
            self._forget(chunk)
            chunk = following
        else:
            before = chunk.before if chunk is not None and chunk.offset == offset else self._hash_until(offset)
            self._forget(chunk)
            self._forget(following)
            chunk = self._read(offset, before)
        self._chunk, self._next = chunk, None
        if chunk.end < self._size:
            self._next = self._thread.submit(self._read, chunk.end, chunk.digest)
        return chunk

    def note_success(self, seconds: float) -> None:
        """Let chunks grow when one took no time to speak of."""
        if seconds < _GROW_WITHIN_SECONDS:
            self._wanted = min(2 * self._wanted, MOST_BYTES)

    def note_failure(self) -> None:
        """Let chunks shrink, the one that failed too."""
        self._wanted = min(max(self._wanted // 2, LEAST_BYTES), MOST_BYTES)

    def _forget(self, chunk: Chunk | None) -> None:
        if chunk is not None:
            self._memory.append(chunk.memory)

    def _read(self, offset: int, before: Any) -> Chunk:
        wanted = min(self._wanted, self._size - offset)
        memory = self._memory.pop() if self._memory else bytearray()
        if len(memory) < wanted:
            memory = bytearray(wanted)
        content = memoryview(memory)[:wanted]
        self._source.seek(self._start + offset)
        content = content[: self._source.readinto(content)]
        if not content:
            raise ApiError(0, "file_changed", f"{self._source.name} became shorter while it was sent.")
        digest = before.copy()
        digest.update(content)
        return Chunk(offset, memory, content, before, digest)

    def _hash_until(self, offset: int) -> Any:
        digest = blake3()
        self._source.seek(self._start)
        while offset:
            piece = self._source.read(min(_PIECE_BYTES, offset))
            if not piece:
                break
            digest.update(piece)
            offset -= len(piece)
        return digest
