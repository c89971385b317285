"""Numbers as people read them: ``2 files``, ``1.2 KiB``."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 file``, ``2 files``."""
    return f"{count} {noun}" if count == 1 else f"{count} {plural or noun + 's'}"


def size(count: float) -> str:
    """Return bytes in binary units, as the console writes them: ``3 B``, ``3.4 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def size_of(done: float, total: float) -> str:
    """Return how much of a whole there is: ``16.0 of 50.0 MiB``, ``512 B of 3.0 KiB``."""
    some, whole = size(done), size(total)
    number, _space, unit = some.partition(" ")
    return f"{number if whole.endswith(f' {unit}') else some} of {whole}"
