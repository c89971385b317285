"""Answers of predictions as pages show them: shortened, their latency in parts, and two beside each other. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

MOST_VALUES = 200
MOST_DIFFERENCES = 100
# FP32 has seven digits; what differs in the last of them comes from another order of additions, not another model.
RELATIVE, ABSOLUTE = 1e-5, 1e-7


@dataclass(frozen=True, slots=True)
class Latency:
    """Where the time of one answer went, in seconds; None: not told. ``network`` is what the node did not see."""

    total: float | None = None
    network: float | None = None
    queue: float | None = None
    compute: float | None = None

    def parts(self) -> list[tuple[str | Promise, float]]:
        """Return name and seconds of each part that is known."""
        return [(name, value) for name, value in self.named() if value is not None]

    def named(self) -> list[tuple[str | Promise, float | None]]:
        """Return name and seconds of every part."""
        return [
            (_("Total, seen by the worker"), self.total),
            (_("Network and connection"), self.network),
            (_("Queue"), self.queue),
            (_("Compute"), self.compute),
        ]


def latency_of(result: Mapping[str, Any]) -> Latency:
    """Return the latency in the result of an ``infer`` operation."""
    response = result.get("response") or {}
    timing = response.get("timing") or {}
    queue, compute = _seconds(timing.get("queue_us"), 1e6), _seconds(timing.get("compute_us"), 1e6)
    total = _seconds(result.get("milliseconds"), 1e3)
    if total is None or queue is None or compute is None:
        return Latency(total, None, queue, compute)
    return Latency(total, max(0.0, total - queue - compute), queue, compute)


def _seconds(value: Any, scale: float) -> float | None:
    return float(value) / scale if isinstance(value, int | float) else None


def outputs_of(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the outputs in the result of an ``infer`` operation, each with a list of ``data``."""
    response = result.get("response") or {}
    return [
        {**output, "data": list(_values(output))} for output in response.get("outputs", []) if isinstance(output, dict)
    ]


def shortened(output: Mapping[str, Any]) -> dict[str, Any]:
    """Return an output with its first values, how many there are, and whether some are left out."""
    data = output["data"]
    return {**output, "data": data[:MOST_VALUES], "count": len(data), "is_cut": len(data) > MOST_VALUES}


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that differs: where it is, counted from 0, and both values; None: not there."""

    index: int
    left: Any
    right: Any


@dataclass(frozen=True, slots=True)
class ComparedOutput:
    """One output on both sides. ``left_form``, ``right_form``: datatype and shape, empty where there is no such output.

    ``differences`` are the first of the ``differing`` ones among ``count`` values; ``largest`` is the largest distance
    between two numbers, None where there are none.
    """

    name: str
    left_form: str
    right_form: str
    count: int
    differing: int
    largest: float | None
    differences: tuple[Difference, ...]

    @property
    def is_same(self) -> bool:
        """Whether form and values agree."""
        return self.left_form == self.right_form and not self.differing


def compared(left: Sequence[Mapping[str, Any]], right: Sequence[Mapping[str, Any]]) -> list[ComparedOutput]:
    """Return every output of two answers beside each other, by name, in the order of the left one."""
    ours, theirs = {one["name"]: one for one in left}, {one["name"]: one for one in right}
    return [_compare(name, ours.get(name), theirs.get(name)) for name in {**ours, **theirs}]


def _compare(name: str, left: Mapping[str, Any] | None, right: Mapping[str, Any] | None) -> ComparedOutput:
    ours, theirs = (left or {}).get("data", []), (right or {}).get("data", [])
    found: list[Difference] = []
    differing, largest = 0, None
    for index, (a, b) in enumerate(zip_longest(ours, theirs)):
        if _are_numbers(a, b) and math.isfinite(a) and math.isfinite(b):
            largest = max(largest or 0.0, abs(a - b))
        if _agree(a, b):
            continue
        differing += 1
        if len(found) < MOST_DIFFERENCES:
            found.append(Difference(index, a, b))
    count = max(len(ours), len(theirs))
    return ComparedOutput(name, _form(left), _form(right), count, differing, largest, tuple(found))


def _agree(left: Any, right: Any) -> bool:
    if _are_numbers(left, right):
        both_nan = math.isnan(left) and math.isnan(right)
        return both_nan or math.isclose(left, right, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return bool(left == right)


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _form(output: Mapping[str, Any] | None) -> str:
    if output is None:
        return ""
    return f"{output.get('datatype', '')} [{', '.join(str(one) for one in output.get('shape') or ())}]".strip()


def _values(output: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the values of an output, which may be nested, in row-major order."""
    waiting = [output.get("data", [])]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting.extend(reversed(one))
        else:
            yield one
