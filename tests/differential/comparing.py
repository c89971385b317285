"""Where two answers differ, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def differences(expected: Any, got: Any) -> list[str]:
    """Return one line per place where ``got`` is not as ``expected``; none when they are equal."""
    return list(_walk(expected, got, ""))


def _walk(expected: Any, got: Any, at: str) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in sorted({*expected, *got}):
            place = f"{at}.{key}" if at else str(key)
            if key not in got:
                yield f"{place}: missing, expected {expected[key]!r}"
            elif key not in expected:
                yield f"{place}: not expected, got {got[key]!r}"
            else:
                yield from _walk(expected[key], got[key], place)
    elif isinstance(expected, list) and isinstance(got, list):
        if len(expected) != len(got):
            yield f"{at}: expected {len(expected)} items {expected!r}, got {len(got)} {got!r}"
            return
        for index, (one, other) in enumerate(zip(expected, got, strict=True)):
            yield from _walk(one, other, f"{at}[{index}]")
    elif type(expected) is not type(got) or expected != got:
        yield f"{at}: expected {expected!r}, got {got!r}"
