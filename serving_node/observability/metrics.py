"""The node's metric families, with Triton's names and labels.

Source: Triton metrics documentation; ``flotilla_*_duration_seconds`` are ours, for percentiles across replicas.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from serving_node.observability.delay_state import delay_families
from serving_node.observability.families import Family, Labels, MetricKind
from serving_node.observability.histogram import LatencyHistogram
from serving_node.observability.metrics_config import MetricsConfig
from serving_node.observability.quantiles import LatencySummaries, SlidingQuantiles
from serving_node.observability.statistics import DurationCounter, FailureReason, ModelStatistics

if TYPE_CHECKING:
    from serving_node.contract.proto import model_config_pb2

COUNTER, GAUGE, HISTOGRAM, SUMMARY = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM, MetricKind.SUMMARY

_CACHED = "(includes cached requests)"
_NOT_CACHED = "(does not include cached requests)"
_DURATIONS: tuple[tuple[str, str, Callable[[ModelStatistics], DurationCounter]], ...] = (
    ("nv_inference_request_duration_us", f"inference request duration in microseconds {_CACHED}", lambda s: s.success),
    ("nv_inference_queue_duration_us", f"inference queuing duration in microseconds {_CACHED}", lambda s: s.queue),
    (
        "nv_inference_compute_input_duration_us",
        f"compute input duration in microseconds {_NOT_CACHED}",
        lambda s: s.compute_input,
    ),
    (
        "nv_inference_compute_infer_duration_us",
        f"compute inference duration in microseconds {_NOT_CACHED}",
        lambda s: s.compute_infer,
    ),
    (
        "nv_inference_compute_output_duration_us",
        f"inference compute output duration in microseconds {_NOT_CACHED}",
        lambda s: s.compute_output,
    ),
)
_SUMMARIES: tuple[tuple[str, str, Callable[[LatencySummaries], SlidingQuantiles]], ...] = (
    ("nv_inference_request_summary_us", f"inference request duration in microseconds {_CACHED}", lambda s: s.request),
    ("nv_inference_queue_summary_us", f"inference queuing duration in microseconds {_CACHED}", lambda s: s.queue),
    (
        "nv_inference_compute_input_summary_us",
        f"compute input duration in microseconds {_NOT_CACHED}",
        lambda s: s.compute_input,
    ),
    (
        "nv_inference_compute_infer_summary_us",
        f"compute inference duration in microseconds {_NOT_CACHED}",
        lambda s: s.compute_infer,
    ),
    (
        "nv_inference_compute_output_summary_us",
        f"inference compute output duration in microseconds {_NOT_CACHED}",
        lambda s: s.compute_output,
    ),
)
# Of models whose config asks for the response cache. Triton has no summary of their request latencies.
_CACHE_COUNTERS: tuple[tuple[str, str, Callable[[ModelStatistics], int]], ...] = (
    ("nv_cache_num_hits_per_model", "Number of cache hits per model", lambda s: s.cache_hit.count),
    (
        "nv_cache_hit_duration_per_model",
        "Total cache hit duration per model, in microseconds",
        lambda s: s.cache_hit.ns // 1000,
    ),
    ("nv_cache_num_misses_per_model", "Number of cache misses per model", lambda s: s.cache_miss.count),
    (
        "nv_cache_miss_duration_per_model",
        "Total cache miss (insert+lookup) duration per model, in microseconds",
        lambda s: s.cache_miss.ns // 1000,
    ),
)
_CACHE_SUMMARIES: tuple[tuple[str, str, Callable[[LatencySummaries], SlidingQuantiles]], ...] = (
    (
        "nv_cache_hit_summary_per_model",
        "Summary of cache hit counts/durations per model, in microseconds.",
        lambda s: s.cache_hit,
    ),
    (
        "nv_cache_miss_summary_per_model",
        "Summary of cache miss counts/durations per model, in microseconds.",
        lambda s: s.cache_miss,
    ),
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
FIRST_RESPONSE = "nv_inference_first_response_histogram_ms"
_FIRST_RESPONSE_BOUNDS = (100.0, 500.0, 2000.0, 5000.0)
_NOT_IN_LABELS = re.compile(r"[^a-zA-Z0-9_]")


@dataclass(frozen=True, slots=True)
class ModelSeries:
    """What the metrics need to know about one served model. ``gpu`` is the number of the only GPU that it is on."""

    model: str
    version: str
    statistics: ModelStatistics
    pending_count: int
    load_seconds: float
    tags: tuple[tuple[str, str], ...] = ()
    namespace: str = ""
    gpu: int | None = None


def metric_tags(config: model_config_pb2.ModelConfig) -> tuple[tuple[str, str], ...]:
    """Return a model's own labels: the keys of ``metric_tags`` after an underscore, in characters that a label has."""
    tags = {"_" + _NOT_IN_LABELS.sub("_", key): config.metric_tags[key] for key in sorted(config.metric_tags)}
    return tuple(tags.items())


def only_gpu(config: model_config_pb2.ModelConfig) -> int | None:
    """Return the number of the GPU if all instances of a normalised config are on the same one."""
    groups = config.instance_group
    kinds = {group.kind == group.KIND_GPU for group in groups}
    gpus = {index for group in groups for index in group.gpus}
    return next(iter(gpus)) if kinds == {True} and len(gpus) == 1 else None


def statistics_for(config: model_config_pb2.ModelConfig, metrics: MetricsConfig) -> ModelStatistics:
    """Return counters for a model that is about to be loaded, with the opt-in latencies that are asked for."""
    bounds: Sequence[float] | None = None
    if metrics.histogram_latencies and config.model_transaction_policy.decoupled:
        bounds = _FIRST_RESPONSE_BOUNDS
        for control in config.model_metrics.metric_control:
            if control.metric_identifier.family == FIRST_RESPONSE:
                bounds = tuple(control.histogram_options.buckets)
    return ModelStatistics(
        summaries=metrics.summary_latencies, first_response_bounds=bounds, cached=config.response_cache.enable
    )


def model_families(
    series: Iterable[ModelSeries],
    config: MetricsConfig | None = None,
    gpu_uuid: Callable[[int], str] = lambda index: "",
    now_ns: int | None = None,
) -> list[Family]:
    """Return the families of all served models. Safe on any thread. ``now_ns`` is monotonic."""
    chosen = config or MetricsConfig()
    models = [(_labels(model, gpu_uuid), model) for model in series]
    families = [
        _family("nv_inference_request_success", "Number of successful inference requests, all batch sizes", COUNTER,
                models, lambda s: s.statistics.success.count),
        _failures(models),
        _family("nv_inference_count", f"Number of inferences performed {_NOT_CACHED}", COUNTER,
                models, lambda s: s.statistics.inference_count),
        _family("nv_inference_exec_count", f"Number of model executions performed {_NOT_CACHED}", COUNTER,
                models, lambda s: s.statistics.execution_count),
    ]  # fmt: skip
    if chosen.counter_latencies:
        families += [_durations(name, text, models, counter) for name, text, counter in _DURATIONS]
        families += _cache_counters(models)
    families += (
        _family("nv_inference_pending_request_count",
                "Instantaneous number of pending requests awaiting execution per-model.", GAUGE,
                models, lambda s: s.pending_count),
        _family("nv_model_load_duration_secs", "Model load time in seconds", GAUGE, models, lambda s: s.load_seconds),
    )  # fmt: skip
    families += _opt_in(models, chosen, time.monotonic_ns() if now_ns is None else now_ns)
    for name, text, histogram in _HISTOGRAMS:
        family = Family(name, text, HISTOGRAM)
        for labels, model in models:
            family.add(labels, histogram(model.statistics).snapshot())
        families.append(family)
    if len({labels for labels, _ in models}) < len(models):
        # one version under two configs, while one takes over from the other
        for family in families:
            family.merge_equal_labels()
    adaptive = {labels: state for labels, model in models if (state := model.statistics.adaptive_delay) is not None}
    return families + delay_families(adaptive)


_Models = list[tuple[Labels, ModelSeries]]


def _labels(model: ModelSeries, gpu_uuid: Callable[[int], str]) -> Labels:
    labels = [*model.tags, ("model", model.model), ("version", model.version)]
    if model.namespace:
        labels.append(("namespace", model.namespace))
    uuid = gpu_uuid(model.gpu) if model.gpu is not None else ""
    if uuid:
        labels.append(("gpu_uuid", uuid))
    return tuple(sorted(labels))


def _family(name: str, text: str, kind: MetricKind, models: _Models, value: Callable[[ModelSeries], float]) -> Family:
    family = Family(name, text, kind)
    for labels, model in models:
        family.add(labels, value(model))
    return family


def _durations(name: str, text: str, models: _Models, counter: Callable[[ModelStatistics], DurationCounter]) -> Family:
    return _family(name, f"Cumulative {text}", COUNTER, models, lambda s: counter(s.statistics).ns // 1000)


def _failures(models: _Models) -> Family:
    family = Family("nv_inference_request_failure", "Number of failed inference requests, all batch sizes", COUNTER)
    for labels, model in models:
        for reason in FailureReason:
            reasoned = tuple(sorted((*labels, ("reason", reason.value))))
            family.add(reasoned, model.statistics.failures[reason])
    return family


def _cache_counters(models: _Models) -> list[Family]:
    """Return what models with a response cache count; nothing where there are none."""
    cached = [(labels, model) for labels, model in models if model.statistics.cached]
    if not cached:
        return []
    families: list[Family] = []
    for name, text, value in _CACHE_COUNTERS:
        family = Family(name, text, COUNTER)
        for labels, model in cached:
            family.add(labels, value(model.statistics))
        families.append(family)
    return families


def _opt_in(models: _Models, config: MetricsConfig, now_ns: int) -> list[Family]:
    """Return the histogram of first responses and the summaries, as far as they are asked for."""
    families: list[Family] = []
    if config.histogram_latencies:
        first = Family(FIRST_RESPONSE, "Duration from request to first response in milliseconds", HISTOGRAM)
        for labels, model in models:
            if model.statistics.first_response_ms is not None:
                first.add(labels, model.statistics.first_response_ms.snapshot())
        families.append(first)
    if config.summary_latencies:
        quantiles = [quantile for quantile, _ in config.quantiles]
        cached = [(labels, model) for labels, model in models if model.statistics.cached]
        plain = [(labels, model) for labels, model in models if not model.statistics.cached]
        for name, text, values in _SUMMARIES:
            shown = plain if name == "nv_inference_request_summary_us" else models
            families.append(_summaries(name, f"Summary of {text}", shown, values, quantiles, now_ns))
        if cached:
            for name, text, values in _CACHE_SUMMARIES:
                families.append(_summaries(name, text, cached, values, quantiles, now_ns))
    return families


def _summaries(
    name: str,
    text: str,
    models: _Models,
    values: Callable[[LatencySummaries], SlidingQuantiles],
    quantiles: Sequence[float],
    now_ns: int,
) -> Family:
    family = Family(name, text, SUMMARY)
    for labels, model in models:
        if model.statistics.summaries is not None:
            family.add(labels, values(model.statistics.summaries).snapshot(quantiles, now_ns))
    return family
