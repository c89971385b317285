"""The files of a folder that becomes a version, before anything is sent.

A link may name any file of the machine, and what a build checked out may hold a stranger's link: none is followed
unasked. What can be no file of a version is refused here, so that no version is begun for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

MAX_FILES = 10_000
"""Files of one version; the console refuses more."""


class FolderRefused(Exception):
    """The folder cannot be a version; the message is one sentence."""


def files_in(folder: Path, *, follow_links: bool = False) -> dict[str, Path]:
    """Return path inside the version -> local file, in order.

    Raises:
        FolderRefused: it holds links (files that are links are read with ``follow_links``), devices, names that are no
            text, too many files, or none.
        OSError: it cannot be read.
    """
    found: dict[str, Path] = {}
    for path, name in _files(folder):
        _require_file(path, name, follow_links=follow_links)
        found[name] = path
        if len(found) > MAX_FILES:
            raise FolderRefused(f"{folder} holds more than {MAX_FILES} files, which is the most of a version.")
    if not found:
        raise FolderRefused(f"{folder} holds no files.")
    return dict(sorted(found.items()))


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    def failed(error: OSError) -> None:
        raise error

    for parent, folders, files in os.walk(folder, onerror=failed):
        links = [name for name in folders if Path(parent, name).is_symlink()]
        for name in (*links, *files):
            path = Path(parent, name)
            yield path, path.relative_to(folder).as_posix()


def _require_file(path: Path, name: str, *, follow_links: bool) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise FolderRefused(f"The name {os.fsencode(name)!r} is not UTF-8 text.") from None
    if path.is_symlink():
        if path.is_dir():
            raise FolderRefused(f"{name} is a link to a folder; copy its files there instead.")
        if not path.exists():
            raise FolderRefused(f"{name} is a link that leads nowhere.")
        if not follow_links:
            raise FolderRefused(f"{name} is a link; with --follow-links the file that it names is sent.")
    if not path.is_file():
        raise FolderRefused(f"{name} is no ordinary file.")
