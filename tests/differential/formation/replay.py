"""Schedules played through the pure batcher, with simulated time and simulated instances: milliseconds, not seconds."""

from __future__ import annotations

import heapq
from collections import Counter
from math import prod

from serving_node.contract.model_config import normalise, parse_pbtxt
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest
from serving_node.core.tensor import Tensor
from serving_node.scheduling.batch import Batch, ReleaseOrder
from serving_node.scheduling.batcher import Batcher, DynamicBatcher, SingleBatcher
from serving_node.scheduling.io_rules import IoRules
from serving_node.scheduling.policy import batch_policy
from tests.differential.formation.live import Formation, files, formation
from tests.differential.formation.schedules import Arrival, Schedule, inputs

_MS = 1_000_000
# What a batch takes at least, besides what its requests ask for.
_WORK_NS = 2 * _MS
_EXPIRED = "Request timeout expired"


class _Simulation:
    """One model: its batcher, and instances that are busy until a known time."""

    def __init__(self, schedule: Schedule) -> None:
        config = normalise(parse_pbtxt(files(schedule)["config.pbtxt"]), gpu_count=0)
        policy = batch_policy(config)
        self._rules = IoRules(config)
        self._schedule = schedule
        self._batcher: Batcher = SingleBatcher() if policy is None else DynamicBatcher(policy)
        self._order = ReleaseOrder[Batch]() if policy and policy.preserve_ordering else None
        self._free = schedule.instances
        self._running: list[tuple[int, int, Batch]] = []
        self.began: dict[int, int] = {}
        self.rows: dict[int, int] = {}
        self.failed: dict[int, str] = {}
        self.answered: list[int] = []

    def run(self) -> None:
        """Play all arrivals, and go on until nobody waits."""
        arrivals = [(arrival.at_ms * _MS, number) for number, arrival in enumerate(self._schedule.arrivals)]
        heapq.heapify(arrivals)
        wake_ns: int | None = None
        while arrivals or self._running or wake_ns is not None:
            times = [arrivals[0][0] if arrivals else None, self._running[0][0] if self._running else None, wake_ns]
            now = min(time for time in times if time is not None)
            while self._running and self._running[0][0] <= now:
                self._finish(heapq.heappop(self._running)[2])
            while arrivals and arrivals[0][0] <= now:
                self._arrive(heapq.heappop(arrivals)[1], now)
            wake_ns = self._poll(now)
            assert wake_ns is None or wake_ns > now, "the batcher wants to be woken in the past"
        assert not self._batcher.pending, "left in the queue"

    def _arrive(self, number: int, now: int) -> None:
        request = _request(self._schedule, number, self._schedule.arrivals[number])
        self._rules.check(request)
        try:
            self._batcher.push(request, now)
        except InferenceError as error:
            self.failed[number] = error.message
            self.answered.append(number)

    def _poll(self, now: int) -> int | None:
        poll = self._batcher.poll(now, self._free)
        for request in poll.rejected:
            self.failed[int(request.id)] = _EXPIRED
            self.answered.append(int(request.id))
        for batch in poll.batches:
            self._free -= 1
            holds = [self._schedule.arrivals[int(request.id)].hold_ms for request in batch.requests]
            heapq.heappush(self._running, (now + max(holds) * _MS + _WORK_NS, batch.ticket, batch))
            for request in batch.requests:
                self.began[int(request.id)] = batch.ticket
                self.rows[int(request.id)] = batch.rows
        return poll.wake_at_ns

    def _finish(self, batch: Batch) -> None:
        self._free += 1
        for released in [batch] if self._order is None else self._order.finish(batch.ticket, batch):
            self.answered += [int(request.id) for request in released.requests]


def replay(schedule: Schedule) -> Formation:
    """Return what the batcher forms of a schedule, in the form of what is recorded from servers."""
    simulation = _Simulation(schedule)
    simulation.run()
    formed = formation(simulation.began, simulation.rows, simulation.failed, simulation.answered, schedule)
    sizes = Counter(str(rows) for rows in formed["rows"])
    formed["sizes"] = dict(sorted(sizes.items()))
    return formed


def _request(schedule: Schedule, number: int, arrival: Arrival) -> InferenceRequest:
    tensors = [
        Tensor(name, datatype, tuple(shape), bytes(4 * prod(shape)))
        for name, datatype, shape, _ in inputs(schedule, arrival)
    ]
    request = InferenceRequest(schedule.id, "", tensors, lambda response: None, str(number))
    request.priority, request.timeout_us = arrival.priority, arrival.timeout_us
    return request
