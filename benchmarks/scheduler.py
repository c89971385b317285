"""The pure batcher with many requests queued, over itself with ten: a queue must not get slower as it grows."""

from __future__ import annotations

import time

from benchmarks.options import Options
from serving_node.core.request import InferenceRequest
from serving_node.scheduling.batcher import DynamicBatcher
from serving_node.scheduling.policy import BatchPolicy

_MAX_BATCH = 64


def _request() -> InferenceRequest:
    return InferenceRequest("m", "", [], lambda response: None)


def _operations(queued: int, seconds: float) -> float:
    """Return pushes plus departures per second with about ``queued`` requests waiting."""
    batcher = DynamicBatcher(BatchPolicy(_MAX_BATCH, frozenset((_MAX_BATCH,))))
    for _ in range(queued):
        batcher.push(_request(), 0)
    spare = [_request() for _ in range(_MAX_BATCH)]
    end, operations = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        for request in spare:
            batcher.push(request, 0)
        spare = batcher.poll(1, 1).batches[0].requests
        operations += 2 * len(spare)
    return operations / seconds


def run(options: Options) -> None:
    """Print one line per length of the queue."""
    seconds = 0.1 if options.quick else 0.5
    speeds = {queued: _operations(queued, seconds) for queued in (10, 1000, 100_000)}
    for queued, speed in speeds.items():
        print(f"  {queued} queued: {speed / speeds[10]:.2f} of 10 queued  ({speed / 1e6:.2f} M operations/s)")
