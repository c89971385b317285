"""What an adaptive queue delay is now, and why, with its metrics. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from serving_node.observability.families import Family, Labels, MetricKind

_NS = 1_000_000_000


class DelayReason(StrEnum):
    """Why the delay is as it is: the values of the label ``reason``."""

    MEASURING = "MEASURING"
    GROWING = "GROWING"
    HOLDING = "HOLDING"
    LONGEST = "LONGEST"
    SHRINKING = "SHRINKING"
    UNREACHABLE = "UNREACHABLE"


@dataclass(slots=True)
class DelayState:
    """Delay, target and last measured 99th percentile, in nanoseconds. ``p99_ns`` is 0 before the first measurement."""

    target_ns: int
    delay_ns: int = 0
    p99_ns: int = 0
    reason: DelayReason = DelayReason.MEASURING


_GAUGES: tuple[tuple[str, str, Callable[[DelayState], float]], ...] = (
    (
        "flotilla_adaptive_delay_seconds",
        "How long batches wait for more requests now, for models whose delay adapts",
        lambda state: state.delay_ns / _NS,
    ),
    (
        "flotilla_adaptive_delay_target_seconds",
        "What 99 of 100 requests should stay within",
        lambda state: state.target_ns / _NS,
    ),
    (
        "flotilla_adaptive_delay_p99_seconds",
        "What 99 of 100 requests stayed within when it was last measured, from arrival to answer",
        lambda state: state.p99_ns / _NS,
    ),
)


def delay_families(states: Mapping[Labels, DelayState]) -> list[Family]:
    """Return the metrics of the models whose delay adapts, by their labels; nothing where there are none."""
    if not states:
        return []
    families: list[Family] = []
    for name, text, value in _GAUGES:
        family = Family(name, text, MetricKind.GAUGE)
        for labels, state in states.items():
            family.add(labels, value(state))
        families.append(family)
    reasons = Family("flotilla_adaptive_delay_reason", "1 at the reason of the delay, 0 at others", MetricKind.GAUGE)
    for labels, state in states.items():
        for reason in DelayReason:
            reasons.add(tuple(sorted((*labels, ("reason", reason.value)))), int(reason is state.reason))
    return [*families, reasons]
