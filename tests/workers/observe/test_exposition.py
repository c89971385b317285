from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.domain.histograms import bucket_bound, bucket_index, quantile
from serving_node.contract.proto import metrics_pb2
from workers.observe.exposition import BadExposition, Point, parse

PROTOBUF = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"


def delimited(*families: metrics_pb2.MetricFamily) -> bytes:
    body = bytearray()
    for family in families:
        data = family.SerializeToString()
        length = len(data)
        while length > 0x7F:
            body.append(length & 0x7F | 0x80)
            length >>= 7
        body.append(length)
        body += data
    return bytes(body)


def native(
    name: str, counts: dict[int, int], *, schema: int = 3, zero: int = 0, **labels: str
) -> metrics_pb2.MetricFamily:
    """Encode as a node does: one span for each run of indexes, counts as differences."""
    family = metrics_pb2.MetricFamily(name=name, type=metrics_pb2.HISTOGRAM)
    metric = family.metric.add()
    for key, value in labels.items():
        metric.label.add(name=key, value=value)
    histogram = metric.histogram
    histogram.schema = schema
    histogram.zero_count = zero
    histogram.zero_threshold = 1e-9
    histogram.sample_count = zero + sum(counts.values())
    previous_count, next_index = 0, 0
    for index in sorted(counts):
        if not histogram.positive_span or index != next_index:
            histogram.positive_span.add(offset=index - next_index, length=0)
        histogram.positive_span[-1].length += 1
        histogram.positive_delta.append(counts[index] - previous_count)
        previous_count, next_index = counts[index], index + 1
    return family


@given(st.dictionaries(st.integers(-200, 100), st.integers(1, 10**9), max_size=30), st.integers(0, 1000))
def test_native_buckets_survive_the_wire(counts: dict[int, int], zero: int) -> None:
    family = native("flotilla_request_duration_seconds", counts, zero=zero, model="m", version="1")
    [point] = parse(PROTOBUF, delimited(family))
    assert point.labels == {"model": "m", "version": "1"}
    assert point.histogram is not None
    assert point.histogram.zero == zero
    if counts:
        assert dict(point.histogram.counts) == counts


@given(st.dictionaries(st.integers(-300, 300), st.integers(1, 1000), min_size=1, max_size=20), st.integers(0, 8))
def test_other_schemas_keep_every_value_below_the_bound_of_its_bucket(counts: dict[int, int], schema: int) -> None:
    [point] = parse(PROTOBUF, delimited(native("h", counts, schema=schema)))
    assert point.histogram is not None
    assert point.histogram.count == sum(counts.values())
    for index in counts:
        upper = 2.0 ** (index / 2**schema)
        # The bucket into which it went ends at or above the value, by less than two buckets' width.
        assert any(upper <= bucket_bound(found) * 1.000001 < upper * 2.4 for found in point.histogram.counts)


def test_counters_gauges_and_several_families() -> None:
    counter = metrics_pb2.MetricFamily(name="nv_inference_count", type=metrics_pb2.COUNTER)
    metric = counter.metric.add()
    metric.label.add(name="model", value="mlp")
    metric.counter.value = 7
    gauge = metrics_pb2.MetricFamily(name="nv_cpu_utilization", type=metrics_pb2.GAUGE)
    gauge.metric.add().gauge.value = math.nan
    points = parse(PROTOBUF, delimited(counter, gauge))
    assert points == [Point("nv_inference_count", {"model": "mlp"}, 7.0), Point("nv_cpu_utilization", {}, 0.0)]


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_cut_body_is_refused(cut: int) -> None:
    body = delimited(native("h", {1: 2, 5: 3}, model="m"))
    with pytest.raises(BadExposition):
        parse(PROTOBUF, body[:-cut])


def test_spans_that_lie_are_refused() -> None:
    family = native("h", {1: 2})
    family.metric[0].histogram.positive_span[0].length = 4_000_000_000
    with pytest.raises(BadExposition):
        parse(PROTOBUF, delimited(family))


def test_text_with_classic_buckets() -> None:
    text = """
# HELP nv_inference_count x
# TYPE nv_inference_count counter
nv_inference_count{model="a \\"b\\\\ c",version="2"} 12
flotilla_request_duration_seconds_bucket{model="m",version="1",le="0.01"} 90
flotilla_request_duration_seconds_bucket{model="m",version="1",le="0.1"} 100
flotilla_request_duration_seconds_bucket{model="m",version="1",le="+Inf"} 100
flotilla_request_duration_seconds_sum{model="m",version="1"} 1.5
flotilla_request_duration_seconds_count{model="m",version="1"} 100
nv_cpu_utilization 0.25 1395066363000
"""
    points = {point.name: point for point in parse("text/plain; version=0.0.4", text.encode())}
    assert points["nv_inference_count"].labels == {"model": 'a "b\\ c', "version": "2"}
    assert points["nv_cpu_utilization"].value == 0.25
    histogram = points["flotilla_request_duration_seconds"].histogram
    assert histogram is not None
    assert histogram.count == 100
    assert histogram.total == 1.5
    assert histogram.counts[bucket_index(0.01)] == 90
    p99 = quantile(histogram, 0.99)
    assert p99 is not None
    assert 0.05 < p99 <= 0.11


@pytest.mark.parametrize("line", ['x{a="b', "x{a=b} 1", "x", "x{} y"])
def test_broken_text_is_refused(line: str) -> None:
    with pytest.raises(BadExposition):
        parse("text/plain", line.encode())


@given(st.binary(max_size=300))
def test_garbage_never_raises_anything_else(body: bytes) -> None:
    for content_type in (PROTOBUF, "text/plain"):
        with contextlib.suppress(BadExposition):
            parse(content_type, body)
