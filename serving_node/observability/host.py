"""CPU, memory and GPU of the machine, and the process itself, sampled at most once per interval.

GPU readings need NVIDIA's driver; without it there are no GPU series, and nothing fails.
"""

from __future__ import annotations

import resource
import threading
import time
from dataclasses import dataclass
from typing import Any

import psutil
import structlog

from serving_node.observability.families import Family, MetricKind
from serving_node.observability.visible_gpus import named_gpus, visible_gpus

log = structlog.get_logger(__name__)

GAUGE, COUNTER = MetricKind.GAUGE, MetricKind.COUNTER


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment. Fields that the device does not report are None."""

    uuid: str
    name: str
    utilization: float | None
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    power_watts: float | None
    power_limit_watts: float | None
    energy_joules: float | None


class GpuProbe:
    """Reads the GPUs that CUDA shows to this process through NVML, opened on first use. Numbers are CUDA's."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: list[Any] = []
        self._is_open = False
        self._uuids: dict[int, str] = {}

    def uuid(self, index: int) -> str:
        """Return the UUID of a GPU by its number, empty without such a GPU."""
        self._open()
        if index not in self._uuids and 0 <= index < len(self._handles):
            self._uuids[index] = _text(self._nvml.nvmlDeviceGetUUID(self._handles[index]))
        return self._uuids.get(index, "")

    def count(self) -> int:
        """Return how many GPUs there are; 0 without a driver."""
        self._open()
        return len(self._handles)

    def read(self) -> list[GpuReading]:
        """Return one reading for each GPU. Blocks for some milliseconds."""
        self._open()
        return [self._read_one(handle) for handle in self._handles]

    def _open(self) -> None:
        if self._is_open:
            return
        self._is_open = True
        try:
            import pynvml

            pynvml.nvmlInit()
            handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
            uuids = [_text(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
            self._handles = [handles[number] for number in visible_gpus(uuids, named_gpus())]
            self._nvml = pynvml
        except Exception as error:
            # no driver, no library, no permission: a CPU node
            self._handles = []
            log.debug("gpu.unavailable", reason=str(error))

    def _read_one(self, handle: Any) -> GpuReading:
        nvml = self._nvml
        utilization = _optional(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
        memory = _optional(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        power = _optional(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000)
        limit = _optional(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000)
        energy = _optional(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000)
        return GpuReading(
            uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
            name=_text(nvml.nvmlDeviceGetName(handle)),
            utilization=utilization,
            memory_total_bytes=memory.total if memory else None,
            memory_used_bytes=memory.used if memory else None,
            power_watts=power,
            power_limit_watts=limit,
            energy_joules=energy,
        )


class HostProbe:
    """CPU, memory, GPU and process families, re-read at most every ``interval_seconds``.

    ``pinned_bytes`` is the size that was asked for the pool of pinned memory, which nothing uses here.
    Concurrency: ``families`` may be called on any thread.
    """

    def __init__(
        self,
        interval_seconds: float = 2.0,
        *,
        cpu: bool = True,
        gpu: bool = True,
        probe: GpuProbe | None = None,
        pinned_bytes: int = 256 * 1024 * 1024,
    ) -> None:
        self._interval_seconds = interval_seconds
        self._cpu = cpu
        self._probe = probe or GpuProbe()
        self._gpu = self._probe if gpu else None
        self._pinned_bytes = pinned_bytes
        self._process = psutil.Process()
        self._lock = threading.Lock()
        self._families: list[Family] = []
        self._read_at = 0.0
        self._cpu_before = _cpu_seconds()

    def gpu_uuid(self, index: int) -> str:
        """Return the UUID of a GPU by its number, empty without such a GPU. May block for some milliseconds."""
        with self._lock:
            return self._probe.uuid(index)

    def families(self) -> list[Family]:
        """Return the machine's families. May block for some milliseconds."""
        with self._lock:
            now = time.monotonic()
            if not self._families or now - self._read_at >= self._interval_seconds:
                self._families = self._read()
                self._read_at = now
            return self._families

    def _cpu_share(self) -> float:
        """Return the busy share of all cores since the last reading. Not psutil's: that one counts per thread."""
        busy, total = _cpu_seconds()
        busy_before, total_before = self._cpu_before
        self._cpu_before = (busy, total)
        return min(1.0, max(0.0, (busy - busy_before) / max(total - total_before, 1e-9)))

    def _read(self) -> list[Family]:
        families = [
            _gauge(
                "nv_pinned_memory_pool_total_bytes",
                "Pinned memory pool total memory size, in bytes",
                self._pinned_bytes,
            ),
            _gauge("nv_pinned_memory_pool_used_bytes", "Pinned memory pool used memory size, in bytes", 0),
        ]
        if self._cpu:
            memory = psutil.virtual_memory()
            families += (
                _gauge("nv_cpu_utilization", "CPU utilization rate [0.0 - 1.0]", self._cpu_share()),
                _gauge("nv_cpu_memory_total_bytes", "CPU total memory (RAM), in bytes", memory.total),
                _gauge("nv_cpu_memory_used_bytes", "CPU used memory (RAM), in bytes", memory.total - memory.available),
            )
        if self._gpu is not None and self._gpu.count():
            families += gpu_families(self._gpu.read())
        return families + process_families(self._process)


def _cpu_seconds() -> tuple[float, float]:
    """Return busy and total seconds of all cores since the machine started."""
    times = psutil.cpu_times()
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)  # guest is within user
    return total - times.idle - getattr(times, "iowait", 0.0), total


def process_families(process: psutil.Process) -> list[Family]:
    """Return what Prometheus' clients say about a process: the node's own, without the workers of models."""
    with process.oneshot():
        times, memory = process.cpu_times(), process.memory_info()
        started = process.create_time()
    most_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    families = [
        _gauge("process_resident_memory_bytes", "Resident memory size in bytes", memory.rss),
        _gauge("process_virtual_memory_bytes", "Virtual memory size in bytes", memory.vms),
        _gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds", started),
        _gauge("process_open_fds", "Number of open file descriptors", process.num_fds()),
        _gauge("process_max_fds", "Maximum number of open file descriptors", most_files),
    ]
    cpu = Family("process_cpu_seconds_total", "Total user and system CPU time spent in seconds", COUNTER)
    cpu.add((), times.user + times.system)
    return [cpu, *families]


def gpu_families(readings: list[GpuReading]) -> list[Family]:
    """Return Triton's GPU families for the readings."""
    rows = (
        ("nv_gpu_utilization", "GPU utilization rate [0.0 - 1.0)", GAUGE, "utilization"),
        ("nv_gpu_memory_total_bytes", "GPU total memory, in bytes", GAUGE, "memory_total_bytes"),
        ("nv_gpu_memory_used_bytes", "GPU used memory, in bytes", GAUGE, "memory_used_bytes"),
        ("nv_gpu_power_usage", "GPU power usage in watts", GAUGE, "power_watts"),
        ("nv_gpu_power_limit", "GPU power management limit in watts", GAUGE, "power_limit_watts"),
        (
            "nv_energy_consumption",
            "GPU energy consumption in joules since the driver was loaded",
            COUNTER,
            "energy_joules",
        ),
    )
    families: list[Family] = []
    for name, text, kind, attribute in rows:
        family = Family(name, text, kind)
        for reading in readings:
            value = getattr(reading, attribute)
            if value is not None:
                family.add((("gpu_uuid", reading.uuid),), value)
        families.append(family)
    return families


def _gauge(name: str, text: str, value: float) -> Family:
    family = Family(name, text, GAUGE)
    family.add((), value)
    return family


def _optional(read: Any) -> Any:
    try:
        return read()
    except Exception:
        return None  # not supported by this device


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
