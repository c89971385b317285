"""Which checks speak of which file, for pages that show verdicts beneath files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from registry.models import Check

# What a model file is asked for as a whole; the check of the format says which file that is.
_OF_THE_MODEL = ("runtime", "signature", "config")
MOST_FILES = 100


def checks_by_file(checks: Iterable[Check]) -> list[tuple[str, list[Check]]]:
    """Return path and checks, by path; nothing for versions with more than ``MOST_FILES`` of them.

    A check speaks of the files that its evidence names.
    """
    rows = list(checks)
    model = next((str(one.evidence["file"]) for one in rows if one.kind == "format" and "file" in one.evidence), "")
    found: dict[str, list[Check]] = {}
    for check in rows:
        named = {*_named(check.evidence), *([model] if model and check.kind in _OF_THE_MODEL else [])}
        for path in named:
            found.setdefault(path, []).append(check)
    return sorted(found.items()) if len(found) <= MOST_FILES else []


def _named(evidence: dict[str, Any]) -> Iterator[str]:
    if isinstance(evidence.get("file"), str):
        yield evidence["file"]
    files = evidence.get("files")
    for one in files if isinstance(files, list) else ():
        path = one.get("path") if isinstance(one, dict) else one
        if isinstance(path, str):
            yield path
