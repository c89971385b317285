"""Which unit of a model answers a request: weights, sticky keys, roles. Pure: chance is an argument.

Two ways to choose, both over the units that are ready:

- by a point in [0, 1): intervals as wide as the weights;
- by a sticky key: weighted rendezvous hashing, so that raising a weight moves callers only *to* that unit, and
  a unit that goes away moves only its own callers.

Source: Thaler and Ravishankar, "Using name-based mappings to increase hit rates" (1998), with the logarithmic
weights of Schindelhauer and Schomaker (2005).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from serving_node.contract.control import Route
from serving_node.contract.states import RouteRole

_ANSWERING = (RouteRole.LIVE, RouteRole.CANARY)


@dataclass(frozen=True, slots=True)
class RouteTable:
    """The routes of one served name. ``sticky`` names the header or parameter whose value pins a caller."""

    routes: tuple[Route, ...] = ()
    sticky: str = ""
    answering: tuple[Route, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        answering = tuple(route for route in self.routes if route.weight > 0 and route.role in _ANSWERING)
        object.__setattr__(self, "answering", answering)

    @property
    def weighted_units(self) -> frozenset[str]:
        """The units that must be ready before these routes may replace others."""
        return frozenset(route.unit for route in self.answering)

    def choose(self, ready: Container[str], point: float) -> str | None:
        """Return the unit for a random ``point`` in [0, 1), or None when no weighted unit is ready."""
        if len(self.answering) == 1:
            unit = self.answering[0].unit
            return unit if unit in ready else None
        candidates = [route for route in self.answering if route.unit in ready]
        if not candidates:
            return None
        mark = point * sum(route.weight for route in candidates)
        for route in candidates:
            mark -= route.weight
            if mark < 0:
                return route.unit
        return candidates[-1].unit

    def choose_sticky(self, ready: Container[str], key: str) -> str | None:
        """Return the unit that ``key`` is pinned to, or None when no weighted unit is ready."""
        best: tuple[float, str] | None = None
        for route in self.answering:
            if route.unit in ready:
                score = (route.weight / -math.log(_unit_interval(key, route.unit)), route.unit)
                if best is None or score > best:
                    best = score
        return None if best is None else best[1]

    def live_unit(self, ready: Container[str]) -> str | None:
        """Return the unit whose metadata stands for the model: the heaviest ready live route, else any ready one."""
        candidates = [route for route in self.routes if route.unit in ready]
        if not candidates:
            return None
        return max(candidates, key=lambda route: (route.role is RouteRole.LIVE, route.weight)).unit

    def shadows(self, ready: Container[str], point: float) -> Sequence[str]:
        """Return the ready shadow units that get a copy of a request, for a random ``point`` in [0, 1)."""
        return [
            route.unit
            for route in self.routes
            if route.role is RouteRole.SHADOW and route.unit in ready and point * 100.0 < route.sample_percent
        ]

    def weight_of(self, unit: str) -> int:
        """Return the weight that ``unit`` has in these routes, 0 when it has none."""
        return sum(route.weight for route in self.answering if route.unit == unit)


def _unit_interval(key: str, unit: str) -> float:
    """Return a number in (0, 1) that depends on both strings only."""
    digest = hashlib.blake2b(f"{key}\0{unit}".encode(), digest_size=8).digest()
    # 52 bits plus a half are exact in a double, so that neither end of the interval is ever reached.
    return ((int.from_bytes(digest, "big") >> 12) + 0.5) / float(1 << 52)
