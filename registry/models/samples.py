"""Time series. The tables are partitioned by resolution and time, so that old data goes by dropping a table."""

from __future__ import annotations

from django.db import models


class Resolution(models.IntegerChoices):
    """Bucket width in seconds. Kept: 10 s for 24 h, 1 min for 14 d, 1 h for 400 d."""

    TEN_SECONDS = 10
    MINUTE = 60
    HOUR = 3600


class Sample(models.Model):
    """What one (node, model, version) did in one bucket: differences of the node's counters.

    ``*_histogram``: sparse mergeable histograms of seconds, see registry.domain.histograms.
    ``version`` is empty when unknown.
    """

    pk = models.CompositePrimaryKey("resolution", "bucket", "node_id", "model", "version")
    resolution = models.PositiveSmallIntegerField(choices=Resolution)
    bucket = models.DateTimeField()
    node_id = models.UUIDField()
    model = models.CharField(max_length=200)
    version = models.CharField(max_length=40)
    requests = models.BigIntegerField(default=0)
    failures = models.BigIntegerField(default=0)
    inferences = models.BigIntegerField(default=0)
    executions = models.BigIntegerField(default=0)
    queue_ns = models.BigIntegerField(default=0)
    compute_ns = models.BigIntegerField(default=0)
    pending = models.FloatField(default=0)
    request_histogram = models.BinaryField(default=bytes)
    queue_histogram = models.BinaryField(default=bytes)
    compute_histogram = models.BinaryField(default=bytes)

    class Meta:
        managed = False
        db_table = "registry_sample"


class NodeSample(models.Model):
    """Host and GPU gauges of one node in one bucket (means).

    ``gpus``: list of {uuid, utilization (0..1), memory_used, memory_total (bytes), power_watts}.
    """

    pk = models.CompositePrimaryKey("resolution", "bucket", "node_id")
    resolution = models.PositiveSmallIntegerField(choices=Resolution)
    bucket = models.DateTimeField()
    node_id = models.UUIDField()
    cpu_utilization = models.FloatField(default=0)
    memory_used_bytes = models.BigIntegerField(default=0)
    memory_total_bytes = models.BigIntegerField(default=0)
    gpus = models.JSONField(default=list)

    class Meta:
        managed = False
        db_table = "registry_node_sample"
