"""How long batches wait for more requests, so that 99 of 100 requests stay within a target. Pure: time is an argument.

The delay grows in small steps while the measured 99th percentile leaves room, and is halved when it does not. When it
has been halved to nothing and the target is still missed, waiting is not what makes requests late: the delay stays 0
until there is room again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from serving_node.contract.parameters import parameter
from serving_node.observability.delay_state import DelayReason, DelayState

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig

_NS_PER_US = 1000
# A percentile needs requests: at once when there are enough, and after a while when there are at least some.
_ENOUGH = 200
_FEW = 20
_LONGEST_WINDOW_NS = 5_000_000_000
# The delay grows while the percentile is below this part of the target, by this part of the longest delay.
_ROOM = 0.85
_STEP = 0.05
# Shrinking below this part of the longest delay means 0.
_NEGLIGIBLE = 0.02


@dataclass(frozen=True, slots=True)
class DelayTarget:
    """What is asked for, in nanoseconds: the 99th percentile from arrival to answer, and the longest delay."""

    p99_ns: int
    longest_ns: int


def delay_target(config: ModelConfig) -> DelayTarget | None:
    """Return the target of a valid config, None when its delay is fixed."""
    target = parameter(config, "flotilla.p99_target_microseconds")
    if target is None:
        return None
    longest = parameter(config, "flotilla.p99_max_delay_microseconds")
    longest_ns = int(target) * _NS_PER_US // 2 if longest is None else int(longest) * _NS_PER_US
    return DelayTarget(int(target) * _NS_PER_US, longest_ns)


class AdaptiveDelay:
    """The controller of one model. ``state`` tells what it does and why."""

    def __init__(self, target: DelayTarget, start_ns: int = 0) -> None:
        self._target = target
        self._window: list[int] = []
        self._began_ns: int | None = None
        self.state = DelayState(target.p99_ns, min(start_ns, target.longest_ns))

    def observe(self, latency_ns: int) -> None:
        """Note how long one request took from its arrival to its answer."""
        self._window.append(latency_ns)

    def step(self, now_ns: int) -> int:
        """Return the delay from now on. It changes when enough requests were observed since the last change."""
        if self._began_ns is None:
            self._began_ns = now_ns
        observed = len(self._window)
        is_over = now_ns - self._began_ns >= _LONGEST_WINDOW_NS
        if observed >= _ENOUGH or (is_over and observed >= _FEW):
            self._adapt()
            self._window.clear()
            self._began_ns = now_ns
        elif is_over:
            # too few for a percentile: what was long ago says nothing about now
            self._window.clear()
            self._began_ns = now_ns
        return self.state.delay_ns

    def _adapt(self) -> None:
        state, longest = self.state, self._target.longest_ns
        state.p99_ns = p99 = percentile_99(self._window)
        room = _ROOM * state.target_ns - p99
        if p99 > state.target_ns:
            was_zero = state.delay_ns == 0
            state.delay_ns //= 2
            if state.delay_ns < _NEGLIGIBLE * longest:
                state.delay_ns = 0
            state.reason = DelayReason.UNREACHABLE if was_zero else DelayReason.SHRINKING
        elif room <= 0:
            state.reason = DelayReason.HOLDING
        elif state.delay_ns >= longest:
            state.reason = DelayReason.LONGEST
        else:
            # a longer delay adds at most itself to a request: half of the room leaves some for what comes with it
            state.delay_ns = min(longest, state.delay_ns + max(1, int(min(_STEP * longest, room / 2))))
            state.reason = DelayReason.GROWING


def percentile_99(latencies_ns: list[int]) -> int:
    """Return the smallest value that 99 of 100 do not exceed; ``latencies_ns`` is not empty."""
    return sorted(latencies_ns)[-(-99 * len(latencies_ns) // 100) - 1]
