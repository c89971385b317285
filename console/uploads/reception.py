"""Takes the body of one PATCH from the socket to the staging file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.utils.translation import gettext as _

from console.middleware.database import in_database_thread
from console.middleware.metrics import UPLOADED
from console.uploads import sessions
from console.uploads.protocol import CHECKSUM_MISMATCH, Checksum, ProtocolError, storage_full
from console.uploads.staging import FULL, StagedFile
from registry.models import Upload

Receive = Callable[[], Awaitable[Mapping[str, Any]]]

WRITE_BYTES = 1 << 20
COMMIT_BYTES = 8 << 20
IDLE_SECONDS = 60.0
_threads = ThreadPoolExecutor(max_workers=8, thread_name_prefix="staging")


class Reception:
    """One PATCH. Without a checksum every byte that arrived counts; with one the chunk counts whole or not at all."""

    def __init__(self, upload: Upload, staged: StagedFile, checksum: Checksum | None) -> None:
        self._upload = upload
        self._staged = staged
        self._checksum = checksum
        self._hasher = checksum.hasher() if checksum else None
        self._start = self._committed = staged.offset

    async def run(self, receive: Receive) -> int:
        """Read the body, write it, commit it; return the new offset.

        Raises:
            ProtocolError: 413 past the end, 460 wrong checksum, 408 idle, 499 the client left, 507 the disk is full.
                Unless a checksum forbids it, what arrived before is committed.
        """
        try:
            await self._copy(receive)
        except ProtocolError:
            await self._settle(is_whole=False)
            raise
        except OSError as error:
            await self._settle(is_whole=False)
            if error.errno in FULL:
                raise storage_full() from error
            raise
        return await self._settle(is_whole=True)

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
            if self._staged.offset + len(buffer) > self._upload.length:
                raise ProtocolError(413, _("The chunk goes past the end of the upload."), "too_large")
            if len(buffer) >= WRITE_BYTES or is_last:
                await self._write(buffer)
                buffer = bytearray()

    async def _next(self, receive: Receive) -> Mapping[str, Any]:
        try:
            return await asyncio.wait_for(receive(), IDLE_SECONDS)
        except TimeoutError:
            raise ProtocolError(408, _("Nothing arrived for a minute."), "idle") from None

    async def _write(self, buffer: bytearray) -> None:
        """Write and hash in a thread; now and then let the database know."""
        if not buffer:
            return
        await asyncio.get_running_loop().run_in_executor(_threads, self._staged.append, buffer, self._hasher)
        UPLOADED.inc(len(buffer))
        if self._checksum is None and self._staged.offset - self._committed >= COMMIT_BYTES:
            self._committed = await in_database_thread(sessions.commit, self._upload, self._staged, self._committed)

    async def _settle(self, *, is_whole: bool) -> int:
        is_genuine = self._checksum is None or (
            is_whole and self._hasher is not None and self._hasher.digest() == self._checksum.digest
        )
        if not is_genuine:
            await asyncio.get_running_loop().run_in_executor(_threads, self._staged.settle, self._start)
        if is_whole and not is_genuine:
            raise ProtocolError(CHECKSUM_MISMATCH, _("The chunk arrived damaged; send it again."), "checksum_mismatch")
        return await in_database_thread(sessions.commit, self._upload, self._staged, self._committed)
