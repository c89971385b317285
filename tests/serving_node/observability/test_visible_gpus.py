"""Numbers of GPUs: the driver's and CUDA's."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.observability import host
from serving_node.observability.host import GpuProbe
from serving_node.observability.visible_gpus import number_by_bus, visible_gpus

UUIDS = ["GPU-aa11", "GPU-bb22", "GPU-bb33"]


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("2,0", [2, 0]),
        ("1, 2", [1, 2]),
        ("0,7,1", [0]),
        ("0,0", [0]),
        ("GPU-aa,1", [0, 1]),
        ("GPU-bb", []),
        ("GPU-bb3", [2]),
        ("MIG-1/2/3", [0, 1, 2]),
    ],
)
def test_cuda_shows_what_it_is_told_to(named: str | None, expected: list[int]) -> None:
    assert visible_gpus(UUIDS, named) == expected


@given(st.lists(st.sampled_from(["0", "1", "2", "3", "-1", "GPU-", "GPU-aa11", "x", ""]), max_size=5))
def test_no_gpu_is_shown_twice(parts: list[str]) -> None:
    shown = visible_gpus(UUIDS, ",".join(parts))
    assert len(set(shown)) == len(shown)
    assert set(shown) <= {0, 1, 2}


def test_the_order_of_the_bus_is_asked_for_unless_somebody_chose() -> None:
    variables: dict[str, str] = {}
    number_by_bus(variables)
    assert variables == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    chosen = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    number_by_bus(chosen)
    assert chosen == {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}


def test_readings_are_by_cudas_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nvml:
        def nvmlInit(self) -> None: ...

        def nvmlDeviceGetCount(self) -> int:
            return len(UUIDS)

        def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
            return UUIDS[index]

        def nvmlDeviceGetUUID(self, handle: str) -> str:
            return handle

    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    monkeypatch.setattr(host, "named_gpus", lambda: "2,0")
    probe = GpuProbe()
    assert (probe.count(), probe.uuid(0), probe.uuid(1), probe.uuid(2)) == (2, "GPU-bb33", "GPU-aa11", "")
