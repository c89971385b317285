"""Metric families and their two expositions: Prometheus' text format and its protobuf format. Pure.

Source: Prometheus exposition formats, text 0.0.4 and io.prometheus.client.MetricFamily, length-delimited.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import cast

from serving_node.contract.proto import metrics_pb2
from serving_node.core.varint import encode_varint
from serving_node.observability.histogram import SCHEMA, ZERO_THRESHOLD, HistogramSnapshot

TEXT_CONTENT_TYPE = b"text/plain; charset=utf-8; version=0.0.4"
PROTOBUF_CONTENT_TYPE = b"application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"

Labels = tuple[tuple[str, str], ...]


class MetricKind(StrEnum):
    """Type of a family, as the text format writes it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Sample:
    """One series of a family."""

    labels: Labels
    value: float | HistogramSnapshot


@dataclass(slots=True)
class Family:
    """One metric with its series."""

    name: str
    help: str
    kind: MetricKind
    samples: list[Sample] = field(default_factory=list)

    def add(self, labels: Labels, value: float | HistogramSnapshot) -> None:
        """Append a series."""
        self.samples.append(Sample(labels, value))

    def merge_equal_labels(self) -> None:
        """Add up series with the same labels: no exposition may have two of them."""
        merged: dict[Labels, float | HistogramSnapshot] = {}
        for sample in self.samples:
            before = merged.get(sample.labels)
            if isinstance(before, HistogramSnapshot) and isinstance(sample.value, HistogramSnapshot):
                merged[sample.labels] = before.plus(sample.value)
            elif before is not None and not isinstance(sample.value, HistogramSnapshot):
                merged[sample.labels] = cast(float, before) + sample.value
            else:
                merged[sample.labels] = sample.value
        self.samples = [Sample(labels, value) for labels, value in merged.items()]


def to_text(families: Iterable[Family]) -> bytes:
    """Return the text format; histograms with classic buckets."""
    lines: list[str] = []
    for family in families:
        lines.append(f"# HELP {family.name} {_escape_help(family.help)}")
        lines.append(f"# TYPE {family.name} {family.kind.value}")
        for sample in family.samples:
            if isinstance(sample.value, HistogramSnapshot):
                _histogram_lines(lines, family.name, sample.labels, sample.value)
            else:
                lines.append(f"{family.name}{_label_text(sample.labels)} {_number(sample.value)}")
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


def _histogram_lines(lines: list[str], name: str, labels: Labels, snapshot: HistogramSnapshot) -> None:
    for bound, count in snapshot.classic():
        lines.append(f"{name}_bucket{_label_text((*labels, ('le', _number(bound))))} {count}")
    lines.append(f"{name}_bucket{_label_text((*labels, ('le', '+Inf')))} {snapshot.count}")
    lines.append(f"{name}_sum{_label_text(labels)} {_number(snapshot.sum_seconds)}")
    lines.append(f"{name}_count{_label_text(labels)} {snapshot.count}")


def _label_text(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape_label(value)}"' for name, value in labels) + "}"


def _escape_label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escape_help(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))
