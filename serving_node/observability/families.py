"""Metric families and their two expositions: Prometheus' text format and its protobuf format. Pure.

Source: Prometheus exposition formats, text 0.0.4 and io.prometheus.client.MetricFamily, length-delimited.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from serving_node.contract.proto import metrics_pb2
from serving_node.core.varint import encode_varint
from serving_node.observability.buckets import BucketSnapshot
from serving_node.observability.histogram import SCHEMA, ZERO_THRESHOLD, HistogramSnapshot
from serving_node.observability.quantiles import SummarySnapshot

TEXT_CONTENT_TYPE = b"text/plain; charset=utf-8; version=0.0.4"
PROTOBUF_CONTENT_TYPE = b"application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"

Labels = tuple[tuple[str, str], ...]


class MetricKind(StrEnum):
    """Type of a family, as the text format writes it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"


Value = float | HistogramSnapshot | BucketSnapshot | SummarySnapshot


@dataclass(frozen=True, slots=True)
class Sample:
    """One series of a family."""

    labels: Labels
    value: Value


@dataclass(slots=True)
class Family:
    """One metric with its series."""

    name: str
    help: str
    kind: MetricKind
    samples: list[Sample] = field(default_factory=list)

    def add(self, labels: Labels, value: Value) -> None:
        """Append a series."""
        self.samples.append(Sample(labels, value))

    def merge_equal_labels(self) -> None:
        """Add up series with the same labels: no exposition may have two of them."""
        merged: dict[Labels, Value] = {}
        for sample in self.samples:
            before = merged.get(sample.labels)
            if isinstance(before, HistogramSnapshot) and isinstance(sample.value, HistogramSnapshot):
                merged[sample.labels] = before.plus(sample.value)
            elif isinstance(before, float | int) and isinstance(sample.value, float | int):
                merged[sample.labels] = before + sample.value
            else:
                # neither quantiles nor buckets of any bounds can be added: the later is the one that takes over
                merged[sample.labels] = sample.value
        self.samples = [Sample(labels, value) for labels, value in merged.items()]


def to_text(families: Iterable[Family]) -> bytes:
    """Return the text format; histograms with classic buckets."""
    lines: list[str] = []
    for family in families:
        lines.append(f"# HELP {family.name} {_escape_help(family.help)}")
        lines.append(f"# TYPE {family.name} {family.kind.value}")
        for sample in family.samples:
            value = sample.value
            if isinstance(value, HistogramSnapshot):
                rows = value.classic()
                _histogram_lines(lines, family.name, sample.labels, rows, value.count, value.sum_seconds)
            elif isinstance(value, BucketSnapshot):
                _histogram_lines(lines, family.name, sample.labels, value.rows, value.count, value.total)
            elif isinstance(value, SummarySnapshot):
                _summary_lines(lines, family.name, sample.labels, value)
            else:
                lines.append(f"{family.name}{_label_text(sample.labels)} {_number(value)}")
    lines.append("")
    return "\n".join(lines).encode()


def to_protobuf(families: Iterable[Family]) -> bytes:
    """Return length-delimited MetricFamily messages; histograms with native and classic buckets."""
    parts: list[bytes] = []
    for family in families:
        message = metrics_pb2.MetricFamily(
            name=family.name, help=family.help, type=metrics_pb2.MetricType.Value(family.kind.name)
        )
        for sample in family.samples:
            metric = message.metric.add()
            for name, value in sample.labels:
                metric.label.add(name=name, value=value)
            if isinstance(sample.value, HistogramSnapshot):
                _fill_histogram(metric.histogram, sample.value)
            elif isinstance(sample.value, BucketSnapshot):
                _fill_buckets(metric.histogram, sample.value)
            elif isinstance(sample.value, SummarySnapshot):
                _fill_summary(metric.summary, sample.value)
            elif family.kind is MetricKind.COUNTER:
                metric.counter.value = sample.value
            else:
                metric.gauge.value = sample.value
        raw = message.SerializeToString()
        parts += (encode_varint(len(raw)), raw)
    return b"".join(parts)


def _fill_histogram(message: metrics_pb2.Histogram, snapshot: HistogramSnapshot) -> None:
    message.sample_count = snapshot.count
    message.sample_sum = snapshot.sum_seconds
    message.schema = SCHEMA
    message.zero_threshold = ZERO_THRESHOLD
    message.zero_count = snapshot.zeros
    spans, deltas = snapshot.spans()
    for offset, length in spans:
        message.positive_span.add(offset=offset, length=length)
    if not spans:
        # an empty span tells an empty native histogram from one with classic buckets only
        message.positive_span.add(offset=0, length=0)
    message.positive_delta.extend(deltas)
    for bound, count in snapshot.classic():
        message.bucket.add(upper_bound=bound, cumulative_count=count)


def _fill_buckets(message: metrics_pb2.Histogram, snapshot: BucketSnapshot) -> None:
    message.sample_count = snapshot.count
    message.sample_sum = snapshot.total
    for bound, count in snapshot.rows:
        message.bucket.add(upper_bound=bound, cumulative_count=count)


def _fill_summary(message: metrics_pb2.Summary, snapshot: SummarySnapshot) -> None:
    message.sample_count = snapshot.count
    message.sample_sum = snapshot.total
    for quantile, value in snapshot.quantiles:
        message.quantile.add(quantile=quantile, value=value)


def _histogram_lines(
    lines: list[str], name: str, labels: Labels, rows: Iterable[tuple[float, int]], count: int, total: float
) -> None:
    lines.append(f"{name}_count{_label_text(labels)} {count}")
    lines.append(f"{name}_sum{_label_text(labels)} {_number(total)}")
    for bound, below in rows:
        lines.append(f"{name}_bucket{_label_text((*labels, ('le', _number(bound))))} {below}")
    lines.append(f"{name}_bucket{_label_text((*labels, ('le', '+Inf')))} {count}")


def _summary_lines(lines: list[str], name: str, labels: Labels, snapshot: SummarySnapshot) -> None:
    lines.append(f"{name}_count{_label_text(labels)} {snapshot.count}")
    lines.append(f"{name}_sum{_label_text(labels)} {_number(snapshot.total)}")
    for quantile, value in snapshot.quantiles:
        lines.append(f"{name}{_label_text((*labels, ('quantile', _number(quantile))))} {_number(value)}")


def _label_text(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape_label(value)}"' for name, value in labels) + "}"


def _escape_label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escape_help(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))
