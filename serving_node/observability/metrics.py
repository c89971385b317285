"""The node's metric families, with Triton's names and labels.

Source: Triton metrics documentation; ``flotilla_*_duration_seconds`` are ours, for percentiles across replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from serving_node.observability.families import Family, Labels, MetricKind
from serving_node.observability.histogram import LatencyHistogram
from serving_node.observability.statistics import DurationCounter, FailureReason, ModelStatistics

COUNTER, GAUGE, HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

_DURATIONS: tuple[tuple[str, str, Callable[[ModelStatistics], DurationCounter]], ...] = (
    ("nv_inference_queue_duration_us", "inference queuing", lambda s: s.queue),
    ("nv_inference_compute_input_duration_us", "compute input", lambda s: s.compute_input),
    ("nv_inference_compute_infer_duration_us", "compute inference", lambda s: s.compute_infer),
    ("nv_inference_compute_output_duration_us", "inference compute output", lambda s: s.compute_output),
)
_HISTOGRAMS: tuple[tuple[str, str, Callable[[ModelStatistics], LatencyHistogram]], ...] = (
    (
        "flotilla_request_duration_seconds",
        "Time from arrival to answer of successful requests",
        lambda s: s.request_seconds,
    ),
    ("flotilla_queue_duration_seconds", "Time that successful requests waited", lambda s: s.queue_seconds),
    (
        "flotilla_compute_duration_seconds",
        "Time that the batches of successful requests ran",
        lambda s: s.compute_seconds,
    ),
)


@dataclass(frozen=True, slots=True)
class ModelSeries:
    """What the metrics need to know about one served model."""

    model: str
    version: str
    statistics: ModelStatistics
    pending_count: int
    load_seconds: float

    @property
    def labels(self) -> Labels:
        """The labels of all series of the model."""
        return (("model", self.model), ("version", self.version))


def model_families(series: Iterable[ModelSeries]) -> list[Family]:
    """Return the families of all served models. Safe on any thread."""
    models = list(series)
    families = [
        _family("nv_inference_request_success", "Number of successful inference requests, all batch sizes", COUNTER,
                models, lambda s: s.success.count),
        _failures(models),
        _family("nv_inference_count", "Number of inferences performed (does not include cached requests)", COUNTER,
                models, lambda s: s.inference_count),
        _family("nv_inference_exec_count", "Number of model executions performed (does not include cached requests)",
                COUNTER, models, lambda s: s.execution_count),
        _family("nv_inference_request_duration_us",
                "Cumulative inference request duration in microseconds (includes cached requests)",
                COUNTER, models, lambda s: s.success.ns // 1000),
    ]  # fmt: skip
    for name, what, counter in _DURATIONS:
        family = Family(name, f"Cumulative {what} duration in microseconds", COUNTER)
        for model in models:
            family.add(model.labels, counter(model.statistics).ns // 1000)
        families.append(family)
    pending = Family(
        "nv_inference_pending_request_count",
        "Instantaneous number of pending requests awaiting execution per-model.",
        GAUGE,
    )
    load = Family("nv_model_load_duration_secs", "Model load time in seconds", GAUGE)
    for model in models:
        pending.add(model.labels, model.pending_count)
        load.add(model.labels, model.load_seconds)
    families += (pending, load)
    for name, text, histogram in _HISTOGRAMS:
        family = Family(name, text, HISTOGRAM)
        for model in models:
            family.add(model.labels, histogram(model.statistics).snapshot())
        families.append(family)
    if len({model.labels for model in models}) < len(models):
        # one version under two configs, while one takes over from the other
        for family in families:
            family.merge_equal_labels()
    return families


def _family(
    name: str, text: str, kind: MetricKind, models: list[ModelSeries], value: Callable[[ModelStatistics], float]
) -> Family:
    family = Family(name, text, kind)
    for model in models:
        family.add(model.labels, value(model.statistics))
    return family


def _failures(models: list[ModelSeries]) -> Family:
    family = Family("nv_inference_request_failure", "Number of failed inference requests, all batch sizes", COUNTER)
    for model in models:
        for reason in FailureReason:
            labels = (("model", model.model), ("reason", reason.value), ("version", model.version))
            family.add(labels, model.statistics.failures[reason])
    return family
