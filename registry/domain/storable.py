"""Text of foreign origin (model files, nodes, models' answers) made fit for the database. Pure.

PostgreSQL's text and JSON hold no NUL, no half surrogate pair, no infinity and no NaN, and answers are written fast
only without whole numbers beyond 64 bits; files and nodes may send them all.
"""

from __future__ import annotations

import math
import re
from typing import Any

INTEGERS = range(-(2**63), 2**64)
_REFUSED = re.compile("[\0\ud800-\udfff]")


def storable_text(text: str) -> str:
    """Return the text with a replacement character for each one that cannot be stored."""
    return _REFUSED.sub("\ufffd", text)


def storable(value: Any) -> Any:
    """Return a JSON value with texts as by ``storable_text`` and numbers that are none, or too large, as text."""
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and value not in INTEGERS:
        return hex(value)  # str() refuses the largest
    if isinstance(value, dict):
        return {storable_text(str(key)): storable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [storable(inner) for inner in value]
    return value
