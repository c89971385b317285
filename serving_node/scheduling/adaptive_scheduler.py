"""The scheduler of a model whose queue delay adapts to a target: it measures what it answers, and moves the delay."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from serving_node.core.execution import Execution
from serving_node.observability.statistics import ModelStatistics
from serving_node.scheduling.adaptive_delay import AdaptiveDelay, DelayTarget
from serving_node.scheduling.batcher import DynamicBatcher
from serving_node.scheduling.instances import InstanceThread, LoopRunner
from serving_node.scheduling.policy import BatchPolicy
from serving_node.scheduling.scheduler import Scheduler
from serving_node.scheduling.turns import Turns


class AdaptiveScheduler(Scheduler):
    """A scheduler of dynamic batches. The delay of the config is where the adaptive one begins."""

    def __init__(
        self,
        *,
        name: str,
        version: int,
        policy: BatchPolicy,
        target: DelayTarget,
        instances: Sequence[InstanceThread | LoopRunner],
        statistics: ModelStatistics,
        on_closed: Callable[[], None] | None = None,
        turns: Turns | None = None,
    ) -> None:
        super().__init__(
            name=name,
            version=version,
            policy=policy,
            instances=instances,
            statistics=statistics,
            on_closed=on_closed,
            turns=turns,
        )
        self._adaptive = AdaptiveDelay(target, policy.max_queue_delay_ns)
        statistics.adaptive_delay = self._adaptive.state
        self._set_delay(self._adaptive.state.delay_ns)

    def _answer(self, execution: Execution) -> None:
        super()._answer(execution)
        now_ns = time.monotonic_ns()
        for request, result in zip(execution.requests, execution.results, strict=True):
            if isinstance(result, list):
                self._adaptive.observe(now_ns - request.arrival_ns)
        before = self._adaptive.state.delay_ns
        delay_ns = self._adaptive.step(now_ns)
        if delay_ns != before:
            self._set_delay(delay_ns)

    def _set_delay(self, delay_ns: int) -> None:
        batcher = self._batcher
        if isinstance(batcher, DynamicBatcher):
            with self._lock:
                batcher.delay_ns = delay_ns
