"""The pure batchers with many requests queued, over themselves with ten: a queue must not get slower as it grows."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Protocol

from benchmarks.options import Options
from serving_node.core.request import InferenceRequest
from serving_node.scheduling.batch import Batch
from serving_node.scheduling.batcher import Batcher, DynamicBatcher, Poll, SingleBatcher
from serving_node.scheduling.policy import BatchPolicy, QueuePolicy, TimeoutAction
from serving_node.scheduling.sequence_batcher import SequenceBatcher
from serving_node.scheduling.sequence_policy import SequencePolicy

_MAX_BATCH = 64
_LEVELS = 4
_QUEUED = (10, 1000, 100_000)
_ROUNDS = 5
# Of the requests with time-outs, one in so many asks for a short one and meets it in the queue.
_ONE_EXPIRES = 8
_STEP_NS = 1000
_SEQUENCE = 4


class _Queue(Protocol):
    """What is measured of a batcher."""

    def push(self, request: InferenceRequest, now_ns: int) -> None:
        """Take a request in."""

    def poll(self, now_ns: int, free_slots: int) -> Poll:
        """Return what runs now."""


def _fifo() -> Batcher:
    return DynamicBatcher(BatchPolicy(_MAX_BATCH, frozenset((_MAX_BATCH,))))


def _alone() -> Batcher:
    return SingleBatcher()


def _levels() -> Batcher:
    return DynamicBatcher(BatchPolicy(_MAX_BATCH, frozenset((_MAX_BATCH,)), levels=(QueuePolicy(),) * _LEVELS))


def _timed(action: TimeoutAction, can_be_short: bool) -> Callable[[], Batcher]:
    level = QueuePolicy(action, 10**15, allow_timeout_override=can_be_short, max_queue_size=1_000_000)
    return lambda: DynamicBatcher(BatchPolicy(_MAX_BATCH, frozenset((_MAX_BATCH,)), levels=(level,)))


class _Sequences:
    """A sequence batcher in the place of another: every few requests are a sequence, most of which wait for a slot."""

    def __init__(self, *, is_direct: bool) -> None:
        batching = None if is_direct else BatchPolicy(_MAX_BATCH, frozenset((_MAX_BATCH,)))
        policy = SequencePolicy(_MAX_BATCH, 10**15, is_direct, rows=_MAX_BATCH, batching=batching)
        self._batcher = SequenceBatcher("m", policy, 1)
        self._pushed = 0

    def push(self, request: InferenceRequest, now_ns: int) -> None:
        place = self._pushed % _SEQUENCE
        request.sequence_id = self._pushed // _SEQUENCE + 1
        request.sequence_start, request.sequence_end = place == 0, place == _SEQUENCE - 1
        request.timeout_us = 0
        self._pushed += 1
        self._batcher.push(request, now_ns)

    def poll(self, now_ns: int, free_slots: int) -> Poll:
        poll = Poll()
        for batch in self._batcher.poll(now_ns, (0,)).batches:
            self._batcher.finished(batch, now_ns)
            poll.batches.append(Batch(batch.requests, len(batch.rows)))
        return poll


_BATCHERS: dict[str, Callable[[], _Queue]] = {
    "each request alone": _alone,
    "first in, first out": _fifo,
    f"{_LEVELS} priority levels": _levels,
    "time-outs far away": _timed(TimeoutAction.REJECT, False),
    "time-outs that reject": _timed(TimeoutAction.REJECT, True),
    "time-outs that delay": _timed(TimeoutAction.DELAY, True),
    "sequences, direct": lambda: _Sequences(is_direct=True),
    "sequences, oldest": lambda: _Sequences(is_direct=False),
}


def _request(number: int) -> InferenceRequest:
    timeout_us = 0 if number % _ONE_EXPIRES else 1
    priority = number % _LEVELS + 1
    return InferenceRequest("m", "", [], lambda response: None, priority=priority, timeout_us=timeout_us)


class _Load:
    """A batcher with about ``queued`` requests in it, of which as many leave as enter."""

    def __init__(self, batcher: _Queue, queued: int) -> None:
        self._batcher = batcher
        self._now_ns = 0
        for number in range(queued):
            batcher.push(_request(number), 0)

    def run(self, seconds: float) -> float:
        """Return how many requests enter and leave per second. Making them is not counted."""
        batcher, operations, spent = self._batcher, 0, 0.0
        leaving = _MAX_BATCH
        while spent < seconds:
            entering = [_request(number) for number in range(leaving)]
            leaving = 0
            start = time.perf_counter()
            for request in entering:
                batcher.push(request, self._now_ns)
            self._now_ns += _STEP_NS * len(entering)
            while leaving < _MAX_BATCH:
                poll = batcher.poll(self._now_ns, 1)
                leaving += sum([len(batch.requests) for batch in poll.batches], len(poll.rejected))
            spent += time.perf_counter() - start
            operations += len(entering) + leaving
        return operations / spent


def run(options: Options) -> None:
    """Print one line for each batcher: how fast it is with long queues, over how fast with ten requests."""
    seconds = 0.02 if options.quick else 0.1
    gc.disable()  # a collection looks at all that the process holds; when it comes is not the batcher's doing
    for name, make in _BATCHERS.items():
        loads = {queued: _Load(make(), queued) for queued in _QUEUED}
        best = dict.fromkeys(_QUEUED, 0.0)
        # in turn, and the best of several: other work on the machine must not look like a slow queue
        for _ in range(_ROUNDS):
            for queued, load in loads.items():
                best[queued] = max(best[queued], load.run(seconds))
        ratios = "  ".join(f"{queued} queued: {best[queued] / best[_QUEUED[0]]:.2f}" for queued in _QUEUED[1:])
        gc.collect()
        print(f"  {name:22} {ratios}  ({best[_QUEUED[0]] / 1e6:.2f} M operations/s with {_QUEUED[0]})")
    gc.enable()
