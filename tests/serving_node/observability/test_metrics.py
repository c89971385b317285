from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import cast

import prometheus_client.parser
import pytest
from google.protobuf.internal.decoder import _DecodeVarint32  # type: ignore[attr-defined]

from serving_node.contract.errors import ErrorCode
from serving_node.contract.proto import metrics_pb2, model_config_pb2
from serving_node.core.errors import InferenceError
from serving_node.core.execution import Execution
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.observability.families import to_protobuf, to_text
from serving_node.observability.host import GpuProbe, GpuReading, HostProbe, gpu_families
from serving_node.observability.metrics import ModelSeries, metric_tags, model_families, only_gpu, statistics_for
from serving_node.observability.metrics_config import MetricsConfig, metrics_config, read_metrics_setting
from serving_node.observability.statistics import FailureReason, ModelStatistics

MS = 1_000_000


def statistics() -> ModelStatistics:
    """Two requests of 3 rows in one batch, one of which failed: queued at 1 ms, started at 3, answered at 10."""
    requests = [InferenceRequest("m", "", [], lambda response: None, arrival_ns=0) for _ in range(2)]
    for request, rows in zip(requests, (1, 2), strict=True):
        request.batch_size, request.queued_ns = rows, 1 * MS
    failed = InferenceError(ErrorCode.INTERNAL, "no")
    execution = Execution(
        requests,
        3,
        [[], failed],
        started_ns=3 * MS,
        inputs_ready_ns=4 * MS,
        computed_ns=8 * MS,
        finished_ns=9 * MS,
    )
    result = ModelStatistics()
    result.record_execution(execution, 10 * MS)
    result.record_failure(FailureReason.REJECTED, 5 * MS)
    return result


def parsed(*series: ModelSeries) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = to_text(model_families(series)).decode()
    return {
        # the parser appends _total to counters that lack it
        (sample.name.removesuffix("_total"), tuple(sorted(sample.labels.items()))): sample.value
        for family in prometheus_client.parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


MODEL = (("model", 'a"b\\c\n'), ("version", "2"))


def test_text_has_triton_names_and_numbers() -> None:
    found = parsed(ModelSeries('a"b\\c\n', "2", statistics(), 4, 0.5))
    assert found[("nv_inference_request_success", MODEL)] == 1
    expected = {
        "nv_inference_count": 1,
        "nv_inference_exec_count": 1,
        "nv_inference_request_duration_us": 10_000,
        "nv_inference_queue_duration_us": 2000,
        "nv_inference_compute_input_duration_us": 1000,
        "nv_inference_compute_infer_duration_us": 4000,
        "nv_inference_compute_output_duration_us": 1000,
        "nv_inference_pending_request_count": 4,
        "nv_model_load_duration_secs": 0.5,
        "flotilla_request_duration_seconds_count": 1,
        "flotilla_request_duration_seconds_sum": 0.01,
        "flotilla_queue_duration_seconds_sum": 0.002,
        "flotilla_compute_duration_seconds_sum": 0.006,
    }
    for name, value in expected.items():
        assert abs(found[(name, MODEL)] - value) < 1e-9, name


def test_all_failure_reasons_exist_from_the_start() -> None:
    found = parsed(ModelSeries("m", "1", ModelStatistics(), 0, 0.0), ModelSeries("n", "1", statistics(), 0, 0.0))
    reasons = {
        (dict(labels)["model"], dict(labels)["reason"]): value
        for (name, labels), value in found.items()
        if name == "nv_inference_request_failure"
    }
    assert reasons == {
        ("m", "REJECTED"): 0,
        ("m", "CANCELED"): 0,
        ("m", "BACKEND"): 0,
        ("m", "OTHER"): 0,
        ("n", "REJECTED"): 1,
        ("n", "CANCELED"): 0,
        ("n", "BACKEND"): 1,
        ("n", "OTHER"): 0,
    }


def test_two_units_of_one_version_make_one_series() -> None:
    text = to_text(model_families([ModelSeries("m", "1", statistics(), 1, 0.5)] * 2)).decode()
    assert text.count("\nnv_inference_count{") == 1
    assert 'nv_inference_count{model="m",version="1"} 2' in text
    assert 'flotilla_queue_duration_seconds_count{model="m",version="1"} 2' in text


def test_protobuf_has_native_histograms() -> None:
    raw = to_protobuf(model_families([ModelSeries("m", "1", statistics(), 0, 0.0)]))
    families: dict[str, metrics_pb2.MetricFamily] = {}
    position = 0
    while position < len(raw):
        length, position = _DecodeVarint32(raw, position)
        family = metrics_pb2.MetricFamily.FromString(raw[position : position + length])
        families[family.name] = family
        position += length

    (metric,) = families["flotilla_request_duration_seconds"].metric
    histogram = metric.histogram
    assert (histogram.schema, histogram.sample_count, list(histogram.positive_delta)) == (3, 1, [1])
    (span,) = histogram.positive_span
    assert 2 ** ((span.offset - 1) / 8) < 0.010 <= 2 ** (span.offset / 8)
    assert histogram.bucket[-1].cumulative_count == 1
    assert families["nv_inference_count"].metric[0].counter.value == 1
    assert {(pair.name, pair.value) for pair in metric.label} == {("model", "m"), ("version", "1")}


def test_host_families_have_triton_names_and_plausible_values() -> None:
    families = HostProbe(gpu=False, pinned_bytes=77).families()
    values = {family.name: cast(float, family.samples[0].value) for family in families}
    assert {name for name in values if name.startswith("nv_")} == {
        "nv_cpu_utilization",
        "nv_cpu_memory_total_bytes",
        "nv_cpu_memory_used_bytes",
        "nv_pinned_memory_pool_total_bytes",
        "nv_pinned_memory_pool_used_bytes",
    }
    assert 0 < values["nv_cpu_memory_used_bytes"] < values["nv_cpu_memory_total_bytes"]
    assert values["nv_pinned_memory_pool_total_bytes"] == 77
    assert 0 < values["process_resident_memory_bytes"] < values["process_virtual_memory_bytes"]
    assert 0 < values["process_open_fds"] <= values["process_max_fds"]
    names = {family.name for family in HostProbe(cpu=False, gpu=False).families()}
    assert not any("cpu_memory" in name or "cpu_utilization" in name for name in names)


class FakeNvml:
    """The part of pynvml that the probe uses, with one GPU that tells everything but its energy."""

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return f"handle {index}"

    def nvmlDeviceGetUUID(self, handle: str) -> bytes:
        return b"GPU-" + handle[-1].encode()

    def nvmlDeviceGetName(self, handle: str) -> str:
        return "H200"

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(gpu=25)

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(total=100, used=40)

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return 300_000

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:
        return 700_000

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        raise RuntimeError("not supported")


def test_gpu_families_come_from_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    host = HostProbe(cpu=False)
    text = to_text(host.families()).decode()
    assert 'nv_gpu_utilization{gpu_uuid="GPU-0"} 0.25\n' in text
    assert 'nv_gpu_memory_used_bytes{gpu_uuid="GPU-0"} 40\n' in text
    assert 'nv_gpu_power_usage{gpu_uuid="GPU-0"} 300\n' in text
    assert "nv_energy_consumption{" not in text
    assert "nv_gpu" not in to_text(HostProbe(cpu=False, gpu=False).families()).decode()

    assert (host.gpu_uuid(0), host.gpu_uuid(1)) == ("GPU-0", "")
    series = ModelSeries("m", "1", ModelStatistics(), 0, 0.1, gpu=0)
    assert b'nv_inference_count{gpu_uuid="GPU-0",model="m",version="1"} 0' in to_text(
        model_families([series], gpu_uuid=host.gpu_uuid)
    )


@pytest.mark.gpu
def test_gpu_tells_its_readings() -> None:
    (first, *_) = GpuProbe().read()
    assert first.uuid.startswith("GPU-")
    assert first.memory_total_bytes is not None
    assert first.memory_used_bytes is not None
    assert 0 < first.memory_used_bytes < first.memory_total_bytes


def test_own_labels_come_first_and_are_labels() -> None:
    config = model_config_pb2.ModelConfig(metric_tags={"team": 'x "y"', "a-b": "c"})
    series = ModelSeries("m", "1", ModelStatistics(), 0, 0.1, tags=metric_tags(config), namespace="n")
    text = to_text(model_families([series])).decode()
    assert 'nv_inference_count{_a_b="c",_team="x \\"y\\"",model="m",namespace="n",version="1"} 0\n' in text
    assert 'reason="REJECTED",version="1"} 0\n' in text


@pytest.mark.parametrize(
    ("groups", "gpu"),
    [([("KIND_GPU", [1])], 1), ([("KIND_GPU", [0, 1])], None), ([("KIND_CPU", [])], None), ([], None)],
)
def test_only_gpu_is_that_of_all_instances(groups: list[tuple[str, list[int]]], gpu: int | None) -> None:
    config = model_config_pb2.ModelConfig()
    for kind, gpus in groups:
        config.instance_group.add(kind=kind, gpus=gpus)
    assert only_gpu(config) == gpu


def test_latency_counters_can_be_left_out() -> None:
    names = {family.name for family in model_families([], MetricsConfig(counter_latencies=False))}
    assert "nv_inference_request_success" in names
    assert not any(name.startswith("nv_") and name.endswith("_duration_us") for name in names)


def test_summaries_are_tritons() -> None:
    config = MetricsConfig(summary_latencies=True, quantiles=((0.5, 0.05), (0.999, 0.001)))
    counted = statistics_for(model_config_pb2.ModelConfig(), config)
    request = InferenceRequest("m", "", [], lambda response: None, arrival_ns=0, queued_ns=MS)
    execution = Execution(
        [request],
        1,
        [[]],
        started_ns=3 * MS,
        inputs_ready_ns=4 * MS,
        computed_ns=8 * MS,
        finished_ns=9 * MS,
    )
    counted.record_execution(execution, 10 * MS)
    text = to_text(model_families([ModelSeries("m", "1", counted, 0, 0.1)], config, now_ns=11 * MS)).decode()
    assert "# TYPE nv_inference_request_summary_us summary\n" in text
    labels = 'model="m",version="1"'
    assert f"nv_inference_request_summary_us_count{{{labels}}} 1\n" in text
    assert f"nv_inference_request_summary_us_sum{{{labels}}} 10000\n" in text
    assert f'nv_inference_queue_summary_us{{{labels},quantile="0.5"}} 2000\n' in text
    assert f'nv_inference_compute_infer_summary_us{{{labels},quantile="0.999"}} 4000\n' in text
    later = to_text(model_families([ModelSeries("m", "1", counted, 0, 0.1)], config, now_ns=100_000 * MS)).decode()
    assert f'nv_inference_queue_summary_us{{{labels},quantile="0.5"}} NaN\n' in later
    assert to_protobuf(model_families([ModelSeries("m", "1", counted, 0, 0.1)], config))


def test_models_with_a_response_cache_have_tritons_series() -> None:
    config = model_config_pb2.ModelConfig()
    config.response_cache.enable = True
    metrics = MetricsConfig(summary_latencies=True, quantiles=((0.5, 0.05),))
    cached = statistics_for(config, metrics)
    request = InferenceRequest("m", "", [], lambda response: None, arrival_ns=0)
    cached.record_cache_hit(request, 2 * MS, 5 * MS)
    cached.record_cache_miss(7 * MS, 9 * MS)
    assert (cached.success.count, cached.success.ns, cached.queue.count, cached.inference_count) == (1, 5 * MS, 1, 0)
    plain = statistics_for(model_config_pb2.ModelConfig(), metrics)
    series = [ModelSeries("m", "1", cached, 0, 0.1), ModelSeries("plain", "1", plain, 0, 0.1)]
    text = to_text(model_families(series, metrics, now_ns=9 * MS)).decode()
    labels = 'model="m",version="1"'
    for name, value in (("num_hits", 1), ("hit_duration", 2000), ("num_misses", 1), ("miss_duration", 7000)):
        assert f"# TYPE nv_cache_{name}_per_model counter\n" in text
        assert f"nv_cache_{name}_per_model{{{labels}}} {value}\n" in text
    assert f"nv_cache_hit_summary_per_model_sum{{{labels}}} 2000\n" in text
    assert f"nv_cache_miss_summary_per_model_count{{{labels}}} 1\n" in text
    assert 'nv_inference_request_summary_us_count{model="plain"' in text
    assert 'nv_inference_request_summary_us_count{model="m"' not in text
    assert 'nv_cache_num_hits_per_model{model="plain"' not in text
    without = to_text(model_families(series, MetricsConfig(counter_latencies=False))).decode()
    assert "nv_cache" not in without
    assert b"nv_cache" not in to_text(model_families(series[1:], metrics))


def test_first_responses_of_decoupled_models() -> None:
    config = model_config_pb2.ModelConfig()
    metrics = MetricsConfig(histogram_latencies=True)
    assert statistics_for(config, metrics).first_response_ms is None
    config.model_transaction_policy.decoupled = True
    assert statistics_for(config, MetricsConfig()).first_response_ms is None
    control = config.model_metrics.metric_control.add()
    control.metric_identifier.family = "nv_inference_first_response_histogram_ms"
    control.histogram_options.buckets.extend([10, 20])
    counted = statistics_for(config, metrics)
    request = InferenceRequest("m", "", [], lambda response: None, arrival_ns=0)
    for final, now_ns in ((False, 15 * MS), (False, 99 * MS), (True, 100 * MS)):
        counted.record_response(request, InferenceResponse("m", "1", final=final), now_ns)
    text = to_text(model_families([ModelSeries("m", "1", counted, 0, 0.1)], metrics)).decode()
    name, labels = "nv_inference_first_response_histogram_ms", 'model="m",version="1"'
    assert f"{name}_count{{{labels}}} 1\n{name}_sum{{{labels}}} 15\n" in text
    assert f'{name}_bucket{{{labels},le="10"}} 0\n{name}_bucket{{{labels},le="20"}} 1\n' in text
    assert f'{name}_bucket{{{labels},le="+Inf"}} 1\n' in text
    assert counted.success.count == 1


def test_requests_apart_from_their_batch_queue_and_compute_with_it() -> None:
    request = InferenceRequest("m", "", [], lambda response: None, arrival_ns=0, queued_ns=MS)
    execution = Execution(
        [request],
        1,
        [None],
        started_ns=3 * MS,
        inputs_ready_ns=4 * MS,
        computed_ns=8 * MS,
        finished_ns=9 * MS,
    )
    counted = ModelStatistics(summaries=True)
    counted.record_execution(execution, 10 * MS)
    assert (counted.success.count, counted.queue.count, counted.compute_infer.count) == (0, 1, 1)
    counted.record_response(request, InferenceResponse("m", "1", flag_only=True), 20 * MS)
    assert (counted.success.count, counted.success.ns, counted.inference_count) == (1, 20 * MS, 1)
    assert counted.execution_count == 1


@pytest.mark.parametrize(
    "setting",
    ["summary", "=x", "a,summary_latencies=true", "summary_latencies=maybe", "unknown=true", "summary_quantiles=0.5"],
)
def test_refuses_metrics_settings_that_mean_nothing(setting: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        metrics_config([read_metrics_setting(setting)])


def test_metrics_settings_are_read_together() -> None:
    texts = ("summary_latencies=true", "summary_quantiles=0.5:0.1,0.9:0.01", "counter_latencies=false")
    assert metrics_config([read_metrics_setting(text) for text in texts]) == MetricsConfig(
        counter_latencies=False, summary_latencies=True, quantiles=((0.5, 0.1), (0.9, 0.01))
    )


def test_gpu_without_a_reading_has_no_series() -> None:
    reading = GpuReading("GPU-1", "H200", 0.5, 100, 40, None, None, None)
    families = {family.name: family.samples for family in gpu_families([reading])}
    assert families["nv_gpu_utilization"][0].labels == (("gpu_uuid", "GPU-1"),)
    assert families["nv_gpu_power_usage"] == []


def test_statistics_message_counts_as_triton_does() -> None:
    message = statistics().to_proto("m", 2, 77)
    assert (message.name, message.version, message.inference_count, message.execution_count) == ("m", "2", 1, 1)
    stats = message.inference_stats
    assert (stats.success.count, stats.success.ns, stats.fail.count) == (1, 10 * MS, 2)
    assert (stats.queue.count, stats.queue.ns) == (1, 2 * MS)
    assert (stats.compute_infer.count, stats.compute_infer.ns) == (1, 4 * MS)
    assert [(b.batch_size, b.compute_infer.count, b.compute_infer.ns) for b in message.batch_stats] == [(3, 1, 4 * MS)]
    assert message.memory_usage[0].byte_size == 77
