"""ONNX Runtime's CUDA provider, through the whole of a model, held against the same file on the CPU."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

from serving_node.core.tensor import Tensor
from serving_node.observability.host import GpuProbe
from tests.serving_node import onnx_models
from tests.serving_node.backends.model_calls import arrays, infer
from tests.serving_node.gpu.conftest import Load, on_cpu

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]

CONFIG = 'backend: "onnxruntime" max_batch_size: 32 dynamic_batching { } instance_group { kind: KIND_GPU count: %d } %s'
TF32 = {"rtol": 1e-2, "atol": 1e-2}


@pytest.fixture(autouse=True)
def cuda_provider(needs: Callable[[str], Any]) -> None:
    needs("onnxruntime")
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has no CUDA provider: install onnxruntime-gpu instead")


def x(array: np.ndarray) -> list[Tensor]:
    return [Tensor.from_numpy("x", array, "FP32")]


@pytest.mark.parametrize(("count", "more"), [(1, ""), (4, "")])
async def test_the_gpu_answers_as_the_cpu(load: Load, tmp_path: Path, count: int, more: str) -> None:
    path = onnx_models.save_mlp(tmp_path / "1" / "model.onnx")
    model = await load(path.parent, CONFIG % (count, more))
    data = np.random.default_rng(1).standard_normal((40, 7, 16)).astype(np.float32)
    responses = await asyncio.gather(*(infer(model, x(part)) for part in data))
    for part, (response,) in zip(data, responses, strict=True):
        np.testing.assert_allclose(arrays(response)["y"], on_cpu(path, x=part)["y"], **TF32)
    await model.close()


async def test_identity_is_bitwise(load: Load, tmp_path: Path) -> None:
    path = onnx_models.save_identity(tmp_path / "1" / "model.onnx", TensorProto.FLOAT, ["N", 5])
    model = await load(path.parent, CONFIG % (1, ""))
    data = np.random.default_rng(2).standard_normal((32, 5)).astype(np.float32)
    assert arrays((await infer(model, x(data)))[0])["y"].tobytes() == data.tobytes()
    await model.close()


async def test_memory_of_the_gpu_comes_back(load: Load, tmp_path: Path) -> None:
    path = onnx_models.save_mlp(tmp_path / "1" / "model.onnx", hidden=4096)
    used: list[int] = []
    for _ in range(10):
        model = await load(path.parent, CONFIG % (1, ""))
        await infer(model, x(np.ones((32, 16), np.float32)))
        await model.close()
        used.append(GpuProbe().read()[0].memory_used_bytes or 0)
    assert used[-1] - used[1] < 64 << 20
