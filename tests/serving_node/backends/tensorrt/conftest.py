"""A TensorRT backend on the double, and loading of models with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import onnx
import pytest

from serving_node.backends.loader import Backends
from serving_node.backends.tensorrt.backend import TensorRtBackend
from serving_node.contract.model_config import parse_pbtxt
from serving_node.scheduling.model_loader import load_served_model
from serving_node.scheduling.served_model import ServedModel
from tests.serving_node.backends.tensorrt import fake_tensorrt
from tests.serving_node.backends.tensorrt.fake_cuda import FakeCuda

Load = Callable[..., Awaitable[ServedModel]]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    """The GPU of a test; what instances took of it must be given back."""
    cuda = FakeCuda()
    monkeypatch.setattr(fake_tensorrt, "CUDA", cuda)
    yield cuda
    assert cuda.open_things() == 0


@pytest.fixture
def load(cuda: FakeCuda, tmp_path: Path) -> Load:
    """Save an ONNX file as a plan and load it: ``await load(path, *profiles, config="...")``."""

    async def load(path: Path, *profiles: dict, config: str = "", options: dict | None = None) -> ServedModel:
        plan = fake_tensorrt.save_plan(tmp_path / "engine" / "1" / "model.plan", onnx.load(path), *profiles)
        backends = Backends()
        backends.register(TensorRtBackend(fake_tensorrt, cuda, options or {}))
        return await load_served_model(
            name="m",
            version=1,
            version_dir=plan.parent,
            config=parse_pbtxt(f'backend: "tensorrt" {config}'),
            backends=backends,
            gpu_count=cuda.gpus,
        )

    return load
