"""Takes the body of one PATCH from the socket to the staging file."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.utils.translation import gettext as _

from console.middleware.database import in_database_thread
from console.middleware.metrics import UPLOADED
from console.uploads import sessions
from console.uploads.digests import KeptDigests
from console.uploads.protocol import CHECKSUM_MISMATCH, Checksum, ProtocolError, storage_full
from console.uploads.staging import FULL, Flusher, StagedFile
from registry.models import Upload
from registry.services.staging import staging_path

Receive = Callable[[], Awaitable[Mapping[str, Any]]]

# Of each request two such pieces are in memory at most: one is being written and hashed, the next one arrives.
WRITE_BYTES = 1 << 20
COMMIT_BYTES = 8 << 20
FLUSH_BYTES = 16 << 20
IDLE_SECONDS = 60.0
_threads = ThreadPoolExecutor(max_workers=8, thread_name_prefix="staging")
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
        self._writing: asyncio.Future[None] | None = None

    async def run(self, receive: Receive) -> int:
        """Read the body, write it, commit it; return the new offset.

        Raises:
            ProtocolError: 413 past the end, 460 wrong checksum, 408 idle, 499 the client left, 507 the disk is full.
                Unless a checksum forbids it, what arrived before is committed.
            ValidationFailed: the last byte is there, and the whole has another digest than was promised.
        """
        is_in_step = await _in_thread(self._digest.catch_up, self._staged.descriptor, self._start)
        before = self._digest.copy()
        try:
            try:
                await self._copy(receive)
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
            is_intact = is_in_step and self._digest.offset == self._staged.offset
            _digests.keep(self._upload.pk, self._digest if is_intact else before)
            if self._staged.offset == self._upload.length:
                _digests.forget(self._upload.pk)

    async def _copy(self, receive: Receive) -> None:
        buffer = bytearray()
        is_last = False
        while not is_last:
            event = await self._next(receive)
            if event["type"] == "http.disconnect":
                await self._write(buffer)
                raise ProtocolError(499, _("The client left."), "disconnected")
            buffer += event.get("body", b"")
            is_last = not event.get("more_body", False)
            if self._arrived + len(buffer) > self._upload.length:
                raise ProtocolError(413, _("The chunk goes past the end of the upload."), "too_large")
            if len(buffer) >= WRITE_BYTES or is_last:
                await self._write(buffer)
                buffer = bytearray()

    async def _next(self, receive: Receive) -> Mapping[str, Any]:
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                return await receive()
        except TimeoutError:
            raise ProtocolError(408, _("Nothing arrived for a minute."), "idle") from None

    async def _write(self, buffer: bytearray) -> None:
        """Begin to write and hash a piece in a thread, after the one before; now and then let the database know."""
        await self._written()
        if self._checksum is None and self._staged.offset - self._committed >= COMMIT_BYTES:
            self._committed = await in_database_thread(
                sessions.commit, self._upload, self._staged, self._committed, None
            )
        if self._staged.offset - self._flushed >= FLUSH_BYTES:
            self._flushed = self._staged.offset
            _flusher.ask(staging_path(self._upload.pk))
        if buffer:
            self._arrived += len(buffer)
            self._writing = asyncio.get_running_loop().run_in_executor(_threads, self._take, buffer)

    async def _written(self) -> None:
        """Wait for the piece that is being written.

        Raises:
            OSError: it could not be written, or not all of it.
        """
        writing, self._writing = self._writing, None
        if writing is not None:
            await writing

    def _take(self, piece: bytearray) -> None:
        start = self._staged.offset
        try:
            self._staged.append(piece)
        finally:
            view = memoryview(piece)[: self._staged.offset - start]
            UPLOADED.inc(len(view))
            if self._digest.offset == start:
                self._digest.update(view)
            if self._hasher is not None:
                self._hasher.update(view)

    def _is_genuine(self, *, is_whole: bool) -> bool:
        if self._checksum is None:
            return True
        if not is_whole:
            return False
        if self._hasher is not None:
            return bool(self._hasher.digest() == self._checksum.digest)
        # Behind after a restart: a later chunk tells, or a worker, whom the last one tells the digest of the whole.
        return self._digest.offset != self._staged.offset or self._digest.sha256 == self._checksum.digest

    async def _settle(self, *, is_whole: bool) -> int:
        with contextlib.suppress(OSError):  # It was raised already, or the client's leaving comes first.
            await self._written()
        is_genuine = self._is_genuine(is_whole=is_whole)
        if not is_genuine:
            await _in_thread(self._staged.settle, self._start)
        if is_whole and not is_genuine:
            raise ProtocolError(CHECKSUM_MISMATCH, _("The chunk arrived damaged; send it again."), "checksum_mismatch")
        if self._staged.offset == self._upload.length:
            await _in_thread(self._staged.sync)
        elif self._staged.offset != self._flushed:
            _flusher.ask(staging_path(self._upload.pk))
        digest = self._digest if self._digest.offset == self._staged.offset else None
        promised = self._checksum.digest.hex() if is_whole and self._checksum and self._checksum.is_of_prefix else ""
        return await in_database_thread(
            sessions.commit, self._upload, self._staged, self._committed, digest, promised=promised
        )


async def _in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(_threads, function, *arguments)
