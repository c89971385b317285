"""What tests on a real GPU need: each skips with its reason where a library is missing."""

from __future__ import annotations

import importlib.util
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from serving_node.backends.loader import Backends
from serving_node.contract.model_config import parse_pbtxt
from serving_node.observability.host import GpuProbe
from serving_node.scheduling.model_loader import load_served_model
from serving_node.scheduling.served_model import ServedModel

Load = Callable[..., Awaitable[ServedModel]]


@pytest.fixture(scope="session")
def gpu_count() -> int:
    """How many GPUs the driver shows."""
    return GpuProbe().count()


@pytest.fixture
def needs(gpu_count: int) -> Callable[[str], Any]:
    """Import a library, or skip the test."""

    def needs(name: str) -> Any:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
        return importlib.import_module(name)

    return needs


@pytest.fixture
def load(gpu_count: int) -> Load:
    """Load the version in a folder: ``await load(folder, config, **backend options)``."""

    async def load(folder: Path, config: str, **options: str) -> ServedModel:
        parsed = parse_pbtxt(config)
        given = {parsed.backend: {key.replace("_", "-"): value for key, value in options.items()}}
        return await load_served_model(
            name="m", version=1, version_dir=folder, config=parsed, backends=Backends(given), gpu_count=gpu_count
        )

    return load


def on_cpu(path: Path, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    """Return what ONNX Runtime computes on the CPU."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))
