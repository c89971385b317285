from __future__ import annotations

import prometheus_client.parser
from google.protobuf.internal.decoder import _DecodeVarint32  # type: ignore[attr-defined]

from serving_node.contract.errors import ErrorCode
from serving_node.contract.proto import metrics_pb2
from serving_node.core.backend import Execution
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest
from serving_node.observability.families import to_protobuf, to_text
from serving_node.observability.host import GpuReading, HostProbe, gpu_families
from serving_node.observability.metrics import ModelSeries, model_families
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
    values = {family.name: family.samples[0].value for family in HostProbe(gpu=False).families()}
    assert set(values) == {"nv_cpu_utilization", "nv_cpu_memory_total_bytes", "nv_cpu_memory_used_bytes"}
    assert 0 < values["nv_cpu_memory_used_bytes"] < values["nv_cpu_memory_total_bytes"]


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
