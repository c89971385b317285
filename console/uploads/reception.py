"""Takes the body of one PATCH to the staging file, hashing it on the way."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from console.middleware.database import in_database_thread
from console.middleware.direct_body import ClientLeft
from console.middleware.metrics import UPLOADED
from console.middleware.pace import Pace, TooSlow
from console.uploads import sessions
from console.uploads.bodies import Body
from console.uploads.digests import KeptDigests
from console.uploads.lanes import BufferPool, Lanes
from console.uploads.protocol import CHECKSUM_MISMATCH, SHA256_PREFIX, Checksum, ProtocolError, storage_full
from console.uploads.staging import BLOCK_BYTES, FULL, Flusher, StagedFile
from registry.models import Upload
from registry.services.staging import staging_path

# Of each request so many pieces are in memory at most: some are being written and hashed, the next one arrives.
PIECE_BYTES = 2 << 20
PIECES = 3
# A process that dies loses what arrived since the last commit.
COMMIT_SECONDS = 1.0
FLUSH_BYTES = 16 << 20
WINDOW_SECONDS = 60.0
_buffers = BufferPool(PIECE_BYTES)
_lanes = Lanes()
_digests = KeptDigests()
_flusher = Flusher()


class Reception:
    """One PATCH. Without a checksum every byte that arrived counts; with one the chunk counts whole or not at all."""

    def __init__(self, upload: Upload, staged: StagedFile, checksum: Checksum | None) -> None:
        self._upload = upload
        self._staged = staged
        self._checksum = checksum
        self._hasher = checksum.hasher() if checksum and not checksum.is_of_prefix else None
        self._start = self._committed = self._flushed = self._arrived = staged.offset
        self._digest = _digests.take(upload.pk, staged.offset)
        self._is_in_step = False
        self._lane = _lanes.next()
        self._running: deque[tuple[memoryview, asyncio.Future[None]]] = deque()
        self._is_broken = False

    async def run(self, body: Body) -> int:
        """Read the body, write it, commit it; return the new offset.

        Raises:
            ProtocolError: 413 past the end, 460 wrong checksum, 408 too slow, 499 left, 507 the disk is full.
                Unless a checksum forbids it, what arrived before is committed.
            ValidationFailed: the last byte is there, and the whole has another digest than was promised.
        """
        self._is_in_step = await self._in_lane(self._digest.catch_up, self._staged.descriptor, self._start)
        before = self._digest.copy()
        try:
            try:
                async with self._commits() as commits:
                    await self._copy(body, commits)
                    await self._written()
            except ProtocolError:
                await self._settle(is_whole=False)
                raise
            except OSError as error:
                await self._settle(is_whole=False)
                if error.errno in FULL:
                    raise storage_full() from error
                raise
            return await self._settle(is_whole=True)
        finally:
            # Not after a refused chunk, nor when somebody ended the task in the middle of one.
            is_intact = self._is_in_step and not self._running and self._digest.offset == self._staged.offset
            _digests.keep(self._upload.pk, self._digest if is_intact else before)
            if self._staged.offset == self._upload.length:
                _digests.forget(self._upload.pk)

    async def _copy(self, body: Body, commits: asyncio.Future[None]) -> None:
        deadline = asyncio.get_running_loop().time() + settings.UPLOAD_REQUEST_SECONDS
        pace = Pace(settings.UPLOAD_LEAST_BYTES_PER_SECOND, WINDOW_SECONDS, deadline)
        while True:
            if commits.done():  # It failed, and says why.
                await commits
            buffer = await self._buffer()
            # The first piece ends at a block of the disk, so that the others begin at one.
            wanted = PIECE_BYTES - self._arrived % BLOCK_BYTES
            try:
                count = await body.fill(buffer[:wanted], pace)
            except ClientLeft:
                raise ProtocolError(499, _("The client left."), "disconnected") from None
            except TooSlow as error:
                raise _request_timeout(error) from None
            if self._arrived + count > self._upload.length:
                raise ProtocolError(413, _("The chunk goes past the end of the upload."), "too_large")
            if count == 0:
                return _buffers.give(buffer)
            self._take(buffer, count)
            self._flush_when_due()

    async def _buffer(self) -> memoryview:
        """Return memory for the next piece, after the oldest one where there are too many."""
        if len(self._running) < PIECES - 1:
            return _buffers.take()
        return await self._oldest()

    async def _oldest(self) -> memoryview:
        """Wait for the piece that is being written for longest; return its memory.

        Raises:
            OSError: it could not be written, or not all of it.
        """
        buffer, written = self._running.popleft()
        await written
        return buffer

    async def _written(self) -> None:
        """Wait for all pieces. Raises OSError as ``_oldest``."""
        while self._running:
            _buffers.give(await self._oldest())

    def _take(self, buffer: memoryview, count: int) -> None:
        """Begin to write and hash a piece in two threads, after the one before."""
        piece = buffer[:count]
        self._arrived += count
        hashed = threading.Lock()
        if self._is_in_step:
            hashed.acquire()
            self._lane.hashing.put(partial(self._hash, piece, hashed))
        self._running.append((buffer, self._lane.writing.call(self._write, piece, hashed)))

    def _hash(self, piece: memoryview, hashed: threading.Lock) -> None:
        try:
            self._digest.update_sha256(piece)
        finally:
            hashed.release()

    def _write(self, piece: memoryview, hashed: threading.Lock) -> None:
        start = self._staged.offset
        try:
            if not self._is_broken:  # Behind a piece that could not be written there is no place for another.
                self._staged.append(piece)
        except OSError:
            self._is_broken = True
            raise
        finally:
            written = piece[: self._staged.offset - start]
            UPLOADED.inc(len(written))
            if self._is_in_step:
                self._digest.update_xxh3(written)
            if self._hasher is not None:
                self._hasher.update(written)
            hashed.acquire()  # until the other thread has done with the piece

    @contextlib.asynccontextmanager
    async def _commits(self) -> AsyncIterator[asyncio.Future[None]]:
        """Let the database know every second how far it is, where every byte counts; the future is done on failure."""
        end = asyncio.Event()
        commits = asyncio.ensure_future(self._commit_until(end))
        try:
            yield commits
        finally:
            end.set()
            await commits

    async def _commit_until(self, end: asyncio.Event) -> None:
        while not end.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(COMMIT_SECONDS):
                    await end.wait()
            reached = self._staged.offset
            if self._committed < reached < self._upload.length and self._checksum is None and not end.is_set():
                self._committed = await in_database_thread(
                    sessions.commit, self._upload, reached, self._committed, None
                )

    def _flush_when_due(self) -> None:
        reached = self._staged.offset
        if reached - self._flushed >= FLUSH_BYTES and reached < self._upload.length and not self._staged.is_direct:
            self._flushed = reached
            _flusher.ask(staging_path(self._upload.pk))

    def _is_genuine(self, *, is_whole: bool) -> bool:
        if self._checksum is None:
            return True
        if not is_whole:
            return False
        if self._hasher is not None:
            return bool(self._hasher.digest() == self._checksum.digest)
        # Behind after a restart: a later chunk tells, or a worker, whom the last one tells the digest of the whole.
        if self._digest.offset != self._staged.offset:
            return True
        found = self._digest.sha256 if self._checksum.algorithm == SHA256_PREFIX else self._digest.xxh3
        return found == self._checksum.digest

    async def _settle(self, *, is_whole: bool) -> int:
        with contextlib.suppress(OSError):  # It was raised already, or the client's leaving comes first.
            await self._written()
        is_genuine = self._is_genuine(is_whole=is_whole)
        if not is_genuine:
            await self._in_lane(self._staged.settle, self._start)
        if is_whole and not is_genuine:
            raise ProtocolError(CHECKSUM_MISMATCH, _("The chunk arrived damaged; send it again."), "checksum_mismatch")
        if self._staged.offset == self._upload.length:
            await self._in_lane(self._staged.sync)
        elif self._staged.offset != self._flushed and not self._staged.is_direct:
            _flusher.ask(staging_path(self._upload.pk))
        digest = self._digest if self._digest.offset == self._staged.offset else None
        promise = self._checksum if is_whole and self._checksum and self._checksum.is_of_prefix else None
        return await in_database_thread(
            sessions.commit, self._upload, self._staged.offset, self._committed, digest, promise=promise
        )

    async def _in_lane(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self._lane.writing.call(function, *arguments)


def _request_timeout(error: TooSlow) -> ProtocolError:
    if error.code == "idle":
        detail = _("Nothing arrived for a while; ask with HEAD where the upload stands, and go on from there.")
    else:
        detail = _("The chunk came too slowly; ask with HEAD where the upload stands, and go on from there.")
    return ProtocolError(408, detail, error.code)
