"""The artifact store: content by SHA-256 in a folder or an object store (obstore)."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import obstore
import obstore.exceptions
from django.conf import settings
from django.utils.translation import gettext as _
from obstore.store import LocalStore, from_url

from registry.errors import StorageFailed

PIECE = 1024 * 1024
# Blobs lie by the first two digits of their names.
PARTS = 256
_KEY = re.compile(r"blobs/([0-9a-f]{2})/\1[0-9a-f]{62}")
_ERRORS = (obstore.exceptions.BaseError, OSError, ValueError)


def storage_key(sha256: str) -> str:
    """Return the key of a blob in the store: ``blobs/<first two>/<sha256>``."""
    return f"blobs/{sha256[:2]}/{sha256}"


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """What lies in the store. ``modified`` is by the store's clock."""

    sha256: str
    size: int
    modified: datetime


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
