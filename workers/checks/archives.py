"""Archives of strangers: members come out one by one, counted while they are read, and nothing outside is touched.

What an archive says of itself is never believed: sizes are those of the bytes that came out. Links, devices, encrypted
and doubled members, names that lead elsewhere, and archives that grow out of all proportion are refused. So is a list
of members, or the description of one, that is larger than any archive of a model needs: it is read into memory.
"""

from __future__ import annotations

import bz2
import gzip
import io
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from django.utils.translation import gettext as _

from registry.domain.paths import clash, path_problem
from registry.errors import ValidationFailed

PIECE = 1024 * 1024
# A model hardly shrinks; what grows more than this (and is not small) is made to fill disks.
_MOST_GROWTH = 200
_SMALL = 64 * 1024 * 1024
# Entries of any kind that are looked at, folders too, so that millions of empty ones end soon.
_ENTRIES_FOR_FILES = 4
# What 10,000 members with the longest paths need in a .zip; and one member, with all its extensions, in a .tar.
_DIRECTORY_BYTES = 8 * 1024 * 1024
_HEADER_BYTES = 1024 * 1024
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2}
_PACKED: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open}
_BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    EOFError,
    OSError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """``files``: most members. ``size``: most bytes of all together."""

    files: int
    size: int


class Keep(Protocol):
    """Takes the bytes of one member, in pieces."""

    def __call__(self, path: str, pieces: Iterator[bytes]) -> None: ...


def unpack(archive: Path, name: str, limits: Limits, keep: Keep) -> list[str]:
    """Give each file of a .zip, .mar, .tar or .tar.gz to ``keep`` and return their paths.

    Raises:
        ValidationFailed: it is damaged, or holds what an archive of a model does not hold; one sentence.
    """
    budget = _Budget(archive.stat().st_size, limits)
    paths: dict[str, None] = {}
    try:
        for path, pieces in _members(archive, budget):
            _require_good(path, paths)
            paths[path] = None
            keep(path, budget.counted(path, pieces))
    except ValidationFailed:
        raise
    except _BROKEN as error:
        raise ValidationFailed(_("%(name)s is no archive, or a damaged one.") % {"name": name}) from error
    if not paths:
        raise ValidationFailed(_("%(name)s is empty.") % {"name": name})
    if problem := clash([*paths]):
        raise ValidationFailed(problem)
    return [*paths]


class _Budget:
    def __init__(self, packed: int, limits: Limits) -> None:
        self._limits = limits
        self._most = min(limits.size, max(_SMALL, packed * _MOST_GROWTH))
        self._entries = self._size = 0

    def entry(self) -> None:
        """Count one entry of any kind."""
        self._entries += 1
        if self._entries > self._limits.files * _ENTRIES_FOR_FILES:
            raise ValidationFailed(_("The archive has too many entries."))

    def counted(self, path: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the pieces as long as there is room."""
        for piece in pieces:
            self._size += len(piece)
            if self._size > self._most:
                what = _("The archive unpacks to more than %(limit)d bytes (at %(path)s), which is not allowed.")
                raise ValidationFailed(what % {"limit": self._most, "path": path})
            yield piece

    def require_file(self, count: int) -> None:
        """Refuse one file more than there may be."""
        if count >= self._limits.files:
            raise ValidationFailed(_("A version has at most %(count)s files.") % {"count": self._limits.files})


def _members(archive: Path, budget: _Budget) -> Iterator[tuple[str, Iterator[bytes]]]:
    members = _zip(archive, budget) if zipfile.is_zipfile(archive) else _tar(archive, budget)
    for found, (path, pieces) in enumerate(members):
        budget.require_file(found)
        yield path, pieces


class _Directory(io.BufferedReader):
    """A file of which nobody reads more at once than a list of members may have."""

    def read(self, size: int | None = -1) -> bytes:
        """Return bytes. Raises ValidationFailed when too many are wanted."""
        most = _DIRECTORY_BYTES + 1
        piece = super().read(most if size is None or size < 0 else min(size, most))
        if len(piece) > _DIRECTORY_BYTES:
            raise _too_long()
        return piece


class _Headers:
    """The unpacked bytes of a .tar. What is read before a member begins is bounded; ``member_begins`` says when."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._left: int | None = _HEADER_BYTES

    def member_begins(self) -> None:
        """Count no more."""
        self._left = None

    def member_ends(self) -> None:
        """Count from here on."""
        self._left = _HEADER_BYTES

    def read(self, size: int) -> bytes:
        """Return bytes. Raises ValidationFailed when there were too many between two members."""
        piece = self._source.read(size)
        if self._left is not None:
            self._left -= len(piece)
            if self._left < 0:
                raise _too_long()
        return piece


def _too_long() -> ValidationFailed:
    return ValidationFailed(_("The archive describes its members at a length that is not allowed."))


def _zip(archive: Path, budget: _Budget) -> Iterator[tuple[str, Iterator[bytes]]]:
    with _Directory(io.FileIO(archive)) as source, zipfile.ZipFile(source) as file:
        for info in file.infolist():
            budget.entry()
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind == stat.S_IFLNK:
                raise ValidationFailed(
                    _("%(path)s is a link; archives of models hold files only.") % _named(info.filename)
                )
            if info.is_dir():
                continue
            if kind not in (0, stat.S_IFREG):
                raise ValidationFailed(_("%(path)s is no ordinary file.") % _named(info.filename))
            if info.compress_type not in _METHODS:
                raise ValidationFailed(_("%(path)s is packed in a way that is not taken.") % _named(info.filename))
            if info.flag_bits & 0x1:
                raise ValidationFailed(_("%(path)s is encrypted.") % _named(info.filename))
            with file.open(info) as member:
                yield info.filename, _pieces(member)


def _tar(archive: Path, budget: _Budget) -> Iterator[tuple[str, Iterator[bytes]]]:
    with archive.open("rb") as packed:
        start = packed.read(3)
        packed.seek(0)
        opener = next((opener for magic, opener in _PACKED.items() if start.startswith(magic)), None)
        source: Any = _Headers(packed if opener is None else opener(packed))
        # As a stream, so that nobody seeks through a compressed one.
        with tarfile.open(fileobj=source, mode="r|") as file:
            yield from _tar_members(file, source, budget)


def _tar_members(file: tarfile.TarFile, source: _Headers, budget: _Budget) -> Iterator[tuple[str, Iterator[bytes]]]:
    for info in file:
        budget.entry()
        if info.isdir():
            source.member_ends()
            continue
        if info.issym() or info.islnk():
            raise ValidationFailed(_("%(path)s is a link; archives of models hold files only.") % _named(info.name))
        member = file.extractfile(info) if info.isreg() else None
        if member is None:
            raise ValidationFailed(_("%(path)s is no ordinary file.") % _named(info.name))
        source.member_begins()
        yield info.name.removeprefix("./"), _pieces(member)
        source.member_ends()


def _pieces(member: IO[bytes]) -> Iterator[bytes]:
    while piece := member.read(PIECE):
        yield piece


def _named(path: str) -> dict[str, str]:
    return {"path": path[:200]}


def _require_good(path: str, earlier: Container[str]) -> None:
    if problem := path_problem(path):
        raise ValidationFailed(f"{path[:200]!r}: {problem}")
    if path in earlier:
        raise ValidationFailed(_("%(path)s is twice in the archive.") % _named(path))
