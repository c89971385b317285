"""What the node says of a real GPU."""

from __future__ import annotations

import pytest

from serving_node.observability.host import GpuProbe, gpu_families
from serving_node.repository.inventory import take_inventory

pytestmark = pytest.mark.gpu


def test_a_gpu_is_read(gpu_count: int) -> None:
    probe = GpuProbe()
    readings = probe.read()
    assert len(readings) == gpu_count
    for index, reading in enumerate(readings):
        assert reading.uuid == probe.uuid(index)
        assert reading.uuid.startswith("GPU-")
        assert reading.name
        assert reading.utilization is None or 0 <= reading.utilization <= 1
        assert reading.memory_total_bytes is not None
        assert reading.memory_used_bytes is not None
        assert 0 <= reading.memory_used_bytes <= reading.memory_total_bytes


def test_metrics_and_inventory_name_it(gpu_count: int) -> None:
    readings = GpuProbe().read()
    families = {family.name: family for family in gpu_families(readings)}
    assert {"nv_gpu_memory_total_bytes", "nv_gpu_memory_used_bytes", "nv_gpu_utilization"} <= set(families)
    assert [gpu["uuid"] for gpu in take_inventory({})["gpus"]] == [reading.uuid for reading in readings]
