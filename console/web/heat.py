"""A heat map as a table: each cell with its text and one of five steps, so that colour is never the only sign. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

STEPS = 5


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell. ``step`` 1..5 (0: nothing known), ``text`` is what people read, ``address`` where it leads."""

    key: str
    text: str
    step: int
    address: str = ""
    state: str = ""


def step_of(value: float | None, top: float) -> int:
    """Return which fifth of 0..top a value is in, 1..5; 0 for no value. What is above the top is in the last."""
    if value is None:
        return 0
    if top <= 0:
        return 1
    return min(STEPS, int(STEPS * max(value, 0.0) / top) + 1)


def top_of(values: Sequence[float | None], *, is_share: bool) -> float:
    """Return what the steps divide: 1 for shares of something, else the largest value, 0 when there is none."""
    return 1.0 if is_share else max((value for value in values if value is not None), default=0.0)


def legend(top: float, text: Callable[[float], str]) -> list[tuple[int, str]]:
    """Return each step with its range in words; nothing when there is nothing to divide."""
    bounds = [top * step / STEPS for step in range(STEPS + 1)]
    pairs = zip(range(1, STEPS + 1), bounds, bounds[1:], strict=False)
    return [(step, f"{text(low)} … {text(high)}") for step, low, high in pairs] if top > 0 else []
