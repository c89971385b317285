"""TensorRT itself: engines built here from ONNX made in code, and held against ONNX Runtime on the CPU."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from serving_node.backends.tensorrt.cuda import cudart
from serving_node.cli.build_engine import main as build_engine
from serving_node.contract.control import FileRef
from serving_node.contract.engine_builds import BuildOrder, BuildPlan, BuildState
from serving_node.core.errors import InferenceError
from serving_node.core.tensor import Tensor
from serving_node.observability.host import GpuProbe
from serving_node.repository.blob_store import BlobStore
from serving_node.repository.engine_builds import EngineBuilds
from tests.serving_node import onnx_models
from tests.serving_node.backends.model_calls import arrays, infer
from tests.serving_node.gpu.conftest import Load, on_cpu

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]

FLOAT = TensorProto.FLOAT
# TensorRT computes FP32 products with TF32, which has ten bits of mantissa
TF32 = {"rtol": 1e-2, "atol": 1e-2}
BUILD_SECONDS = 300


@pytest.fixture(autouse=True)
def tensorrt(needs: Callable[[str], Any]) -> Any:
    return needs("tensorrt")


def built(model: Path, *arguments: str) -> Path:
    """Build the engine of a file and return its version folder."""
    plan = model.parent / "1" / "model.plan"
    plan.parent.mkdir(exist_ok=True)
    assert build_engine([str(model), "--output", str(plan), "--optimization-level", "0", *arguments]) == 0
    return plan.parent


def x(array: np.ndarray, datatype: str = "FP32") -> list[Tensor]:
    return [Tensor.from_numpy("x", array, datatype)]


@pytest.mark.parametrize(
    "config",
    [
        "",
        "optimization { cuda { graphs: true } }",
        "optimization { cuda { output_copy_stream: true busy_wait_events: true } priority: PRIORITY_MAX }",
        "optimization { input_pinned_memory { enable: false } output_pinned_memory { enable: false } }",
        'parameters { key: "execution_context_allocation_strategy" value { string_value: "ON_PROFILE_CHANGE" } }',
    ],
)
async def test_an_engine_answers_as_the_file_it_was_built_from(load: Load, tmp_path: Path, config: str) -> None:
    path = onnx_models.save_mlp(tmp_path / "m.onnx")
    model = await load(built(path, "--max-batch-size", "32"), f'backend: "tensorrt" {config}')
    assert model.config.max_batch_size == 32
    generator = np.random.default_rng(1)
    for rows in (1, 7, 32, 2, 32):
        data = generator.standard_normal((rows, 16)).astype(np.float32)
        (response,) = await infer(model, x(data))
        np.testing.assert_allclose(arrays(response)["y"], on_cpu(path, x=data)["y"], **TF32)
    await model.close()


@pytest.mark.parametrize(
    ("element", "datatype"),
    [
        (TensorProto.FLOAT16, "FP16"),
        (TensorProto.BFLOAT16, "BF16"),
        (TensorProto.INT32, "INT32"),
        (TensorProto.INT64, "INT64"),
        (TensorProto.BOOL, "BOOL"),
    ],
)
async def test_elements_come_back_as_they_went(load: Load, tmp_path: Path, element: int, datatype: str) -> None:
    folder = built(onnx_models.save_identity(tmp_path / "m.onnx", element, ["N", 4]), "--max-batch-size", "8")
    model = await load(folder, 'backend: "tensorrt"')
    dtype = {"FP16": np.float16, "BF16": np.uint16, "INT32": np.int32, "INT64": np.int64, "BOOL": np.bool_}[datatype]
    data = np.array([[0, 1, 2, 3], [4, 5, 6, 7]]).astype(dtype)
    (output,) = (await infer(model, x(data, datatype)))[0].outputs
    assert (output.datatype, bytes(output.data)) == (datatype, data.tobytes())
    await model.close()


async def test_batches_go_to_the_profile_that_fits(load: Load, tmp_path: Path) -> None:
    path = onnx_models.save_identity(tmp_path / "m.onnx", FLOAT, ["N", "D"])
    folder = built(path, "--profile", "x=1x1:1x4:4x8", "--profile", "x=1x8:2x32:4x64")
    model = await load(folder, 'backend: "tensorrt" instance_group { kind: KIND_GPU profile: ["0", "1"] }')
    for width in (1, 8, 33, 64):
        data = np.arange(2 * width, dtype=np.float32).reshape(2, width)
        assert np.array_equal(arrays((await infer(model, x(data)))[0])["y"], data)
    (refused,) = await infer(model, x(np.zeros((1, 65), np.float32)))
    assert refused.error is not None
    assert "to be between 1 and 8 but received 65" in refused.error.message
    await model.close()


async def test_instances_share_an_engine_and_run_side_by_side(load: Load, tmp_path: Path) -> None:
    path = onnx_models.save_mlp(tmp_path / "m.onnx")
    folder = built(path, "--max-batch-size", "8")
    model = await load(folder, 'backend: "tensorrt" instance_group { kind: KIND_GPU count: 4 }')
    data = np.random.default_rng(3).standard_normal((64, 8, 16)).astype(np.float32)
    responses = await asyncio.gather(*(infer(model, x(part)) for part in data))
    for part, (response,) in zip(data, responses, strict=True):
        np.testing.assert_allclose(arrays(response)["y"], on_cpu(path, x=part)["y"], **TF32)
    await model.close()


async def test_shape_tensors(load: Load, tmp_path: Path) -> None:
    nodes = [helper.make_node("Expand", ["x", "s"], ["y"]), helper.make_node("Shape", ["y"], ["t"])]
    inputs = [onnx_models.tensor("x", FLOAT, ["N", 1]), onnx_models.tensor("s", TensorProto.INT64, [2])]
    outputs = [onnx_models.tensor("y", FLOAT, ["N", "D"]), onnx_models.tensor("t", TensorProto.INT64, [2])]
    path = onnx_models.save(tmp_path / "m.onnx", nodes, inputs, outputs)
    folder = built(path, "--profile", "x=1x1:2x1:4x1,s==1x1:2x3:4x5")
    model = await load(folder, 'backend: "tensorrt"')
    assert [(one.name, one.is_shape_tensor) for one in model.config.input] == [("x", False), ("s", True)]
    data = np.array([[1], [2]], np.float32)
    (response,) = await infer(model, [*x(data), Tensor.from_numpy("s", np.array([3], np.int64), "INT64")])
    assert arrays(response)["y"].tolist() == [[1, 1, 1], [2, 2, 2]]
    assert arrays(response)["t"].tolist() == [[3], [3]]
    await model.close()


async def test_outputs_whose_shape_only_the_data_tell(load: Load, tmp_path: Path) -> None:
    path = onnx_models.save(
        tmp_path / "m.onnx",
        [helper.make_node("NonZero", ["x"], ["y"])],
        [onnx_models.tensor("x", FLOAT, [6])],
        [onnx_models.tensor("y", TensorProto.INT64, [1, "told"])],
    )
    model = await load(
        built(path), 'backend: "tensorrt" input { name: "x" dims: [6] } output { name: "y" dims: [1, -1] }'
    )
    for data, expected in (([0, 1, 0, 1, 0, 0], [[1, 3]]), ([1] * 6, [[0, 1, 2, 3, 4, 5]]), ([0] * 6, [[]])):
        (response,) = await infer(model, x(np.array(data, np.float32)))
        assert arrays(response)["y"].tolist() == expected
    await model.close()


async def test_version_compatible_engines_need_the_operators_word(load: Load, tmp_path: Path) -> None:
    path = onnx_models.save_mlp(tmp_path / "m.onnx")
    folder = built(path, "--max-batch-size", "4", "--version-compatible")
    with pytest.raises(InferenceError, match="version-compatible=true"):
        await load(folder, 'backend: "tensorrt"')
    model = await load(folder, 'backend: "tensorrt"', version_compatible="true")
    data = np.ones((2, 16), np.float32)
    np.testing.assert_allclose(arrays((await infer(model, x(data)))[0])["y"], on_cpu(path, x=data)["y"], **TF32)
    await model.close()


async def test_a_file_that_is_no_engine_of_this_tensorrt_is_told(load: Load, tmp_path: Path) -> None:
    folder = built(onnx_models.save_mlp(tmp_path / "m.onnx"), "--max-batch-size", "4")
    plan = folder / "model.plan"
    whole = plan.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:24] + bytes([8, 6, 1, 6]) + whole[28:]):
        plan.write_bytes(content)
        with pytest.raises(InferenceError) as caught:
            await load(folder, 'backend: "tensorrt"')
        assert caught.value.message.count("\n") == 0


async def test_memory_of_the_gpu_comes_back(load: Load, tmp_path: Path) -> None:
    folder = built(onnx_models.save_mlp(tmp_path / "m.onnx", hidden=4096), "--max-batch-size", "64")
    used: list[int] = []
    for _ in range(10):
        model = await load(folder, 'backend: "tensorrt" optimization { cuda { graphs: true } }')
        await infer(model, x(np.ones((64, 16), np.float32)))
        await model.close()
        used.append(GpuProbe().read()[0].memory_used_bytes or 0)
    assert used[-1] - used[1] < 64 << 20


async def test_a_node_builds_engines_in_a_process_of_their_own(load: Load, tmp_path: Path, gpu_count: int) -> None:
    path = onnx_models.save_mlp(tmp_path / "m.onnx")
    blobs = BlobStore(tmp_path / "blobs")
    content = path.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    blobs.partial_path(sha256).write_bytes(content)
    blobs.commit(sha256, len(content))
    builds = EngineBuilds(tmp_path / "engines", blobs, GpuProbe().read)
    order = BuildOrder((FileRef("model.onnx", sha256, len(content)),), BuildPlan(max_batch_size=8))
    status = await builds.start(order)
    progress: list[float] = []
    async with asyncio.timeout(BUILD_SECONDS):
        while not status.state.is_final:
            status = await builds.status(status.id, status.sequence, 30)
            progress.append(status.progress)
    assert status.state is BuildState.READY, status.reason
    assert progress == sorted(progress)
    assert len(set(progress)) > 2
    assert status.engine is not None
    version = tmp_path / "1"
    version.mkdir()
    (version / "model.plan").write_bytes(blobs.path(status.engine.sha256).read_bytes())
    model = await load(version, 'backend: "tensorrt"')
    data = np.ones((3, 16), np.float32)
    np.testing.assert_allclose(arrays((await infer(model, x(data)))[0])["y"], on_cpu(path, x=data)["y"], **TF32)
    await model.close()
    assert (await builds.start(order)).was_cached
    slow = await builds.start(BuildOrder(order.files, BuildPlan(max_batch_size=7, optimization_level=5)))
    assert (await builds.cancel(slow.id)).state in (BuildState.CANCELLED, BuildState.READY)
    await builds.close()


def test_the_cuda_runtime_copies_waits_and_records(gpu_count: int) -> None:
    cuda = cudart()
    cuda.set_device(0)
    assert float(cuda.capability(0)) >= 7.5
    least, greatest = cuda.priorities()
    assert greatest <= least
    stream, event = cuda.create_stream(greatest), cuda.create_event(busy_wait=False)
    device, host = cuda.allocate(64), cuda.allocate_host(64)
    source, target = np.arange(64, dtype=np.uint8), np.zeros(64, np.uint8)
    cuda.copy_in(device, source.ctypes.data, 64, stream)
    cuda.synchronize(stream)
    cuda.begin_capture(stream)
    cuda.copy_out(host, device, 64, stream)
    graph = cuda.end_capture(stream)
    cuda.launch(graph, stream)
    cuda.copy_in(device, host, 64, stream)
    cuda.copy_out(target.ctypes.data, device, 64, stream)
    cuda.record(event, stream)
    cuda.wait(event)
    assert target.tolist() == source.tolist()
    cuda.destroy_graph(graph)
    cuda.free(device)
    cuda.free_host(host)
    cuda.destroy_event(event)
    cuda.destroy_stream(stream)
