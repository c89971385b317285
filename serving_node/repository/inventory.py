"""What this machine has to offer, told to the control plane once at the start."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
from collections.abc import Mapping
from typing import Any

import psutil

from serving_node.backends.loader import ENTRY_POINTS
from serving_node.observability.host import GpuProbe

# backend -> distributions that bring it, the first one installed counts
_ENGINES = {
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu"),
    "pytorch": ("torch",),
    "tensorrt": ("tensorrt",),
    "openvino": ("openvino",),
}
# backend -> distribution that can use GPUs; the build for CPUs has another name
_GPU_BUILDS = {"onnxruntime": "onnxruntime-gpu"}
_CPU_ONLY = frozenset({"identity"})


def take_inventory(labels: Mapping[str, str]) -> dict[str, Any]:
    """Return host, processors, memory, GPUs and engines as JSON-ready values. Imports no engine; may block."""
    return {
        "hostname": socket.gethostname(),
        "platform": f"{platform.system()} {platform.machine()}",
        "python_version": platform.python_version(),
        "flotilla_version": installed_version("flotilla") or "0",
        "cpu_count": _usable_cpus(),
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": [
            {"uuid": gpu.uuid, "name": gpu.name, "memory_bytes": gpu.memory_total_bytes or 0}
            for gpu in GpuProbe().read()
        ],
        "backends": _backends(),
        "labels": dict(labels),
    }


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, None when it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def usable_gpus(backend: str, gpu_count: int) -> int:
    """Return how many of the machine's GPUs a backend can use: none without its build for them."""
    needs = _GPU_BUILDS.get(backend)
    if backend in _CPU_ONLY or (needs is not None and installed_version(needs) is None):
        return 0
    return gpu_count


def _backends() -> dict[str, str]:
    found: dict[str, str] = {}
    for backend, distributions in _ENGINES.items():
        version = next((v for name in distributions if (v := installed_version(name))), None)
        if version is not None:
            found[backend] = version
    for brought in importlib.metadata.entry_points(group=ENTRY_POINTS):
        found.setdefault(brought.name, brought.dist.version if brought.dist is not None else "")
    return found


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
