from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from registry.domain.histograms import decode, of_values
from registry.domain.rollups import bucket_of
from registry.errors import ValidationFailed
from registry.models import NodeSample, Sample
from registry.selectors.metrics import METRICS, Query, series, series_many, summary
from registry.services.samples import (
    NodeSampleRow,
    SampleRow,
    partitions_drop,
    partitions_ensure,
    rollup,
    samples_write,
)

pytestmark = pytest.mark.django_db
NODE = uuid.UUID(int=5)


@pytest.fixture(autouse=True)
def _empty(db: None) -> None:
    """Remove what tests with real commits left: flushing a database spares tables that Django does not manage."""
    for model in (Sample, NodeSample):
        model.objects.all().delete()


def row(at: datetime, *, version: str = "1", node: uuid.UUID = NODE, seconds: float = 0.01, **extra: Any) -> SampleRow:
    histogram = of_values([seconds] * 10)
    return SampleRow(
        bucket=at,
        node_id=node,
        model="mlp",
        version=version,
        requests=10,
        inferences=40,
        executions=5,
        queue_ns=10_000_000,
        request_histogram=histogram,
        queue_histogram=of_values([0.001] * 10),
        **extra,
    )


def tables() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT relname FROM pg_class WHERE relname ~ '^registry_(node_)?sample_.*_p[0-9]+$'")
        return sorted(name for (name,) in cursor.fetchall())


def test_what_is_written_twice_adds_up() -> None:
    at = bucket_of(timezone.now(), 10)
    assert samples_write([row(at, pending=1.0), row(at, pending=3.0)]) == 1
    samples_write([row(at + timedelta(seconds=3), pending=2.0)], [NodeSampleRow(bucket=at, node_id=NODE)])
    sample = Sample.objects.get()
    assert (sample.bucket, sample.requests, sample.inferences, sample.pending) == (at, 30, 120, 2.0)
    assert decode(sample.request_histogram).count == 30
    assert NodeSample.objects.count() == 1


def test_partitions_take_what_landed_in_the_default_one() -> None:
    now = datetime(2031, 5, 31, 23, 59, tzinfo=UTC)
    samples_write([row(now), row(now + timedelta(minutes=5))])
    made = partitions_ensure(now)
    assert made == 2 * (5 + 5 + 2)
    assert partitions_ensure(now) == 0
    assert "registry_sample_10_p20310531" in tables()
    assert "registry_sample_3600_p203106" in tables()
    assert Sample.objects.count() == 2
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM registry_sample_10_p20310531")
        assert cursor.fetchone()[0] == 1
        cursor.execute("SELECT count(*) FROM registry_sample_10_default")
        assert cursor.fetchone()[0] == 0
    samples_write([row(now)])
    assert Sample.objects.get(bucket=bucket_of(now, 10)).requests == 20


def test_old_data_goes_by_resolution() -> None:
    now = datetime(2031, 5, 10, 12, tzinfo=UTC)
    for day in (1, 8, 10):
        partitions_ensure(now.replace(day=day), days_ahead=0)
    samples_write(
        [row(now.replace(day=8)), row(now.replace(day=8), resolution=60), row(now), row(now.replace(year=2020))]
    )
    assert partitions_drop(now) > 0
    assert "registry_sample_10_p20310508" not in tables()
    assert "registry_sample_60_p20310508" in tables()
    assert {(one.resolution, one.bucket.day) for one in Sample.objects.all()} == {(60, 8), (10, 10)}
    assert partitions_drop(now) == 0


def test_rolling_up_keeps_sums_and_quantiles() -> None:
    now = bucket_of(timezone.now(), 3600) + timedelta(minutes=1, seconds=30)
    hour = now - timedelta(minutes=1, seconds=30, hours=1)
    samples_write(
        [row(hour + timedelta(seconds=10 * step), seconds=0.01 if step % 2 else 0.1) for step in range(12)],
        [
            NodeSampleRow(
                bucket=hour + timedelta(seconds=10 * step),
                node_id=NODE,
                cpu_utilization=step / 10,
                memory_used_bytes=100,
                gpus=[{"uuid": "g", "utilization": step / 10}],
            )
            for step in range(6)
        ],
    )
    written = rollup(now)
    assert written == 2 + 1 + 1 + 1
    assert rollup(now) == 0
    minutes = list(Sample.objects.filter(resolution=60).order_by("bucket"))
    assert [one.requests for one in minutes] == [60, 60]
    (whole,) = Sample.objects.filter(resolution=3600)
    assert (whole.requests, decode(whole.request_histogram).count) == (120, 120)
    gauge = NodeSample.objects.get(resolution=60)
    assert gauge.cpu_utilization == pytest.approx(0.25)
    assert gauge.gpus[0]["utilization"] == pytest.approx(0.25)


def fill(world: Any) -> tuple[datetime, uuid.UUID, uuid.UUID]:
    now = bucket_of(timezone.now(), 10)
    first, second = world.node("a"), world.node("b", "production")
    for step in range(1, 31):
        at = now - timedelta(seconds=10 * step)
        samples_write(
            [
                row(at, node=first.id, version="1", seconds=0.01),
                row(at, node=first.id, version="2", seconds=0.1),
                row(at, node=second.id, version="1", seconds=0.01),
            ],
            [NodeSampleRow(bucket=at, node_id=first.id, cpu_utilization=0.5, memory_used_bytes=7)],
        )
    return now, first.id, second.id


def test_series_by_version_and_node(world: Any) -> None:
    now, first, _second = fill(world)
    query = Query(metric="request_rate", start=now - timedelta(minutes=5), end=now, by="version", model="mlp")
    found = series(query)
    assert [line.label for line in found.lines] == ["v1", "v2"]
    assert found.step_seconds == 10
    assert len(found.times) == len(found.lines[0].values) == 30
    assert found.lines[0].values[5] == pytest.approx(2.0)
    assert found.lines[1].values[5] == pytest.approx(1.0)
    by_node = series(Query(metric="latency_p99", start=query.start, end=now, by="node", nodes=(first,)))
    assert [line.label for line in by_node.lines] == ["a"]
    assert by_node.lines[0].values[5] == pytest.approx(0.1, rel=0.1)
    fleet = series(Query(metric="request_rate", start=query.start, end=now, fleet=world.production.id))
    assert fleet.lines[0].values[5] == pytest.approx(1.0)


def test_every_metric_has_an_answer(world: Any) -> None:
    now, _first, _second = fill(world)
    start = now - timedelta(minutes=5)
    answers = series_many([Query(metric=metric, start=start, end=now) for metric in METRICS])
    values = {answer.metric: answer.lines[0].values[5] for answer in answers}
    assert values["batch_size"] == pytest.approx(8.0)
    assert values["queue_mean"] == pytest.approx(0.001)
    assert values["cpu"] == pytest.approx(0.5)
    assert values["memory"] == pytest.approx(7.0)
    assert values["gpu"] is None
    assert values["latency_mean"] == pytest.approx(0.04, rel=0.01)


def test_a_longer_chart_joins_coarse_and_fine_buckets(world: Any) -> None:
    now, _first, _second = fill(world)
    rollup(now + timedelta(minutes=1))
    found = series(Query(metric="request_rate", start=now - timedelta(hours=20), end=now))
    assert found.step_seconds >= 60
    counted = sum(value * found.step_seconds for value in found.lines[0].values if value is not None)
    assert counted == pytest.approx(30 * 30, abs=30 * 6)


def test_gaps_are_none(world: Any) -> None:
    now, _first, _second = fill(world)
    found = series(Query(metric="request_rate", start=now - timedelta(minutes=20), end=now))
    assert found.lines[0].values[0] is None
    nothing = series(Query(metric="request_rate", start=now - timedelta(minutes=20), end=now, model="unknown"))
    assert nothing.lines == ()


def test_the_head_of_a_page(world: Any) -> None:
    fill(world)
    found = summary(model="mlp")
    assert found.request_rate == pytest.approx(3.0, rel=0.1)
    assert found.latency_p99 == pytest.approx(0.1, rel=0.1)
    assert found.batch_size == pytest.approx(8.0)
    assert summary(model="unknown").request_rate is None


@pytest.mark.parametrize(
    "change",
    [
        {"metric": "beauty"},
        {"end": datetime(2020, 1, 1, tzinfo=UTC)},
        {"step_seconds": 1, "metric": "cpu", "hours": 20},
    ],
)
def test_bad_questions_are_refused(change: dict[str, Any]) -> None:
    end = timezone.now()
    hours = change.pop("hours", 1)
    arguments: dict[str, Any] = {"metric": "cpu", "start": end - timedelta(hours=hours), "end": end, **change}
    if hours != 1:
        arguments["start"] = end - timedelta(days=89)
        arguments["step_seconds"] = 3600
        with pytest.raises(ValidationFailed):
            series(Query(**arguments))
        return
    with pytest.raises(ValidationFailed):
        series(Query(**arguments))
