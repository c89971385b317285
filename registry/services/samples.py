"""Time series: partitions by time, adding up, and making coarser buckets of fine ones."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

from django.db import connection, transaction

from registry.domain.histograms import EMPTY, Histogram, decode, encode, merge
from registry.domain.rollups import KEEP, STEPS, Window, bucket_of, windows_due
from registry.services.partitions import partitions_drop, partitions_ensure

__all__ = [
    "NodeSampleRow",
    "SampleRow",
    "partitions_drop",
    "partitions_ensure",
    "rollup",
    "samples_write",
]


@dataclass(frozen=True, slots=True)
class SampleRow:
    """What one (node, model, version) did in one bucket: differences of counters. ``pending`` is a mean.

    ``version`` is the number as text, empty when unknown. Times in nanoseconds, histograms in seconds.
    """

    bucket: datetime
    node_id: uuid.UUID
    model: str
    version: str
    requests: int = 0
    failures: int = 0
    inferences: int = 0
    executions: int = 0
    queue_ns: int = 0
    compute_ns: int = 0
    pending: float = 0.0
    request_histogram: Histogram = EMPTY
    queue_histogram: Histogram = EMPTY
    compute_histogram: Histogram = EMPTY
    resolution: int = 10


@dataclass(frozen=True, slots=True)
class NodeSampleRow:
    """Gauges of one node in one bucket. ``cpu_utilization`` 0..1; ``gpus``: see registry.models.NodeSample."""

    bucket: datetime
    node_id: uuid.UUID
    cpu_utilization: float = 0.0
    memory_used_bytes: int = 0
    memory_total_bytes: int = 0
    gpus: Sequence[dict[str, Any]] = field(default_factory=tuple)
    resolution: int = 10


_COUNTERS = ("requests", "failures", "inferences", "executions", "queue_ns", "compute_ns")
_HISTOGRAMS = ("request_histogram", "queue_histogram", "compute_histogram")
_KEY = ("resolution", "bucket", "node_id", "model", "version")
_COLUMNS = (*_KEY, *_COUNTERS, "pending", *_HISTOGRAMS)
_NODE_COLUMNS = tuple(one.name for one in fields(NodeSampleRow))
# Histograms are added up here and not in SQL, so writers of samples take turns.
_WRITER_LOCK = 0x464C4F54_53414D50

_Key = tuple[int, datetime, uuid.UUID, str, str]


def samples_write(rows: Iterable[SampleRow], node_rows: Iterable[NodeSampleRow] = ()) -> int:
    """Add rows to the series and return how many were written.

    Counters and histograms add up within a bucket; gauges take the newest value.
    """
    wanted: dict[_Key, SampleRow] = {}
    for row in rows:
        row = replace(
            row, bucket=bucket_of(row.bucket, row.resolution), model=row.model[:200], version=row.version[:40]
        )
        wanted[_key(row)] = _add(wanted[_key(row)], row) if _key(row) in wanted else row
    gauges = {(row.resolution, bucket_of(row.bucket, row.resolution), row.node_id): row for row in node_rows}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_WRITER_LOCK])
        for key, present in _present(cursor, list(wanted)).items():
            wanted[key] = _add(present, wanted[key])
        _replace(cursor, wanted.values())
        _replace_gauges(cursor, gauges.values())
    return len(wanted) + len(gauges)


def rollup(now: datetime) -> int:
    """Sum complete fine buckets into coarse ones and return how many coarse rows were written. Safe to repeat."""
    written = 0
    # Once for each step: the second one reads what the first has made.
    for source, _target in STEPS:
        for window in windows_due(now, newest=_edges("MAX"), oldest=_edges("MIN")):
            if window.source != source:
                continue
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_WRITER_LOCK])
                written += _roll_samples(cursor, window) + _roll_gauges(cursor, window)
    return written


def _key(row: SampleRow) -> _Key:
    return row.resolution, row.bucket, row.node_id, row.model, row.version


def _add(first: SampleRow, second: SampleRow) -> SampleRow:
    counters: dict[str, Any] = {name: getattr(first, name) + getattr(second, name) for name in _COUNTERS}
    histograms: dict[str, Any] = {name: merge([getattr(first, name), getattr(second, name)]) for name in _HISTOGRAMS}
    return replace(second, **counters, **histograms)


def _present(cursor: Any, keys: list[_Key]) -> dict[_Key, SampleRow]:
    if not keys:
        return {}
    # The bounds let the planner touch only the partitions of these buckets.
    cursor.execute(
        f"SELECT {', '.join(_COLUMNS)} FROM registry_sample"  # noqa: S608  # names are constants above
        " WHERE resolution = ANY(%s) AND bucket >= %s AND bucket <= %s AND node_id = ANY(%s)",
        [
            sorted({key[0] for key in keys}),
            min(key[1] for key in keys),
            max(key[1] for key in keys),
            list({key[2] for key in keys}),
        ],
    )
    wanted = set(keys)
    rows = (_read(values) for values in cursor.fetchall())
    return {_key(row): row for row in rows if _key(row) in wanted}


def _read(values: Sequence[Any]) -> SampleRow:
    columns: dict[str, Any] = dict(zip(_COLUMNS, values, strict=True))
    columns["bucket"] = columns["bucket"].astimezone(UTC)
    for name in _HISTOGRAMS:
        columns[name] = decode(columns[name])
    return SampleRow(**columns)


def _replace(cursor: Any, rows: Iterable[SampleRow]) -> None:
    values = [
        [encode(getattr(row, name)) if name in _HISTOGRAMS else getattr(row, name) for name in _COLUMNS] for row in rows
    ]
    _upsert(cursor, "registry_sample", _COLUMNS, _KEY, values)


def _replace_gauges(cursor: Any, rows: Iterable[NodeSampleRow]) -> None:
    values = [
        [
            bucket_of(row.bucket, row.resolution)
            if name == "bucket"
            else json.dumps(list(row.gpus))
            if name == "gpus"
            else getattr(row, name)
            for name in _NODE_COLUMNS
        ]
        for row in rows
    ]
    _upsert(cursor, "registry_node_sample", _NODE_COLUMNS, ("resolution", "bucket", "node_id"), values)


def _upsert(
    cursor: Any, table: str, columns: Sequence[str], key: Sequence[str], values: Sequence[Sequence[Any]]
) -> None:
    changes = ", ".join(f"{name} = EXCLUDED.{name}" for name in columns if name not in key)
    cursor.executemany(
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(columns))})"  # noqa: S608
        f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}",
        values,
    )


def _edges(which: str) -> dict[int, datetime | None]:
    """Return the newest (MAX) or oldest (MIN) bucket of each resolution, of samples and gauges together."""
    edges: dict[int, datetime | None] = {}
    with connection.cursor() as cursor:
        for resolution in KEEP:
            found = []
            for table in ("registry_sample", "registry_node_sample"):
                cursor.execute(f"SELECT {which}(bucket) FROM {table} WHERE resolution = %s", [resolution])  # noqa: S608
                found.append(cursor.fetchone()[0])
            present = [bucket.astimezone(UTC) for bucket in found if bucket is not None]
            edges[resolution] = (max(present) if which == "MAX" else min(present)) if present else None
    return edges


def _roll_samples(cursor: Any, window: Window) -> int:
    cursor.execute(
        f"SELECT {', '.join(_COLUMNS)} FROM registry_sample"  # noqa: S608
        " WHERE resolution = %s AND bucket >= %s AND bucket < %s ORDER BY bucket",
        [window.source, window.start, window.end],
    )
    groups: dict[_Key, list[SampleRow]] = {}
    for values in cursor.fetchall():
        fine = _read(values)
        row = replace(fine, resolution=window.target, bucket=bucket_of(fine.bucket, window.target))
        groups.setdefault(_key(row), []).append(row)
    coarse = [_sum(group) for group in groups.values()]
    _replace(cursor, coarse)
    return len(coarse)


def _sum(rows: list[SampleRow]) -> SampleRow:
    counters: dict[str, Any] = {name: sum(getattr(row, name) for row in rows) for name in _COUNTERS}
    histograms: dict[str, Any] = {name: merge(getattr(row, name) for row in rows) for name in _HISTOGRAMS}
    return replace(rows[0], **counters, **histograms, pending=sum(row.pending for row in rows) / len(rows))


def _roll_gauges(cursor: Any, window: Window) -> int:
    cursor.execute(
        f"SELECT {', '.join(_NODE_COLUMNS)} FROM registry_node_sample"  # noqa: S608
        " WHERE resolution = %s AND bucket >= %s AND bucket < %s ORDER BY bucket",
        [window.source, window.start, window.end],
    )
    groups: dict[tuple[datetime, uuid.UUID], list[NodeSampleRow]] = {}
    for values in cursor.fetchall():
        columns: dict[str, Any] = dict(zip(_NODE_COLUMNS, values, strict=True))
        gpus = columns["gpus"]
        columns["gpus"] = json.loads(gpus) if isinstance(gpus, str) else gpus
        row = NodeSampleRow(**columns)
        groups.setdefault((bucket_of(row.bucket, window.target), row.node_id), []).append(row)
    coarse = [
        NodeSampleRow(
            bucket=bucket,
            node_id=node_id,
            resolution=window.target,
            cpu_utilization=sum(row.cpu_utilization for row in rows) / len(rows),
            memory_used_bytes=sum(row.memory_used_bytes for row in rows) // len(rows),
            memory_total_bytes=rows[-1].memory_total_bytes,
            gpus=_mean_gpus(rows),
        )
        for (bucket, node_id), rows in groups.items()
    ]
    _replace_gauges(cursor, coarse)
    return len(coarse)


def _mean_gpus(rows: list[NodeSampleRow]) -> list[dict[str, Any]]:
    """Return each GPU with the means of its numbers over the rows in which it appears."""
    by_id: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        for gpu in row.gpus:
            by_id.setdefault(str(gpu.get("uuid", "")), []).append(gpu)
    means = []
    for seen in by_id.values():
        mean = dict(seen[-1])
        for name, value in seen[-1].items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                mean[name] = sum(gpu.get(name, 0) for gpu in seen) / len(seen)
        means.append(mean)
    return means
