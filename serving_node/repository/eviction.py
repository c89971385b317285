"""Which models leave to make room for another one, and when a failed load is tried again. Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from serving_node.core.errors import InferenceError

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0
# Strangers may ask for any name: more than these are not remembered.
_MOST_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class Held:
    """A loaded model. ``used_ms``: when it was used last. ``stays``: it has work inside, or is kept on purpose.

    ``calls`` names the models that it calls, as an ensemble does.
    """

    name: str
    size_bytes: int
    used_ms: int
    stays: bool = False
    calls: frozenset[str] = frozenset()


def with_callers(held: Iterable[Held]) -> list[Held]:
    """Return the models with the use of each counted for the models that it calls, however far."""
    known = {one.name: one for one in held}
    changed = True
    while changed:
        changed = False
        for caller in list(known.values()):
            for name in caller.calls & known.keys():
                called = known[name]
                counted = replace(
                    called, used_ms=max(called.used_ms, caller.used_ms), stays=called.stays or caller.stays
                )
                changed = changed or counted != called
                known[name] = counted
    return list(known.values())


def models_to_unload(held: Iterable[Held], excess_bytes: int) -> list[str] | None:
    """Return which models to unload so that at least ``excess_bytes`` are freed; None when that cannot be now.

    Those go that were not used for the longest time. One that is not needed, because a later one is large, stays.
    """
    chosen: list[Held] = []
    freed = 0
    for one in sorted(held, key=lambda one: (one.used_ms, one.name)):
        if freed >= excess_bytes:
            break
        if not one.stays and one.size_bytes:
            chosen.append(one)
            freed += one.size_bytes
    if freed < excess_bytes:
        return None
    for one in reversed(chosen):
        if freed - one.size_bytes >= excess_bytes:
            chosen.remove(one)
            freed -= one.size_bytes
    return [one.name for one in chosen]


@dataclass(frozen=True, slots=True)
class _Failure:
    error: InferenceError
    times: int
    again_at: float


class FailedLoads:
    """The names that could not be loaded: each is tried again after a pause that doubles, up to a minute."""

    def __init__(self) -> None:
        self._failures: dict[str, _Failure] = {}

    def note(self, name: str, error: InferenceError, now: float) -> None:
        """Remember a failure; the pause begins now."""
        before = self._failures.pop(name, None)
        times = before.times + 1 if before else 1
        pause = min(_FIRST_PAUSE_SECONDS * 2 ** min(times - 1, 16), _LONGEST_PAUSE_SECONDS)
        self._failures[name] = _Failure(error, times, now + pause)
        if len(self._failures) > _MOST_REMEMBERED:
            del self._failures[next(iter(self._failures))]

    def forget(self, name: str) -> None:
        """The name was loaded."""
        self._failures.pop(name, None)

    def refusal(self, name: str, now: float) -> InferenceError | None:
        """Return why a load is not tried now; None when it may be."""
        known = self._failures.get(name)
        return known.error if known is not None and now < known.again_at else None
