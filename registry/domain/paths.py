"""Names of files inside a version: relative, normalised, harmless on every node."""

from __future__ import annotations

import unicodedata

from registry.domain.texts import gettext as _
from registry.errors import ValidationFailed

MAX_PATH = 500
MAX_PART = 255
MAX_FILES = 10_000
"""Files of one version."""


def path_problem(path: str) -> str:
    """Return one sentence that says what is wrong with ``path``, or an empty string."""
    if not path:
        return _("The file name is empty.")
    if len(path) > MAX_PATH:
        return _("The file name is longer than %(limit)s characters.") % {"limit": MAX_PATH}
    if "\\" in path:
        return _("The file name contains a backslash; use / between folders.")
    if any(unicodedata.category(character) == "Cs" for character in path):
        return _("The file name is no valid Unicode.")
    if any(unicodedata.category(character) == "Cc" for character in path):
        return _("The file name contains a control character.")
    if path.startswith("/") or (len(path) > 1 and path[1] == ":"):
        return _("The file name must be relative to the version, not absolute.")
    parts = path.split("/")
    if any(part == ".." for part in parts):
        return _("The file name must not contain '..'.")
    if any(part in {"", "."} for part in parts):
        return _("The file name must be normalised: no '.', no '//' and no '/' at the end.")
    if any(part != part.strip() for part in parts):
        return _("Parts of the file name must not begin or end with a space.")
    if any(len(part.encode()) > MAX_PART for part in parts):
        return _("A part of the file name is longer than %(limit)s bytes.") % {"limit": MAX_PART}
    if unicodedata.normalize("NFC", path) != path:
        return _("The file name must be in Unicode normal form C.")
    return ""


def require_path(path: str) -> str:
    """Return ``path`` when it is a normalised relative path.

    Raises:
        ValidationFailed: it is not; ``errors`` names the field ``path``.
    """
    problem = path_problem(path)
    if problem:
        raise ValidationFailed(problem, errors=[{"field": "path", "message": problem}])
    return path


def clash(paths: list[str]) -> str:
    """Return a sentence when two paths cannot exist side by side (one is a folder of the other), or an empty string."""
    known = set(paths)
    for path in paths:
        parts = path.split("/")
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            if folder in known:
                return _("%(folder)s is a file, so %(path)s cannot be inside it.") % {"folder": folder, "path": path}
    return ""
