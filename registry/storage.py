"""The artifact store: content by SHA-256 in a folder or an object store (obstore)."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import obstore
import obstore.exceptions
from django.conf import settings
from django.utils.translation import gettext as _
from obstore.store import AzureStore, LocalStore, from_url

from registry.errors import StorageFailed

PIECE = 1024 * 1024
# Blobs lie by the first two digits of their names.
PARTS = 256
_READ_BYTES = 8 * PIECE
# S3 takes no more parts of one object; ours are at least _READ_BYTES.
_MOST_PIECES = 9000
_PART = re.compile(r"staging/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/([0-9]{5})")
_KEY = re.compile(r"blobs/([0-9a-f]{2})/\1[0-9a-f]{62}")
_ERRORS = (obstore.exceptions.BaseError, OSError, ValueError)


def storage_key(sha256: str) -> str:
    """Return the key of a blob in the store: ``blobs/<first two>/<sha256>``."""
    return f"blobs/{sha256[:2]}/{sha256}"


def _part_key(upload_id: uuid.UUID, number: int) -> str:
    return f"staging/{upload_id}/{number:05d}"


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """What lies in the store. ``modified`` is by the store's clock."""

    sha256: str
    size: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class StagedPart:
    """A part of an upload that went to the store directly."""

    upload_id: uuid.UUID
    number: int
    size: int


class DigestDiffers(Exception):
    """The parts together are not what was promised; nothing was kept."""


class ArtifactStore:
    """Blobs by digest, at ``settings.ARTIFACT_STORE_URL``. Use ``artifact_store()``; safe to share among threads."""

    def __init__(self, url: str) -> None:
        local = url.startswith("file:")
        try:
            self._store: Any = from_url(url, mkdir=True) if local else from_url(url)
            self._folder = Path(unquote(urlsplit(url).path)) if local else None
        except _ERRORS as error:
            raise _failed(_("The artifact store cannot be opened: %(why)s"), error) from error

    def put_file(self, path: Path, sha256: str) -> str:
        """Store a local file under its digest and return the storage key. Storing it again changes nothing.

        Raises:
            StorageFailed: one sentence, for example that the disk is full.
        """
        key = storage_key(sha256)
        try:
            obstore.put(self._store, key, path)
            if self._folder is not None:
                _sync(self._folder / key)
                _sync((self._folder / key).parent)
        except _ERRORS as error:
            raise _failed(_("The artifact store could not take the file: %(why)s"), error) from error
        return key

    def take_file(self, path: Path, sha256: str) -> str:
        """Store a local file that nobody writes to any more, without copying it where that can be had.

        The file stays: in a folder of the same disk the blob is a second name of it, elsewhere a copy.

        Raises:
            StorageFailed: one sentence, for example that the disk is full.
        """
        if self._folder is None:
            return self.put_file(path, sha256)
        key = storage_key(sha256)
        target = self._folder / key
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(path, target)
            except FileExistsError:
                return key
            except OSError:  # Another disk, or one that knows no second names.
                return self.put_file(path, sha256)
            _sync(target.parent)
        except OSError as error:
            raise _failed(_("The artifact store could not take the file: %(why)s"), error) from error
        return key

    def exists(self, sha256: str) -> bool:
        """Say whether the store has the blob."""
        try:
            obstore.head(self._store, storage_key(sha256))
        except FileNotFoundError:
            return False
        except _ERRORS as error:
            raise _failed(_("The artifact store does not answer: %(why)s"), error) from error
        return True

    def list_part(self, part: int) -> Iterator[list[StoredBlob]]:
        """Yield pages of the blobs in one of ``PARTS`` (0 to 255); what is not named like a blob is left out.

        Raises:
            StorageFailed: the store does not answer.
        """
        try:
            for page in obstore.list(self._store, f"blobs/{part:02x}", chunk_size=1000):
                yield [
                    StoredBlob(one["path"][-64:], one["size"], one["last_modified"])
                    for one in page
                    if _KEY.fullmatch(one["path"])
                ]
        except _ERRORS as error:
            raise _failed(_("The artifact store cannot be listed: %(why)s"), error) from error

    def open_range(self, sha256: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the bytes ``start`` (inclusive) to ``end`` (exclusive, None: all) in pieces of at most 1 MiB.

        Raises:
            StorageFailed: the blob is missing or unreadable (raised before the first piece).
        """
        key = storage_key(sha256)
        try:
            size = int(obstore.head(self._store, key)["size"])
        except _ERRORS as error:
            raise _failed(_("The blob %(sha256)s cannot be read: %(why)s"), error, sha256=sha256[:12]) from error
        return self._pieces(key, start, size if end is None else min(end, size))

    def _pieces(self, key: str, start: int, end: int) -> Iterator[bytes]:
        while start < end:
            stop = min(start + PIECE, end)
            try:
                piece = bytes(obstore.get_range(self._store, key, start=start, end=stop))
            except _ERRORS as error:
                raise _failed(_("The artifact store stopped answering: %(why)s"), error) from error
            yield piece
            start = stop

    def copy_to(self, sha256: str, path: Path) -> None:
        """Write the blob to a local file.

        Raises:
            StorageFailed: it cannot be read or written.
        """
        try:
            with path.open("wb") as file:
                for piece in self.open_range(sha256):
                    file.write(piece)
        except OSError as error:
            raise _failed(_("The file cannot be written: %(why)s"), error) from error

    def presign(self, sha256: str, *, seconds: int = 900) -> str | None:
        """Return an address from which anybody may read the blob for a while; None on a local folder."""
        if isinstance(self._store, LocalStore):
            return None
        try:
            return str(obstore.sign(self._store, "GET", storage_key(sha256), timedelta(seconds=seconds)))
        except _ERRORS:
            # Without the credentials to sign, the caller streams the blob itself.
            return None

    def sign_part(self, upload_id: uuid.UUID, number: int, *, seconds: int) -> str | None:
        """Return an address to which anybody may PUT a part for a while; None where nothing can be signed."""
        if isinstance(self._store, LocalStore):
            return None
        try:
            return str(obstore.sign(self._store, "PUT", _part_key(upload_id, number), timedelta(seconds=seconds)))
        except _ERRORS:
            return None

    @property
    def part_headers(self) -> dict[str, str]:
        """The headers that a PUT of a part needs."""
        return {"x-ms-blob-type": "BlockBlob"} if isinstance(self._store, AzureStore) else {}

    def list_parts(self, upload_id: uuid.UUID) -> dict[int, int]:
        """Return the parts of an upload that are there, number -> size.

        Raises:
            StorageFailed: the store does not answer.
        """
        return {one.number: one.size for page in self._staged(f"staging/{upload_id}") for one in page}

    def list_staged(self) -> Iterator[list[StagedPart]]:
        """Yield pages of the parts of all uploads.

        Raises:
            StorageFailed: the store does not answer.
        """
        return self._staged("staging")

    def _staged(self, prefix: str) -> Iterator[list[StagedPart]]:
        try:
            for page in obstore.list(self._store, prefix, chunk_size=1000):
                found = [(_PART.fullmatch(one["path"]), int(one["size"])) for one in page]
                yield [StagedPart(uuid.UUID(name[1]), int(name[2]), size) for name, size in found if name]
        except _ERRORS as error:
            raise _failed(_("The artifact store cannot be listed: %(why)s"), error) from error

    def join_parts(self, upload_id: uuid.UUID, sizes: Sequence[int], sha256: str) -> None:
        """Make a blob of the parts of an upload, read once in their order. They stay.

        The blob appears only when all of it was read and has the promised digest; where it is there already the parts
        are only compared.

        Raises:
            DigestDiffers: they have another one, or sizes that were not announced.
            StorageFailed: a part is missing, or the store does not answer.
        """
        digest = hashlib.sha256()

        def pieces() -> Iterator[bytes]:
            for number, size in enumerate(sizes, 1):
                arrived = 0
                for piece in obstore.get(self._store, _part_key(upload_id, number)).stream(min_chunk_size=_READ_BYTES):
                    view = memoryview(piece)
                    arrived += len(view)
                    digest.update(view)
                    yield bytes(view)
                if arrived != size:
                    raise DigestDiffers
            if digest.hexdigest() != sha256:
                # Raised before the last word: the store drops what it was given so far.
                raise DigestDiffers

        try:
            if self.exists(sha256):
                for _piece in pieces():
                    pass
            else:
                chunk = max(_READ_BYTES, sum(sizes) // _MOST_PIECES + 1)
                pieces_ahead = _read_ahead(pieces())
                obstore.put(self._store, storage_key(sha256), pieces_ahead, use_multipart=True, chunk_size=chunk)
        except _ERRORS as error:
            raise _failed(_("The parts of the upload cannot be joined: %(why)s"), error) from error

    def delete_parts(self, parts: Sequence[StagedPart]) -> None:
        """Remove parts; those that are absent are no matter.

        Raises:
            StorageFailed: the store does not let them go.
        """
        if not parts:
            return
        try:
            with contextlib.suppress(FileNotFoundError):
                obstore.delete(self._store, [_part_key(one.upload_id, one.number) for one in parts])
        except _ERRORS as error:
            raise _failed(_("The artifact store could not delete parts: %(why)s"), error) from error

    def delete(self, sha256: str) -> None:
        """Remove the blob; nothing happens when it is absent.

        Raises:
            StorageFailed: the store does not let it go.
        """
        try:
            with contextlib.suppress(FileNotFoundError):
                obstore.delete(self._store, storage_key(sha256))
        except _ERRORS as error:
            raise _failed(_("The artifact store could not delete a blob: %(why)s"), error) from error


def artifact_store() -> ArtifactStore:
    """Return the store of this process."""
    return _store_at(settings.ARTIFACT_STORE_URL)


@functools.lru_cache(maxsize=4)
def _store_at(url: str) -> ArtifactStore:
    return ArtifactStore(url)


def _read_ahead(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield pieces, read in a thread while the one before is used: the library asks for them where it may not read."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="read-ahead") as thread:
        following = thread.submit(next, pieces, None)
        while (piece := following.result()) is not None:
            following = thread.submit(next, pieces, None)
            yield piece


def _sync(path: Path) -> None:
    """Wait until a file or the names in a folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _failed(template: str, error: BaseException, **values: str) -> StorageFailed:
    return StorageFailed(template % {"why": _sentence(error), **values})


def _sentence(error: BaseException) -> str:
    """Return what went wrong in plain words; the library's own text spans many lines."""
    text = str(error)
    if (isinstance(error, OSError) and error.errno == errno.ENOSPC) or "os error 28" in text:
        return _("there is no space left on the disk.")
    if (isinstance(error, OSError) and error.errno == errno.EDQUOT) or "os error 122" in text:
        return _("the disk quota is used up.")
    if isinstance(error, FileNotFoundError):
        return _("it is not there.")
    if isinstance(error, PermissionError) or "os error 13" in text:
        return _("access is denied.")
    return (text.strip().splitlines() or [type(error).__name__])[0][:200]
