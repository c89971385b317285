"""Lengths of time as people write them: 90m, 62h, 2d. Pure."""

from __future__ import annotations

import re

_MINUTES = {"m": 1, "h": 60, "d": 24 * 60}
_LENGTH = re.compile(r"([0-9]{1,6})\s*([mhd]?)", re.IGNORECASE)


def read_minutes(text: str) -> int | None:
    """Return the minutes that a text means: a number with m, h or d, or minutes alone; None when it means none."""
    found = _LENGTH.fullmatch(text.strip())
    return int(found[1]) * _MINUTES[found[2].lower() or "m"] if found else None


def minutes_text(minutes: int) -> str:
    """Return minutes in the largest unit that holds them without a rest."""
    for unit in ("d", "h"):
        if minutes and minutes % _MINUTES[unit] == 0:
            return f"{minutes // _MINUTES[unit]}{unit}"
    return f"{minutes}m"
