"""Tables of the time series, partitioned by resolution, then by time. Portable to PostgreSQL 15, no extensions.

Each resolution has its own branch, so that fine buckets go by dropping a day while coarse ones of that day stay.
``registry.services.samples`` makes and drops the partitions below; rows outside them land in a default partition.
"""

from django.db import migrations

_BRANCHES = ("10", "60", "3600")

_SAMPLE = """
CREATE TABLE registry_sample (
    resolution smallint NOT NULL,
    bucket timestamptz NOT NULL,
    node_id uuid NOT NULL,
    model varchar(200) NOT NULL,
    version varchar(40) NOT NULL,
    requests bigint NOT NULL DEFAULT 0,
    failures bigint NOT NULL DEFAULT 0,
    inferences bigint NOT NULL DEFAULT 0,
    executions bigint NOT NULL DEFAULT 0,
    queue_ns bigint NOT NULL DEFAULT 0,
    compute_ns bigint NOT NULL DEFAULT 0,
    pending double precision NOT NULL DEFAULT 0,
    request_histogram bytea NOT NULL DEFAULT ''::bytea,
    queue_histogram bytea NOT NULL DEFAULT ''::bytea,
    compute_histogram bytea NOT NULL DEFAULT ''::bytea,
    PRIMARY KEY (resolution, bucket, node_id, model, version)
) PARTITION BY LIST (resolution);
CREATE INDEX registry_sample_model ON registry_sample (resolution, model, bucket);
"""

_NODE_SAMPLE = """
CREATE TABLE registry_node_sample (
    resolution smallint NOT NULL,
    bucket timestamptz NOT NULL,
    node_id uuid NOT NULL,
    cpu_utilization double precision NOT NULL DEFAULT 0,
    memory_used_bytes bigint NOT NULL DEFAULT 0,
    memory_total_bytes bigint NOT NULL DEFAULT 0,
    gpus jsonb NOT NULL DEFAULT '[]'::jsonb,
    PRIMARY KEY (resolution, bucket, node_id)
) PARTITION BY LIST (resolution);
"""


def _branches(table: str) -> str:
    return "".join(
        f"CREATE TABLE {table}_{width} PARTITION OF {table} FOR VALUES IN ({width}) PARTITION BY RANGE (bucket);\n"
        f"CREATE TABLE {table}_{width}_default PARTITION OF {table}_{width} DEFAULT;\n"
        for width in _BRANCHES
    )


class Migration(migrations.Migration):
    dependencies = [("registry", "0001_initial")]

    operations = [
        migrations.RunSQL(_SAMPLE + _branches("registry_sample"), "DROP TABLE registry_sample"),
        migrations.RunSQL(_NODE_SAMPLE + _branches("registry_node_sample"), "DROP TABLE registry_node_sample"),
    ]
