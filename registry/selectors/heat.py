"""Every node against every model, or against its hardware: one number or state for each pair, of the last minute."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from django.db.models import Sum

from registry.domain.histograms import Histogram, decode, merge, quantile
from registry.domain.rollups import bucket_of
from registry.models import NodeObservation, NodeSample, Sample

MODEL_METRICS = ("state", "request_rate", "failures", "latency_p99", "queue_p99")
HARDWARE = ("cpu", "memory", "gpu", "gpu_memory")
SPAN = timedelta(minutes=1)
_RESOLUTION = 10
# From best to worst: a pair shows the worst of its units.
_STATES = ("ready", "unloading", "staged", "verifying", "fetching", "warming", "loading", "absent", "failed")

Pair = tuple[uuid.UUID, str]


def states_of(observations: Iterable[NodeObservation], names: Collection[str]) -> dict[Pair, str]:
    """Return the worst state of the units of each model on each node; pairs without a unit are left out."""
    worst: dict[Pair, str] = {}
    for observation in observations:
        for unit in observation.units:
            name, state = str(unit.get("name", "")), str(unit.get("state", "unknown"))
            if name in names:
                pair = (observation.node_id, name)
                worst[pair] = max(worst.get(pair, state), state, key=_rank)
    return worst


def _rank(state: str) -> int:
    return _STATES.index(state) if state in _STATES else len(_STATES)


def model_heat(
    metric: str, nodes: Collection[uuid.UUID], names: Collection[str], now: datetime
) -> Mapping[Pair, float | None]:
    """Return one of MODEL_METRICS but the state: 1/s, share of requests that failed (0..1), or seconds."""
    rows = Sample.objects.filter(resolution=_RESOLUTION, node_id__in=nodes, model__in=names, **_span(now))
    if metric in ("request_rate", "failures"):
        sums = rows.order_by().values_list("node_id", "model").annotate(Sum("requests"), Sum("failures"))
        seconds = SPAN.total_seconds()
        return {
            (node, name): requests / seconds if metric == "request_rate" else _share(failures, requests)
            for node, name, requests, failures in sums
        }
    kept: dict[Pair, list[Histogram]] = {}
    column = "request_histogram" if metric == "latency_p99" else "queue_histogram"
    for node, name, data in rows.values_list("node_id", "model", column).iterator(2000):
        kept.setdefault((node, name), []).append(decode(data))
    return {pair: quantile(merge(histograms), 0.99) for pair, histograms in kept.items()}


def hardware_heat(nodes: Collection[uuid.UUID], now: datetime) -> Mapping[Pair, float | None]:
    """Return how much of each of HARDWARE every node uses, as shares 0..1; of several GPUs the fullest."""
    found: dict[Pair, list[float]] = {}
    rows = NodeSample.objects.filter(resolution=_RESOLUTION, node_id__in=nodes, **_span(now))
    for row in rows.iterator(2000):
        for name, value in _used(row).items():
            if value is not None:
                found.setdefault((row.node_id, name), []).append(value)
    return {pair: sum(values) / len(values) for pair, values in found.items()}


def _used(row: NodeSample) -> dict[str, float | None]:
    gpus = [gpu for gpu in row.gpus if isinstance(gpu, dict)]
    return {
        "cpu": row.cpu_utilization,
        "memory": _share(row.memory_used_bytes, row.memory_total_bytes),
        "gpu": _most([float(gpu.get("utilization", 0)) for gpu in gpus]),
        "gpu_memory": _most([_share(gpu.get("memory_used", 0), gpu.get("memory_total", 0)) or 0.0 for gpu in gpus]),
    }


def _span(now: datetime) -> dict[str, datetime]:
    # The bucket that is still being filled stays out.
    end = bucket_of(now, _RESOLUTION)
    return {"bucket__gte": end - SPAN, "bucket__lt": end}


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _most(values: Sequence[float]) -> float | None:
    return max(values, default=None)
