"""Series for charts, from the samples."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

METRICS = (
    "request_rate",
    "failure_rate",
    "inference_rate",
    "latency_p50",
    "latency_p95",
    "latency_p99",
    "latency_mean",
    "queue_p50",
    "queue_p99",
    "queue_mean",
    "compute_p99",
    "batch_size",
    "pending",
    "cpu",
    "memory",
    "gpu",
    "gpu_memory",
)


@dataclass(frozen=True, slots=True)
class Query:
    """Which series. ``by``: total, version or node. ``model`` is the served name; ``fleet`` narrows to its nodes.

    Units of values: rates 1/s, latencies and queue seconds, pending and batch_size counts, cpu and gpu 0..1,
    memory and gpu_memory bytes. ``step_seconds`` 0 chooses for about 200 points.
    """

    metric: str
    start: datetime
    end: datetime
    by: str = "total"
    model: str = ""
    version: str = ""
    fleet: uuid.UUID | None = None
    nodes: tuple[uuid.UUID, ...] = ()
    step_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart; ``values`` has a number or None (no data) for each time of the series."""

    label: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """Lines over common times (start of each bucket, seconds since 1970)."""

    metric: str
    unit: str
    step_seconds: int
    times: tuple[int, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """Numbers of the last minutes: None where there is no data."""

    request_rate: float | None
    failure_rate: float | None
    latency_p50: float | None
    latency_p95: float | None
    latency_p99: float | None
    queue_mean: float | None
    batch_size: float | None


def series(query: Query) -> Series:
    """Return the lines of one metric.

    Raises:
        ValidationFailed: unknown metric, bad range or too many points (more than 2000).
    """
    raise NotImplementedError


def series_many(queries: Sequence[Query]) -> list[Series]:
    """Return several series; those that differ only in the metric share one read."""
    raise NotImplementedError


def summary(*, model: str, fleet: uuid.UUID | None = None, version: str = "", minutes: int = 5) -> Summary:
    """Return the numbers at the head of a page."""
    raise NotImplementedError
