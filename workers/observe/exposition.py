"""Prometheus' two expositions as plain numbers per (model, version) and per node. Pure.

Formats: https://prometheus.io/docs/instrumenting/exposition_formats/ and, for native histograms,
https://prometheus.io/docs/specs/native_histograms/ (bucket i of schema s is (b^(i-1), b^i] with b = 2^(2^-s)).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from registry.domain.histograms import SCHEMA, Histogram, of_classic
from serving_node.contract.proto import metrics_pb2

_MAX_SERIES = 200_000
_Labels = tuple[tuple[str, str], ...]


class BadExposition(ValueError):
    """The scraped bytes are not what their content type says."""


@dataclass(frozen=True, slots=True)
class Point:
    """One series of one scrape: ``value`` of a counter or gauge, or ``histogram`` (of seconds)."""

    name: str
    labels: Mapping[str, str]
    value: float = 0.0
    histogram: Histogram | None = None


def parse(content_type: str, body: bytes) -> list[Point]:
    """Return every series of a scrape, native buckets preferred over classic ones.

    Raises:
        BadExposition: the body is cut, malformed or too large.
    """
    if content_type.partition(";")[0].strip() == "application/vnd.google.protobuf":
        points = list(_bounded(_protobuf_points(body)))
    else:
        points = _text_points(body)
    return points


def _bounded(points: Iterator[Point]) -> Iterator[Point]:
    for count, point in enumerate(points):
        if count >= _MAX_SERIES:
            raise BadExposition(f"more than {_MAX_SERIES} series")
        yield point


def _protobuf_points(body: bytes) -> Iterator[Point]:
    position = 0
    while position < len(body):
        length, position = _varint(body, position)
        end = position + length
        if end > len(body):
            raise BadExposition("the last metric family is cut")
        try:
            family = metrics_pb2.MetricFamily.FromString(body[position:end])
        except DecodeError as error:
            raise BadExposition(f"a metric family cannot be read: {error}") from error
        position = end
        for metric in family.metric:
            yield _protobuf_point(family.name, metric)


def _protobuf_point(name: str, metric: metrics_pb2.Metric) -> Point:
    labels = {pair.name: pair.value for pair in metric.label}
    if metric.HasField("histogram"):
        return Point(name, labels, histogram=_from_histogram(metric.histogram))
    for kind in ("counter", "gauge", "untyped"):
        if metric.HasField(kind):
            return Point(name, labels, value=_finite(getattr(metric, kind).value))
    return Point(name, labels)


def _from_histogram(histogram: metrics_pb2.Histogram) -> Histogram:
    if not histogram.positive_span and not histogram.zero_count:
        bounds = {bucket.upper_bound: bucket.cumulative_count for bucket in histogram.bucket}
        return of_classic({**bounds, math.inf: histogram.sample_count}, histogram.sample_sum)
    counts: dict[int, int] = {}
    index, position, count = 0, 0, 0
    for span in histogram.positive_span:
        index += span.offset
        for _ in range(span.length):
            if position >= len(histogram.positive_delta):
                raise BadExposition("a native histogram has fewer buckets than its spans say")
            count += histogram.positive_delta[position]
            if count > 0:
                wanted = _to_schema(index, histogram.schema)
                counts[wanted] = counts.get(wanted, 0) + count
            index += 1
            position += 1
    return Histogram(counts, histogram.zero_count, histogram.sample_sum)


def _to_schema(index: int, schema: int) -> int:
    """Return the schema-3 bucket that holds the upper end of bucket ``index`` of another schema."""
    if schema >= SCHEMA:
        return -((-index) >> (schema - SCHEMA))  # division rounded up, also for negative indexes
    return index << (SCHEMA - schema)


def _varint(body: bytes, position: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        if position >= len(body) or shift > 63:
            raise BadExposition("a length is cut")
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _text_points(body: bytes) -> list[Point]:
    plain: dict[tuple[str, _Labels], float] = {}
    classic: dict[tuple[str, _Labels], dict[float, int]] = {}
    for line in body.decode("utf-8", "replace").splitlines():
        if not line or line.startswith("#"):
            continue
        name, labels, value = _text_line(line)
        if name.endswith("_bucket") and "le" in labels:
            bound = float(labels.pop("le"))
            key = (name.removesuffix("_bucket"), tuple(sorted(labels.items())))
            classic.setdefault(key, {})[bound] = int(value)
        else:
            plain[name, tuple(sorted(labels.items()))] = _finite(value)
        if len(plain) + len(classic) > _MAX_SERIES:
            raise BadExposition(f"more than {_MAX_SERIES} series")
    points = [Point(name, dict(pairs), value=value) for (name, pairs), value in plain.items()]
    for (name, pairs), bounds in classic.items():
        total = plain.get((f"{name}_sum", pairs), 0.0)
        points.append(Point(name, dict(pairs), histogram=of_classic(bounds, total)))
    return points


def _text_line(line: str) -> tuple[str, dict[str, str], float]:
    name, brace, rest = line.partition("{")
    labels: dict[str, str] = {}
    if brace:
        labels, rest = _text_labels(rest)
    else:
        name, _space, rest = line.partition(" ")
    try:
        return name.strip(), labels, float(rest.split()[0])
    except (IndexError, ValueError) as error:
        raise BadExposition(f"a line cannot be read: {line[:100]}") from error


def _text_labels(rest: str) -> tuple[dict[str, str], str]:
    """Read ``a="b",c="d"} 1`` up to the closing brace; values may hold escaped quotes, backslashes and newlines."""
    labels: dict[str, str] = {}
    position = 0
    while position < len(rest):
        if rest[position] in ", ":
            position += 1
        elif rest[position] == "}":
            return labels, rest[position + 1 :]
        else:
            equals = rest.find('="', position)
            if equals < 0:
                break
            key = rest[position:equals].strip()
            labels[key], position = _text_value(rest, equals + 2)
    raise BadExposition("labels do not end")


def _text_value(rest: str, position: int) -> tuple[str, int]:
    parts: list[str] = []
    while position < len(rest):
        character = rest[position]
        if character == '"':
            return "".join(parts), position + 1
        if character == "\\" and position + 1 < len(rest):
            position += 1
            character = {"n": "\n"}.get(rest[position], rest[position])
        parts.append(character)
        position += 1
    raise BadExposition("a label value does not end")
