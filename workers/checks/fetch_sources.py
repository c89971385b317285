"""Where files are fetched from, each from the byte at which it stopped: web servers by ranges, stores by listings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import httpx2
import obstore
import obstore.exceptions
from django.utils.translation import gettext as _
from obstore.store import from_url

from registry.domain.import_sources import WEB_SCHEMES
from registry.errors import ValidationFailed

# Without a byte for so long a source counts as gone.
_IDLE_SECONDS = 60.0
_PIECE = 1024 * 1024
_RANGE = re.compile(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18})")
SOURCE_ERRORS = (obstore.exceptions.BaseError, httpx2.HTTPError, OSError)

Pieces = Iterator[bytes]


class Changed(Exception):
    """What is there now is not what was fetched so far."""


@dataclass(slots=True)
class Fetched:
    """A file and how far it is. ``size`` None: the source has not said; ``tag`` tells this content from later one."""

    path: str
    size: int | None = None
    tag: str = ""
    offset: int = 0
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Opened:
    """A file that is being read from ``offset``. ``can_continue``: a cut costs nothing but another request."""

    offset: int
    size: int | None
    tag: str
    can_continue: bool
    pieces: Pieces


class Source(Protocol):
    """Where the files of one address are."""

    def files(self) -> list[Fetched]:
        """Return what there is."""

    def open(self, file: Fetched) -> Any:
        """Return a context manager that gives what is missing of a file as ``Opened``.

        Raises:
            Changed: the file is another one meanwhile.
        """


def source_at(address: str) -> Source:
    """Return the source for an address that is allowed."""
    return WebSource(address) if urlsplit(address).scheme in WEB_SCHEMES else StoreSource(address)


class WebSource:
    """One file of a web server. Redirects are not followed: they might lead to what the operator did not allow."""

    def __init__(self, address: str) -> None:
        self._address = address

    def files(self) -> list[Fetched]:
        """Return the one file."""
        return [Fetched(unquote(urlsplit(self._address).path).rpartition("/")[2])]

    @contextmanager
    def open(self, file: Fetched) -> Iterator[Opened]:
        """Ask for the rest of the file, on the condition that it is still the same one."""
        # From the first byte on, so that the answer tells whether the server knows ranges.
        headers = {"Accept-Encoding": "identity", "Range": f"bytes={file.offset}-"}
        if file.offset:
            headers["If-Range"] = file.tag
        timeout = httpx2.Timeout(_IDLE_SECONDS, connect=10.0)
        with (
            httpx2.Client(timeout=timeout, trust_env=False, follow_redirects=False) as client,
            client.stream("GET", self._address, headers=headers) as response,
        ):
            yield self._opened(file, response)

    def _opened(self, file: Fetched, response: httpx2.Response) -> Opened:
        tag = _tag(response)
        if response.status_code == 206:
            found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if found is None or int(found[1]) != file.offset:
                raise Changed
            size = int(found[2])
            if file.offset and (size != file.size or tag != file.tag):
                raise Changed
            return Opened(file.offset, size, tag, bool(tag), response.iter_raw())
        if response.status_code == 200:
            length = response.headers.get("Content-Length", "")
            size_or_none = int(length) if length.isascii() and length.isdigit() and len(length) < 19 else None
            return Opened(0, size_or_none, "", False, response.iter_raw())
        if response.status_code == 416:
            if file.offset:
                raise Changed
            raise ValidationFailed(_("The file at %(address)s is empty.") % {"address": self._address})
        raise httpx2.HTTPStatusError("refused", request=response.request, response=response)


class StoreSource:
    """Every object below a prefix, or the one object that it names. Credentials are those of the worker."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._store: Any = from_url(address)

    def files(self) -> list[Fetched]:
        """List the objects."""
        listed = [meta for page in obstore.list(self._store) for meta in page]
        if not listed:
            parent, _slash, name = self._address.rstrip("/").rpartition("/")
            self._store = from_url(parent)
            listed = [obstore.head(self._store, name)]
        found = [Fetched(one["path"], int(one["size"]), str(one["e_tag"] or "")) for one in listed]
        return sorted(found, key=lambda one: one.path)

    @contextmanager
    def open(self, file: Fetched) -> Iterator[Opened]:
        """Read the rest of an object, on the condition that it is still the same one."""
        options: dict[str, Any] = {"range": {"offset": file.offset}, "if_match": file.tag} if file.offset else {}
        try:
            answer = obstore.get(self._store, file.path, options=options)  # type: ignore[arg-type]
        except obstore.exceptions.PreconditionError as error:
            raise Changed from error
        size, tag = int(answer.meta["size"]), str(answer.meta["e_tag"] or "")
        if file.offset and size != file.size:
            raise Changed
        pieces = (bytes(piece) for piece in answer.stream(min_chunk_size=_PIECE))
        yield Opened(file.offset, size, tag, bool(tag), pieces)


def _tag(response: httpx2.Response) -> str:
    """Return what tells this content from later one: a strong ETag, else the time of its last change."""
    tag = str(response.headers.get("ETag", ""))
    if tag.startswith('"'):
        return tag
    return "" if tag else str(response.headers.get("Last-Modified", ""))
