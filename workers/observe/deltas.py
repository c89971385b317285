"""From cumulative counters of two scrapes to what happened between them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from registry.domain.histograms import EMPTY, Histogram, merge
from registry.domain.histograms import difference as newer
from workers.observe.exposition import Point

_COUNTERS = {
    "nv_inference_request_success": ("requests", 1),
    "nv_inference_request_failure": ("failures", 1),
    "nv_inference_count": ("inferences", 1),
    "nv_inference_exec_count": ("executions", 1),
    "nv_inference_queue_duration_us": ("queue_ns", 1000),
    "nv_inference_compute_input_duration_us": ("compute_ns", 1000),
    "nv_inference_compute_infer_duration_us": ("compute_ns", 1000),
    "nv_inference_compute_output_duration_us": ("compute_ns", 1000),
}
_HISTOGRAMS = {
    "flotilla_request_duration_seconds": "request",
    "flotilla_queue_duration_seconds": "queue",
    "flotilla_compute_duration_seconds": "compute",
}
_GPU = {
    "nv_gpu_utilization": "utilization",
    "nv_gpu_memory_used_bytes": "memory_used",
    "nv_gpu_memory_total_bytes": "memory_total",
    "nv_gpu_power_usage": "power_watts",
}

Key = tuple[str, str]  # model, version


@dataclass(frozen=True, slots=True)
class Totals:
    """What one (model, version) did: since the node began to count, or between two scrapes.

    ``counters`` by column of Sample (requests, failures, inferences, executions, queue_ns, compute_ns), ``histograms``
    of seconds by request, queue and compute; ``pending`` is a gauge.
    """

    counters: Mapping[str, int] = field(default_factory=dict)
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    pending: float = 0.0


@dataclass(frozen=True, slots=True)
class Host:
    """Gauges of the machine. ``cpu_utilization`` 0..1; ``gpus``: uuid to utilization 0..1, bytes and watts."""

    cpu_utilization: float = 0.0
    memory_used_bytes: int = 0
    memory_total_bytes: int = 0
    gpus: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def totals(points: Iterable[Point]) -> dict[Key, Totals]:
    """Sum the series of a scrape by (model, version); instances on several GPUs have one series each."""
    counters: dict[Key, dict[str, int]] = {}
    histograms: dict[Key, dict[str, Histogram]] = {}
    pending: dict[Key, float] = {}
    for point in points:
        key = (point.labels.get("model", ""), point.labels.get("version", ""))
        if point.name in _COUNTERS:
            name, factor = _COUNTERS[point.name]
            sums = counters.setdefault(key, {})
            sums[name] = sums.get(name, 0) + round(point.value * factor)
        elif point.name == "nv_inference_pending_request_count":
            pending[key] = pending.get(key, 0.0) + point.value
        elif point.name in _HISTOGRAMS and point.histogram is not None:
            name = _HISTOGRAMS[point.name]
            known = histograms.setdefault(key, {})
            known[name] = merge([known.get(name, EMPTY), point.histogram])
    keys = [key for key in {**counters, **histograms, **pending} if key[0]]
    return {key: Totals(counters.get(key, {}), histograms.get(key, {}), pending.get(key, 0.0)) for key in keys}


def host(points: Iterable[Point]) -> Host:
    """Pick the gauges of the machine out of a scrape."""
    plain: dict[str, float] = {}
    gpus: dict[str, dict[str, float]] = {}
    for point in points:
        if point.name.startswith("nv_cpu_"):
            plain[point.name] = point.value
        elif point.name in _GPU:
            gpus.setdefault(point.labels.get("gpu_uuid", ""), {})[_GPU[point.name]] = point.value
    return Host(
        cpu_utilization=plain.get("nv_cpu_utilization", 0.0),
        memory_used_bytes=int(plain.get("nv_cpu_memory_used_bytes", 0)),
        memory_total_bytes=int(plain.get("nv_cpu_memory_total_bytes", 0)),
        gpus=gpus,
    )


def difference(before: Mapping[Key, Totals], now: Mapping[Key, Totals]) -> dict[Key, Totals]:
    """Return what each (model, version) did between two scrapes of one node.

    A counter that went down was reset (the node restarted, the unit was reloaded): everything it shows now is new. A
    key that was not there before started from zero.
    """
    return {key: _since(before.get(key, Totals()), current) for key, current in now.items()}


def _since(before: Totals, now: Totals) -> Totals:
    if _was_reset(before, now):
        return now
    return Totals(
        {name: value - before.counters.get(name, 0) for name, value in now.counters.items()},
        {name: newer(value, before.histograms.get(name, EMPTY)) for name, value in now.histograms.items()},
        now.pending,
    )


def _was_reset(before: Totals, now: Totals) -> bool:
    if any(now.counters.get(name, 0) < value for name, value in before.counters.items()):
        return True
    return any(_shrank(value, now.histograms.get(name, EMPTY)) for name, value in before.histograms.items())


def _shrank(before: Histogram, now: Histogram) -> bool:
    return now.zero < before.zero or any(now.counts.get(index, 0) < count for index, count in before.counts.items())
