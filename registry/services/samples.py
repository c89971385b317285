"""Time series: partitions by day, adding up, and making coarser buckets of fine ones."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from registry.domain.histograms import EMPTY, Histogram


@dataclass(frozen=True, slots=True)
class SampleRow:
    """What one (node, model, version) did in one bucket: differences of counters. ``pending`` is a mean.

    ``version`` is the number as text, empty when unknown. Times in nanoseconds, histograms in seconds.
    """

    bucket: datetime
    node_id: uuid.UUID
    model: str
    version: str
    requests: int = 0
    failures: int = 0
    inferences: int = 0
    executions: int = 0
    queue_ns: int = 0
    compute_ns: int = 0
    pending: float = 0.0
    request_histogram: Histogram = EMPTY
    queue_histogram: Histogram = EMPTY
    compute_histogram: Histogram = EMPTY
    resolution: int = 10


@dataclass(frozen=True, slots=True)
class NodeSampleRow:
    """Gauges of one node in one bucket. ``cpu_utilization`` 0..1; ``gpus``: see registry.models.NodeSample."""

    bucket: datetime
    node_id: uuid.UUID
    cpu_utilization: float = 0.0
    memory_used_bytes: int = 0
    memory_total_bytes: int = 0
    gpus: Sequence[dict[str, Any]] = field(default_factory=tuple)
    resolution: int = 10


def samples_write(rows: Iterable[SampleRow], node_rows: Iterable[NodeSampleRow] = ()) -> int:
    """Add rows to the series (counters and histograms add up within a bucket); return how many rows were written."""
    raise NotImplementedError


def partitions_ensure(now: datetime, *, days_ahead: int = 3) -> int:
    """Make the day partitions around ``now`` and return how many were new."""
    raise NotImplementedError


def partitions_drop(now: datetime) -> int:
    """Delete what is older than each resolution is kept, dropping whole days where possible; return dropped days."""
    raise NotImplementedError


def rollup(now: datetime) -> int:
    """Sum complete fine buckets into coarse ones and return how many coarse rows were written. Safe to repeat."""
    raise NotImplementedError
