"""What differs between two texts, line by line. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

CONTEXT_LINES = 3
# Longer texts are compared as a whole: the time of finding the lines grows with their product.
MAX_LINES = 5000


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a difference. ``kind``: ``same``, ``added``, ``removed``, or ``gap`` for lines left out."""

    kind: str
    text: str = ""


_KINDS = {" ": "same", "+": "added", "-": "removed"}


def text_diff(before: str, after: str) -> list[DiffLine]:
    """Return the changed lines with a few unchanged ones around them; an empty list when the texts are equal."""
    return list(_lines(before.splitlines(), after.splitlines()))


def _lines(before: list[str], after: list[str]) -> Iterator[DiffLine]:
    if before == after:
        return
    if max(len(before), len(after)) > MAX_LINES:
        yield from (DiffLine("removed", line) for line in before)
        yield from (DiffLine("added", line) for line in after)
        return
    found = difflib.unified_diff(before, after, lineterm="", n=CONTEXT_LINES)
    next(found)
    next(found)  # the two lines that name files
    for position, line in enumerate(found):
        if not line.startswith("@@"):
            yield DiffLine(_KINDS[line[0]], line[1:])
        elif position:
            yield DiffLine("gap")
