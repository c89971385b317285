"""How a file is cut into the parts of a direct upload. Pure."""

from __future__ import annotations

_MIB = 1024 * 1024
# Large enough that the round trip of a request does not count, small enough to be sent again after a cut.
LEAST_BYTES = 32 * _MIB
MOST_PARTS = 10_000


def part_size(length: int) -> int:
    """Return the bytes of every part but the last, whole MiB, so that a file has at most ``MOST_PARTS``."""
    needed = -(-length // MOST_PARTS)
    return max(LEAST_BYTES, -(-needed // _MIB) * _MIB)


def part_count(length: int, part_bytes: int) -> int:
    """Return how many parts ``length`` bytes make."""
    return -(-length // part_bytes)


def part_sizes(length: int, part_bytes: int) -> list[int]:
    """Return the size of each part, in their order."""
    count = part_count(length, part_bytes)
    return [part_bytes] * (count - 1) + [length - part_bytes * (count - 1)]
