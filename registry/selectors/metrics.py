"""Series for charts, from the samples."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.translation import gettext as _

from registry.domain.histograms import Histogram, decode, merge, quantile
from registry.domain.rollups import KEEP, bucket_of, resolution_for
from registry.errors import ValidationFailed
from registry.models import Fleet, NodeSample, Sample, ServingNode
from registry.selectors.fleet import nodes_of

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
    return series_many([query])[0]


def series_many(queries: Sequence[Query]) -> list[Series]:
    """Return several series; those that differ only in the metric share one read."""
    now = timezone.now()
    loads: dict[Query, _Grid] = {}
    answers = []
    for query in queries:
        if query.metric not in METRICS:
            message = _("There is no metric “%(metric)s”.") % {"metric": query.metric}
            raise ValidationFailed(message, errors=[{"field": "metric", "message": message}])
        gauge = query.metric in _GAUGES
        shared = replace(query, metric="gauges" if gauge else "samples")
        if shared not in loads:
            frame = _frame(query, now)
            loads[shared] = _load_gauges(query, frame, now) if gauge else _load_samples(query, frame, now)
        answers.append(_answer(query.metric, loads[shared]))
    return answers


def summary(*, model: str, fleet: uuid.UUID | None = None, version: str = "", minutes: int = 5) -> Summary:
    """Return the numbers at the head of a page, over the last minutes."""
    now = timezone.now()
    # One step spans it all, and the bucket that is still being filled stays out.
    end = bucket_of(now, 10)
    query = Query(
        metric="request_rate",
        start=end - timedelta(minutes=minutes),
        end=end,
        model=model,
        version=version,
        fleet=fleet,
        step_seconds=minutes * 60,
    )
    grid = _load_samples(query, _Frame(query.start, 1, minutes * 60, 10), now)
    cells = grid.cells.get("", {})
    cell = cells.get(0, _Cell())
    seconds = minutes * 60

    def value(metric: str) -> float | None:
        return _VALUES[metric](cell, seconds) if cell.rows else None

    return Summary(
        request_rate=value("request_rate"),
        failure_rate=value("failure_rate"),
        latency_p50=value("latency_p50"),
        latency_p95=value("latency_p95"),
        latency_p99=value("latency_p99"),
        queue_mean=value("queue_mean"),
        batch_size=value("batch_size"),
    )


_MAX_POINTS = 2000
_WISHED_POINTS = 200
_GAUGES = ("cpu", "memory", "gpu", "gpu_memory")
_UNITS = {"cpu": "ratio", "gpu": "ratio", "memory": "bytes", "gpu_memory": "bytes", "batch_size": "rows", "pending": ""}


@dataclass(slots=True)
class _Cell:
    """What happened in one step of one line; histograms wait as a list and are merged once."""

    rows: int = 0
    requests: int = 0
    failures: int = 0
    inferences: int = 0
    executions: int = 0
    queue_ns: int = 0
    pending: float = 0.0
    buckets: set[datetime] = field(default_factory=set)
    request: list[Histogram] = field(default_factory=list)
    queue: list[Histogram] = field(default_factory=list)
    compute: list[Histogram] = field(default_factory=list)
    gauges: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Frame:
    """The common times: ``points`` steps from ``start``; rows are read at ``resolution`` seconds."""

    start: datetime
    points: int
    step: int
    resolution: int

    @property
    def end(self) -> datetime:
        return self.start + timedelta(seconds=self.points * self.step)

    def index(self, bucket: datetime) -> int:
        return int((bucket - self.start).total_seconds()) // self.step


@dataclass(frozen=True, slots=True)
class _Grid:
    """Cells by line label and step."""

    frame: _Frame
    cells: dict[str, dict[int, _Cell]]


def _frame(query: Query, now: datetime) -> _Frame:
    span = query.end - query.start
    if span <= timedelta(0):
        message = _("The range ends before it begins.")
        raise ValidationFailed(message, errors=[{"field": "end", "message": message}])
    resolution = resolution_for(span, age=now - query.start)
    wished = query.step_seconds or math.ceil(span.total_seconds() / _WISHED_POINTS)
    step = max(1, math.ceil(wished / resolution)) * resolution
    start = bucket_of(query.start, step)
    points = math.ceil((query.end - start).total_seconds() / step)
    if points > _MAX_POINTS:
        message = _("These are %(points)s points; at most %(limit)s are returned.") % {
            "points": points,
            "limit": _MAX_POINTS,
        }
        raise ValidationFailed(message, errors=[{"field": "step", "message": message}])
    return _Frame(start, points, step, resolution)


def _pieces(frame: _Frame, now: datetime) -> list[tuple[int, datetime, datetime]]:
    """Return (resolution, from, until) to read: the newest part is not rolled up yet and comes from finer buckets."""
    pieces = []
    start = frame.start
    for resolution in sorted((one for one in KEEP if one <= frame.resolution), reverse=True):
        finest = resolution == min(KEEP)
        # Rolling up runs every minute; what is younger than that may be missing.
        until = frame.end if finest else min(frame.end, bucket_of(now - timedelta(minutes=3), resolution))
        if start < until:
            pieces.append((resolution, start, until))
            start = until
    return pieces


def _node_ids(query: Query) -> list[uuid.UUID] | None:
    """Return the nodes to look at; None: all."""
    if query.fleet is None:
        return list(query.nodes) or None
    fleet = Fleet.objects.filter(pk=query.fleet).first()
    members = set(nodes_of(fleet).values_list("id", flat=True)) if fleet is not None else set()
    return list(members & set(query.nodes)) if query.nodes else list(members)


def _load_samples(query: Query, frame: _Frame, now: datetime) -> _Grid:
    grid = _Grid(frame, {})
    nodes = _node_ids(query)
    names = _names() if query.by == "node" else {}
    for resolution, start, end in _pieces(frame, now):
        rows = Sample.objects.filter(resolution=resolution, bucket__gte=start, bucket__lt=end)
        if query.model:
            rows = rows.filter(model=query.model)
        if query.version:
            rows = rows.filter(version=query.version)
        if nodes is not None:
            rows = rows.filter(node_id__in=nodes)
        for row in rows.iterator(2000):
            label = ""
            if query.by == "version":
                label = f"v{row.version}" if row.version else _("unknown")
            elif query.by == "node":
                label = names.get(row.node_id, str(row.node_id))
            _collect(_cell(grid, label, row.bucket), row)
    return grid


def _collect(cell: _Cell, row: Sample) -> None:
    cell.rows += 1
    cell.requests += row.requests
    cell.failures += row.failures
    cell.inferences += row.inferences
    cell.executions += row.executions
    cell.queue_ns += row.queue_ns
    cell.pending += row.pending
    cell.buckets.add(row.bucket)
    for kept, data in (
        (cell.request, row.request_histogram),
        (cell.queue, row.queue_histogram),
        (cell.compute, row.compute_histogram),
    ):
        if data:
            kept.append(decode(data))


def _load_gauges(query: Query, frame: _Frame, now: datetime) -> _Grid:
    grid = _Grid(frame, {})
    nodes = _node_ids(query)
    names = _names() if query.by == "node" else {}
    for resolution, start, end in _pieces(frame, now):
        rows = NodeSample.objects.filter(resolution=resolution, bucket__gte=start, bucket__lt=end)
        if nodes is not None:
            rows = rows.filter(node_id__in=nodes)
        for row in rows.iterator(2000):
            label = names.get(row.node_id, str(row.node_id)) if query.by == "node" else ""
            cell = _cell(grid, label, row.bucket)
            cell.rows += 1
            cell.buckets.add(row.bucket)
            cell.gauges.setdefault("cpu", []).append(row.cpu_utilization)
            cell.gauges.setdefault("memory", []).append(float(row.memory_used_bytes))
            for gpu in row.gpus:
                cell.gauges.setdefault("gpu", []).append(float(gpu.get("utilization", 0)))
                cell.gauges.setdefault("gpu_memory", []).append(float(gpu.get("memory_used", 0)))
    return grid


def _cell(grid: _Grid, label: str, bucket: datetime) -> _Cell:
    return grid.cells.setdefault(label, {}).setdefault(grid.frame.index(bucket), _Cell())


def _names() -> dict[uuid.UUID, str]:
    return dict(ServingNode.objects.values_list("id", "name"))


def _answer(metric: str, grid: _Grid) -> Series:
    frame, value = grid.frame, _VALUES[metric]
    start = int(frame.start.timestamp())
    lines = [
        Line(
            label=label,
            values=tuple(value(cells[at], frame.step) if at in cells else None for at in range(frame.points)),
        )
        for label, cells in sorted(grid.cells.items(), key=lambda item: _natural(item[0]))
    ]
    return Series(
        metric=metric,
        unit=_UNITS.get(metric, "per_second" if metric.endswith("_rate") else "seconds"),
        step_seconds=frame.step,
        times=tuple(start + at * frame.step for at in range(frame.points)),
        lines=tuple(lines),
    )


def _natural(label: str) -> tuple[int, str]:
    digits = label.removeprefix("v")
    return (int(digits), label) if digits.isdigit() else (0, label)


def _rate(name: str) -> Callable[[_Cell, int], float | None]:
    return lambda cell, seconds: float(getattr(cell, name)) / seconds


def _quantile(name: str, q: float) -> Callable[[_Cell, int], float | None]:
    return lambda cell, seconds: quantile(merge(getattr(cell, name)), q)


def _ratio(above: float, below: float) -> float | None:
    return above / below if below else None


def _gauge_mean(name: str) -> Callable[[_Cell, int], float | None]:
    return lambda cell, seconds: _ratio(sum(cell.gauges.get(name, [])), len(cell.gauges.get(name, [])))


def _gauge_sum(name: str) -> Callable[[_Cell, int], float | None]:
    """Sum over nodes (or GPUs), mean over the buckets of the step."""
    return lambda cell, seconds: _ratio(sum(cell.gauges[name]), len(cell.buckets)) if name in cell.gauges else None


_VALUES: dict[str, Callable[[_Cell, int], float | None]] = {
    "request_rate": _rate("requests"),
    "failure_rate": _rate("failures"),
    "inference_rate": _rate("inferences"),
    "latency_p50": _quantile("request", 0.5),
    "latency_p95": _quantile("request", 0.95),
    "latency_p99": _quantile("request", 0.99),
    "latency_mean": lambda cell, seconds: merge(cell.request).mean,
    "queue_p50": _quantile("queue", 0.5),
    "queue_p99": _quantile("queue", 0.99),
    "queue_mean": lambda cell, seconds: _ratio(cell.queue_ns / 1e9, cell.requests),
    "compute_p99": _quantile("compute", 0.99),
    "batch_size": lambda cell, seconds: _ratio(cell.inferences, cell.executions),
    "pending": lambda cell, seconds: _ratio(cell.pending, len(cell.buckets)),
    "cpu": _gauge_mean("cpu"),
    "memory": _gauge_sum("memory"),
    "gpu": _gauge_mean("gpu"),
    "gpu_memory": _gauge_sum("gpu_memory"),
}
