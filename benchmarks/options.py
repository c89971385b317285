"""What every benchmark is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    """``oracle`` is the folder of the reference server (triton.sh, compare.py), None when there is none.

    ``quick`` asks for a look that takes seconds, whose figures are not worth quoting.
    """

    quick: bool = False
    oracle: Path | None = None
    port_base: int = 21000
    protocols: tuple[str, ...] = ("grpc", "http")
    concurrency: tuple[int, ...] = (1, 16, 64)
    rounds: int = 3
    requests: int = 1_000_000
