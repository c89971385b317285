"""Engines served through the whole of a model: completed, batched, run on the double, and split again."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from serving_node.backends.hosted.backend import HostedBackend
from serving_node.backends.loader import Backends
from serving_node.backends.python.processes import Caretaker
from serving_node.backends.tensorrt.backend import TensorRtBackend
from serving_node.backends.tensorrt.cuda import CudaError
from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config import parse_pbtxt
from serving_node.core.errors import InferenceError
from serving_node.core.tensor import Tensor
from serving_node.scheduling.model_loader import load_served_model
from tests.serving_node import onnx_models
from tests.serving_node.backends.model_calls import arrays, infer
from tests.serving_node.backends.tensorrt import fake_tensorrt
from tests.serving_node.backends.tensorrt.conftest import Load
from tests.serving_node.backends.tensorrt.fake_cuda import FakeCuda

UP_TO_8 = {"x": [[1, 16], [4, 16], [8, 16]]}
FLOAT = TensorProto.FLOAT


def x(array: np.ndarray) -> list[Tensor]:
    return [Tensor.from_numpy("x", array.astype(np.float32), "FP32")]


async def test_an_engine_fills_in_its_config_and_answers_as_the_file_it_was_built_from(
    load: Load, cuda: FakeCuda, tmp_path: Path
) -> None:
    path = onnx_models.save_mlp(tmp_path / "m.onnx")
    model = await load(path, UP_TO_8)
    assert (model.config.platform, model.config.backend) == ("tensorrt_plan", "tensorrt")
    assert model.config.max_batch_size == 8
    assert model.config.HasField("dynamic_batching")
    assert [(one.name, one.shape) for one in model.metadata.inputs] == [("x", (-1, 16))]
    data = np.random.default_rng(1).standard_normal((7, 16)).astype(np.float32)
    responses = await infer(model, x(data[:2]), x(data[2:3]), x(data[3:]))
    expected = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(["y"], {"x": data})[0]
    joined = np.concatenate([arrays(response)["y"] for response in responses])
    assert np.array_equal(joined, expected)
    assert model.statistics.execution_count == 1
    assert cuda.copies[-2:] == ["in", "out"]  # three requests, one copy in each direction
    await model.close()


async def test_answers_outlive_the_batches_that_follow(load: Load, tmp_path: Path) -> None:
    model = await load(onnx_models.save_identity(tmp_path / "m.onnx", FLOAT, ["N", 16]), UP_TO_8)
    first = arrays((await infer(model, x(np.full((1, 16), 1.0))))[0])["y"]
    await infer(model, x(np.full((1, 16), 2.0)))
    assert (first == 1).all()
    await model.close()


@pytest.mark.parametrize(
    "optimization",
    [
        "input_pinned_memory { enable: false } output_pinned_memory { enable: false }",
        "cuda { output_copy_stream: true busy_wait_events: true } priority: PRIORITY_MAX",
    ],
)
async def test_how_memory_and_streams_are_used_changes_no_answer(
    load: Load, cuda: FakeCuda, tmp_path: Path, optimization: str
) -> None:
    path = onnx_models.save_mlp(tmp_path / "m.onnx")
    model = await load(path, UP_TO_8, config=f"optimization {{ {optimization} }}")
    assert len(cuda.streams) == (2 if "output_copy_stream" in optimization else 1)
    assert bool(cuda.busy_events) == ("busy_wait" in optimization)
    assert bool(cuda.host_memory) == ("enable: false" not in optimization)
    data = np.random.default_rng(2).standard_normal((3, 16)).astype(np.float32)
    expected = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(["y"], {"x": data})[0]
    assert np.array_equal(arrays((await infer(model, x(data)))[0])["y"], expected)
    await model.close()


@pytest.mark.parametrize(
    ("element", "datatype"),
    [
        (TensorProto.FLOAT16, "FP16"),
        (TensorProto.INT64, "INT64"),
        (TensorProto.BOOL, "BOOL"),
        (TensorProto.UINT8, "UINT8"),
    ],
)
async def test_element_types_come_back_as_they_went(load: Load, tmp_path: Path, element: int, datatype: str) -> None:
    model = await load(onnx_models.save_identity(tmp_path / "m.onnx", element, [2, 3]), config="max_batch_size: 0")
    # a fixed first dimension looks like a batch, as it does to Triton
    assert model.config.max_batch_size == 2
    raw = np.array([[1, 0, 1], [0, 1, 1]]).astype(
        {"FP16": np.float16, "INT64": np.int64, "BOOL": np.bool_, "UINT8": np.uint8}[datatype]
    )
    (output,) = (await infer(model, [Tensor.from_numpy("x", raw, datatype)]))[0].outputs
    assert (output.datatype, output.shape, bytes(output.data)) == (datatype, (2, 3), raw.tobytes())
    await model.close()


async def test_types_that_cannot_travel_are_refused(load: Load, tmp_path: Path) -> None:
    path = onnx_models.save_identity(tmp_path / "m.onnx", TensorProto.FLOAT8E4M3FN, [1, 3])
    with pytest.raises(InferenceError) as caught:
        await load(path)
    assert caught.value.code is ErrorCode.UNSUPPORTED
    assert caught.value.message.startswith("input 'x' of model 'm' is of type FP8, which the inference protocol cannot")


async def test_layouts_that_are_not_linear_are_refused(load: Load, tmp_path: Path) -> None:
    name = "vectorized"
    node = helper.make_node("Identity", [name], ["y"])
    path = onnx_models.save(
        tmp_path / "m.onnx",
        [node],
        [onnx_models.tensor(name, FLOAT, [1, 3])],
        [onnx_models.tensor("y", FLOAT, [1, 3])],
    )
    with pytest.raises(InferenceError, match="input 'vectorized' of model 'm' has the layout CHW32, only linear"):
        await load(path)


async def test_batches_go_to_the_profile_that_fits_and_others_are_refused(load: Load, tmp_path: Path) -> None:
    path = onnx_models.save_identity(tmp_path / "m.onnx", FLOAT, ["N", "D"])
    short = {"x": [[1, 1], [1, 4], [4, 8]]}
    long = {"x": [[1, 8], [2, 32], [4, 64]]}
    group = 'instance_group { kind: KIND_GPU profile: ["0", "1"] }'
    model = await load(path, short, long, config=group)
    assert model.config.max_batch_size == 4
    for width in (1, 8, 33, 64):
        data = np.arange(2 * width, dtype=np.float32).reshape(2, width)
        assert np.array_equal(arrays((await infer(model, x(data)))[0])["y"], data)
    (refused,) = await infer(model, x(np.zeros((1, 65))))
    assert refused.error is not None
    assert refused.error.code is ErrorCode.INTERNAL
    assert refused.error.message == (
        "request specifies invalid shape for input 'x' for m_0_0. Error details: model expected the shape of dimension"
        " 1 to be between 1 and 8 but received 65"
    )
    await model.close()


async def test_without_a_profile_the_first_one_counts(load: Load, tmp_path: Path) -> None:
    path = onnx_models.save_identity(tmp_path / "m.onnx", FLOAT, ["N", 2])
    model = await load(path, {"x": [[1, 2], [1, 2], [4, 2]]}, {"x": [[1, 2], [8, 2], [16, 2]]})
    assert model.config.max_batch_size == 4
    await model.close()


async def test_a_profile_that_is_not_there_is_told(load: Load, tmp_path: Path) -> None:
    path = onnx_models.save_identity(tmp_path / "m.onnx", FLOAT, ["N", 16])
    with pytest.raises(InferenceError) as caught:
        await load(path, UP_TO_8, config='instance_group { kind: KIND_GPU profile: ["3"] }')
    assert caught.value.message == (
        "unable to autofill for 'm', configuration specified invalid profile 3 . Number of profiles supported by"
        " TensorRT engine: 1"
    )


async def test_instances_of_a_gpu_share_one_engine(
    load: Load, cuda: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    open_engine = fake_tensorrt.Runtime.deserialize_cuda_engine

    def counting(self: fake_tensorrt.Runtime, plan: bytes) -> object:
        opened.append(plan)
        return open_engine(self, plan)

    monkeypatch.setattr(fake_tensorrt.Runtime, "deserialize_cuda_engine", counting)
    cuda.gpus = 2
    path = onnx_models.save_mlp(tmp_path / "m.onnx")
    model = await load(path, UP_TO_8, config="instance_group { kind: KIND_GPU count: 3 gpus: [0, 1] }")
    assert len(opened) == 2
    assert len(cuda.streams) == 6
    responses = await asyncio.gather(*(infer(model, x(np.full((8, 16), value))) for value in range(12)))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for value, (response,) in enumerate(responses):
        expected = session.run(["y"], {"x": np.full((8, 16), value, np.float32)})[0]
        assert np.allclose(arrays(response)["y"], expected)
    await model.close()


async def test_graphs_are_replayed_for_the_sizes_they_were_recorded_for(
    load: Load, cuda: FakeCuda, tmp_path: Path
) -> None:
    path = onnx_models.save_mlp(tmp_path / "m.onnx")
    config = "optimization { cuda { graphs: true graph_spec { batch_size: 2 } graph_spec { batch_size: 8 } } }"
    model = await load(path, UP_TO_8, config=config)
    assert len(cuda.graphs) == 2
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    before = cuda.launched
    for rows, launched in ((2, 1), (3, 1), (8, 2), (2, 3)):
        data = np.random.default_rng(rows).standard_normal((rows, 16)).astype(np.float32)
        (response,) = await infer(model, x(data))
        assert np.allclose(arrays(response)["y"], session.run(["y"], {"x": data})[0])
        assert cuda.launched - before == launched
    await model.close()


async def test_a_graph_with_a_lower_bound_serves_smaller_batches(load: Load, cuda: FakeCuda, tmp_path: Path) -> None:
    spec = """optimization { cuda { graphs: true graph_spec {
      batch_size: 4 input { key: "x" value { dim: [ 3 ] } }
      graph_lower_bound { batch_size: 2 input { key: "x" value { dim: [ 2 ] } } } } } }"""
    path = onnx_models.save_identity(tmp_path / "m.onnx", FLOAT, ["N", "D"])
    model = await load(path, {"x": [[1, 1], [4, 3], [8, 4]]}, config=spec)
    before = cuda.launched
    (same,) = await infer(model, x(np.arange(9).reshape(3, 3)))
    assert arrays(same)["y"].tolist() == np.arange(9).reshape(3, 3).tolist()
    # the engine saw three columns: what stands beside those that were sent is zero
    (wider,) = await infer(model, x(np.ones((2, 2))))
    assert arrays(wider)["y"].tolist() == [[1, 1, 0], [1, 1, 0]]
    assert cuda.launched - before == 2
    (alone,) = await infer(model, x(np.ones((1, 3))))
    assert arrays(alone)["y"].tolist() == [[1, 1, 1]]
    assert cuda.launched - before == 2
    await model.close()


async def test_graphs_hold_when_later_ones_need_more_memory(load: Load, cuda: FakeCuda, tmp_path: Path) -> None:
    def spec(width: int) -> str:
        return f'graph_spec {{ batch_size: 2 input {{ key: "x" value {{ dim: [ {width} ] }} }} }}'

    config = f"""max_batch_size: 2 input {{ name: "x" data_type: TYPE_FP32 dims: [ 2 ] }}
    optimization {{ cuda {{ graphs: true {spec(2)} {spec(4)} }} }}"""
    path = onnx_models.save_identity(tmp_path / "m.onnx", FLOAT, ["N", "D"])
    model = await load(path, {"x": [[1, 1], [2, 2], [8, 4]]}, config=config)
    assert len(cuda.graphs) == 2
    before = cuda.launched
    (response,) = await infer(model, x(np.array([[1, 2], [3, 4]])))
    assert arrays(response)["y"].tolist() == [[1, 2], [3, 4]]
    assert cuda.launched - before == 1
    await model.close()


async def test_graphs_are_forgotten_when_memory_moves(load: Load, cuda: FakeCuda, tmp_path: Path) -> None:
    # the smaller the input, the larger the output: what is taken at load does not last
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], start=1, end=2),
        helper.make_node("Sub", ["nine", "shape"], ["times"]),
        helper.make_node("Concat", ["one", "times"], ["repeats"], axis=0),
        helper.make_node("Tile", ["x", "repeats"], ["y"]),
    ]
    weights = {"nine": np.array([9], np.int64), "one": np.array([1], np.int64)}
    inputs, outputs = [onnx_models.tensor("x", FLOAT, ["N", "D"])], [onnx_models.tensor("y", FLOAT, ["N", "E"])]
    path = onnx_models.save(tmp_path / "m.onnx", nodes, inputs, outputs, weights)
    config = "optimization { cuda { graphs: true graph_spec { batch_size: 2 } } }"
    model = await load(path, {"x": [[1, 1], [2, 8], [2, 8]]}, config=config)
    for width, graphs in ((8, 1), (4, 0), (8, 0)):
        (response,) = await infer(model, x(np.full((2, width), width)))
        assert arrays(response)["y"].tolist() == [[width] * width * (9 - width)] * 2
        assert len(cuda.graphs) == graphs
    await model.close()


async def test_a_model_whose_graphs_cannot_be_recorded_is_served_without(
    load: Load, cuda: FakeCuda, tmp_path: Path
) -> None:
    cuda.fails = "cudaStreamEndCapture"
    path = onnx_models.save_identity(tmp_path / "m.onnx", FLOAT, ["N", 16])
    model = await load(path, UP_TO_8, config="optimization { cuda { graphs: true } }")
    (response,) = await infer(model, x(np.ones((1, 16))))
    assert arrays(response)["y"].sum() == 16
    assert cuda.launched == 0
    await model.close()


async def test_a_graph_that_makes_no_sense_is_refused(load: Load, tmp_path: Path) -> None:
    path = onnx_models.save_identity(tmp_path / "m.onnx", FLOAT, ["N", 16])
    with pytest.raises(InferenceError, match="graph spec expects 'batch_size' to be >= 1 and <= 8"):
        await load(path, UP_TO_8, config="optimization { cuda { graphs: true graph_spec { batch_size: 9 } } }")


def save_expand(path: Path) -> Path:
    """``y`` is ``x`` FP32 [N, 1] expanded to the shape in ``s`` INT64 [2]; ``t`` is the shape of ``y``."""
    nodes = [helper.make_node("Expand", ["x", "s"], ["y"]), helper.make_node("Shape", ["y"], ["t"])]
    inputs = [onnx_models.tensor("x", FLOAT, ["N", 1]), onnx_models.tensor("s", TensorProto.INT64, [2])]
    outputs = [onnx_models.tensor("y", FLOAT, ["N", "D"]), onnx_models.tensor("t", TensorProto.INT64, [2])]
    return onnx_models.save(path, nodes, inputs, outputs)


EXPANDING = {"x": [[1, 1], [2, 1], [4, 1]], "s": [[2]] * 3, "s=": [[1, 1], [2, 3], [4, 5]]}


def expand(rows: int, width: int) -> list[Tensor]:
    data = np.arange(rows, dtype=np.float32).reshape(rows, 1)
    return [Tensor.from_numpy("x", data, "FP32"), Tensor.from_numpy("s", np.array([width], np.int64), "INT64")]


async def test_shape_tensors_get_the_rows_in_front_and_share_batches_when_equal(load: Load, tmp_path: Path) -> None:
    model = await load(save_expand(tmp_path / "m.onnx"), EXPANDING)
    assert [(one.name, list(one.dims), one.is_shape_tensor) for one in model.config.input] == [
        ("x", [1], False),
        ("s", [1], True),
    ]
    assert [(one.name, one.is_shape_tensor) for one in model.config.output] == [("y", False), ("t", True)]
    responses = await infer(model, expand(1, 3), expand(2, 3), expand(1, 5))
    assert [arrays(one)["y"].shape for one in responses] == [(1, 3), (2, 3), (1, 5)]
    assert arrays(responses[1])["y"].tolist() == [[0, 0, 0], [1, 1, 1]]
    assert [arrays(one)["t"].tolist() for one in responses] == [[[3]], [[3], [3]], [[5]]]
    assert model.statistics.execution_count == 2  # another width is another batch
    await model.close()


async def test_shape_tensors_in_a_worker_process(tmp_path: Path) -> None:
    onnx_file = save_expand(tmp_path / "m.onnx")
    model_file = onnx.load(onnx_file)
    # the shape first: rows are counted by another input
    inputs = list(model_file.graph.input)
    del model_file.graph.input[:]
    model_file.graph.input.extend(reversed(inputs))
    plan = fake_tensorrt.save_plan(tmp_path / "1" / "model.plan", model_file, EXPANDING)
    backends = Backends()
    target = "tests.serving_node.backends.tensorrt.hosted_backend:backend"
    backends.register(HostedBackend("tensorrt", target, {}, Caretaker()))
    model = await load_served_model(
        name="m",
        version=1,
        version_dir=plan.parent,
        config=parse_pbtxt('backend: "tensorrt"'),
        backends=backends,
        gpu_count=1,
    )
    assert [one.name for one in model.config.input] == ["s", "x"]
    assert model.config.max_batch_size == 4
    responses = await infer(model, expand(1, 3), expand(2, 3))
    assert [arrays(one)["y"].tolist() for one in responses] == [[[0] * 3], [[0] * 3, [1] * 3]]
    assert [arrays(one)["t"].tolist() for one in responses] == [[[3]], [[3], [3]]]
    await model.close()


async def test_shape_values_outside_of_the_profile_are_refused(load: Load, tmp_path: Path) -> None:
    model = await load(save_expand(tmp_path / "m.onnx"), EXPANDING)
    (response,) = await infer(model, expand(1, 6))
    assert response.error is not None
    assert response.error.code is ErrorCode.INVALID_ARG
    assert response.error.message == "The shape value at index 1 is expected to be in range from 1 to 5, Got: 6"
    await model.close()


async def test_shape_tensors_of_another_length_are_refused_like_other_shapes(load: Load, tmp_path: Path) -> None:
    model = await load(save_expand(tmp_path / "m.onnx"), EXPANDING)
    inputs = [expand(1, 1)[0], Tensor.from_numpy("s", np.array([1, 2], np.int64), "INT64")]
    with pytest.raises(InferenceError, match=r"unexpected shape for input 's' for model 'm'.*got \[2\]"):
        await infer(model, inputs)
    await model.close()


async def test_outputs_whose_shape_only_the_data_tell(load: Load, cuda: FakeCuda, tmp_path: Path) -> None:
    path = onnx_models.save(
        tmp_path / "m.onnx",
        [helper.make_node("NonZero", ["x"], ["y"])],
        [onnx_models.tensor("x", FLOAT, [6])],
        [onnx_models.tensor("y", TensorProto.INT64, [1, "told"])],
    )
    config = 'input { name: "x" dims: [6] } output { name: "y" dims: [1, -1] } optimization { cuda { graphs: true } }'
    model = await load(path, config=config)
    assert model.config.max_batch_size == 0
    for data, expected in (([0, 1, 0, 1, 0, 0], [[1, 3]]), ([0] * 6, [[]]), ([1] * 6, [[0, 1, 2, 3, 4, 5]])):
        (response,) = await infer(model, x(np.array(data)))
        assert arrays(response)["y"].tolist() == expected
    assert not cuda.graphs
    await model.close()


async def test_ragged_requests_are_joined(load: Load, tmp_path: Path) -> None:
    path = onnx_models.save(
        tmp_path / "m.onnx",
        [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Identity", ["counts"], ["z"])],
        [onnx_models.tensor("x", FLOAT, ["N"]), onnx_models.tensor("counts", FLOAT, ["R"])],
        [onnx_models.tensor("y", FLOAT, ["N"]), onnx_models.tensor("z", FLOAT, ["R"])],
    )
    config = """max_batch_size: 4 dynamic_batching { }
    input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true }
    batch_input { kind: BATCH_ELEMENT_COUNT target_name: "counts" data_type: TYPE_FP32 source_input: "x" }
    output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] }
    output { name: "z" data_type: TYPE_FP32 dims: [ 1 ] reshape: { shape: [] } }
    batch_output { target_name: "y" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "x" }"""
    model = await load(path, {"x": [[1], [4], [64]], "counts": [[1], [2], [4]]}, config=config)
    responses = await infer(model, x(np.array([[1, 2]])), x(np.array([[3, 4, 5]])))
    assert [arrays(one)["y"].tolist() for one in responses] == [[[1, 2]], [[3, 4, 5]]]
    assert [arrays(one)["z"].tolist() for one in responses] == [[[2]], [[3]]]
    assert model.statistics.execution_count == 1
    await model.close()


async def test_only_requested_outputs_are_copied(load: Load, cuda: FakeCuda, tmp_path: Path) -> None:
    path = onnx_models.save_add_sub(tmp_path / "m.onnx")
    model = await load(path, {name: [[1, 16], [2, 16], [4, 16]] for name in ("INPUT0", "INPUT1")})
    ones = np.ones((1, 16), np.int32)
    inputs = [Tensor.from_numpy(name, ones, "INT32") for name in ("INPUT0", "INPUT1")]
    before = cuda.copies.count("out")
    (response,) = await infer(model, inputs, outputs=("OUTPUT1",))
    assert list(arrays(response)) == ["OUTPUT1"]
    assert cuda.copies.count("out") - before == 1
    await model.close()


async def test_a_gpu_that_fails_fails_the_batch_and_not_the_model(load: Load, cuda: FakeCuda, tmp_path: Path) -> None:
    model = await load(onnx_models.save_identity(tmp_path / "m.onnx", FLOAT, ["N", 16]), UP_TO_8)
    for call in ("cudaMemcpyAsync", "cudaEventSynchronize"):
        cuda.fails = call
        (response,) = await infer(model, x(np.ones((1, 16))))
        assert response.error is not None
        assert response.error.message == (
            f"unable to run inference m_0: {call}: an illegal memory access was encountered"
        )
    cuda.fails = ""
    (response,) = await infer(model, x(np.full((1, 16), 3)))
    assert (arrays(response)["y"] == 3).all()
    await model.close()


async def test_a_gpu_without_room_refuses_the_load_and_keeps_nothing(
    load: Load, cuda: FakeCuda, tmp_path: Path
) -> None:
    cuda.limit = 600
    with pytest.raises(InferenceError, match="m_0 cannot be set up on GPU 0: cudaMalloc: out of memory"):
        await load(onnx_models.save_identity(tmp_path / "m.onnx", FLOAT, ["N", 16]), UP_TO_8)


async def test_memory_is_taken_for_the_batches_that_the_config_allows(
    load: Load, cuda: FakeCuda, tmp_path: Path
) -> None:
    model = await load(
        onnx_models.save_identity(tmp_path / "m.onnx", FLOAT, ["N", 16]), UP_TO_8, config="max_batch_size: 2"
    )
    assert sorted(len(one) for one in cuda.device_memory.values()) == [2 * 16 * 4] * 2
    await model.close()


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            "max_batch_size: 9",
            "autofill failed for model 'm': configuration specified max-batch 9 but TensorRT engine only supports"
            " max-batch 8",
        ),
        (
            'input { name: "x" data_type: TYPE_INT32 dims: [16] }',
            "unexpected datatype TYPE_FP32 for inference input 'x', expecting TYPE_INT32 for m_0",
        ),
        ('input { name: "q" dims: [16] }', "unexpected inference input 'q', allowed inputs are: x"),
        (
            'input { name: "x" data_type: TYPE_FP32 dims: [8] }',
            "model 'm', tensor 'x': the model expects 2 dimensions (shape [-1,16]) but the model configuration"
            " specifies 2 dimensions (an initial batch dimension because max_batch_size > 0 followed by the explicit"
            " tensor shape, making complete shape [-1,8])",
        ),
        (
            'input { name: "x" data_type: TYPE_FP32 dims: [16] is_shape_tensor: true }',
            "input 'x' for model 'm' is incorrectly marked as a shape tensor in the model configuration.",
        ),
        (
            'input { name: "x" dims: [16] } output { name: "y" dims: [-1, 16] }',
            "unable to autofill for 'm', model tensor configurations are contradicting each other in terms of whether"
            " batching is supported",
        ),
        ("instance_group { kind: KIND_CPU }", "unable to load model 'm', TensorRT backend supports only GPU device"),
        (
            'parameters { key: "execution_context_allocation_strategy" value { string_value: "LAZY" } }',
            "Invalid value for 'execution_context_allocation_strategy': 'LAZY' for model instance 'm'. Supported values"
            " are 'STATIC' and 'ON_PROFILE_CHANGE'.",
        ),
        (
            "instance_group { kind: KIND_GPU secondary_devices { kind: KIND_NVDLA } }",
            "secondary devices (NVDLA) are not served",
        ),
    ],
)
async def test_configs_that_contradict_the_engine_are_refused_in_one_sentence(
    load: Load, tmp_path: Path, config: str, text: str
) -> None:
    with pytest.raises(InferenceError) as caught:
        await load(onnx_models.save_identity(tmp_path / "m.onnx", FLOAT, ["N", 16]), UP_TO_8, config=config)
    assert caught.value.message == text


async def test_dimensions_without_room_for_rows_switch_batching_off(load: Load, tmp_path: Path) -> None:
    config = 'input { name: "x" data_type: TYPE_FP32 dims: [-1, 16] }'
    model = await load(onnx_models.save_identity(tmp_path / "m.onnx", FLOAT, ["N", 16]), UP_TO_8, config=config)
    assert model.config.max_batch_size == 0
    assert not model.config.HasField("dynamic_batching")
    (response,) = await infer(model, x(np.ones((5, 16))))
    assert arrays(response)["y"].shape == (5, 16)
    await model.close()


async def test_the_plan_for_the_compute_capability_is_preferred(cuda: FakeCuda, tmp_path: Path) -> None:
    narrow = onnx.load(onnx_models.save_identity(tmp_path / "a.onnx", FLOAT, ["N", 1]))
    wide = onnx.load(onnx_models.save_identity(tmp_path / "b.onnx", FLOAT, ["N", 2]))
    folder = tmp_path / "1"
    fake_tensorrt.save_plan(folder / "model.plan", narrow, {"x": [[1, 1]] * 3})
    fake_tensorrt.save_plan(folder / "hopper.plan", wide, {"x": [[1, 2]] * 3})
    backends = Backends()
    backends.register(TensorRtBackend(fake_tensorrt, cuda, {}))
    config = parse_pbtxt('backend: "tensorrt" cc_model_filenames { key: "9.0" value: "hopper.plan" }')
    model = await load_served_model(
        name="m", version=1, version_dir=folder, config=config, backends=backends, gpu_count=1
    )
    assert list(model.config.input[0].dims) == [2]
    await model.close()


@pytest.mark.parametrize(
    ("content", "options", "text"),
    [
        (b"", {}, "'model.plan' is empty"),
        (b"PK\x03\x04 a zip", {}, "'model.plan' is not a TensorRT engine (truncated or another format)"),
        (
            fake_tensorrt.plan_head("8.6.1.6") + b"{}",
            {},
            "'model.plan' was built by TensorRT 8.6.1.6 and this node runs TensorRT 11.4.0.106: build it again on this"
            " node, or as a version-compatible engine",
        ),
        (
            fake_tensorrt.plan_head() + b'{"host_code": true}',
            {},
            "'model.plan' is a version-compatible engine, which brings a runtime of its own: start the node with"
            " --backend-config=tensorrt,version-compatible=true to allow it",
        ),
    ],
)
async def test_files_that_are_no_engine_of_this_node_are_refused_in_one_sentence(
    cuda: FakeCuda, tmp_path: Path, content: bytes, options: dict[str, str], text: str
) -> None:
    path = tmp_path / "1" / "model.plan"
    path.parent.mkdir()
    path.write_bytes(content)
    backends = Backends()
    backends.register(TensorRtBackend(fake_tensorrt, cuda, options))
    with pytest.raises(InferenceError) as caught:
        await load_served_model(
            name="m",
            version=1,
            version_dir=path.parent,
            config=parse_pbtxt('backend: "tensorrt"'),
            backends=backends,
            gpu_count=1,
        )
    assert caught.value.message == text


async def test_version_compatible_engines_are_opened_when_the_node_allows_them(load: Load, tmp_path: Path) -> None:
    path = onnx_models.save_identity(tmp_path / "m.onnx", FLOAT, ["N", 16])
    model = await load(path, UP_TO_8, options={"version-compatible": "true", "coalesce-request-input": "1"})
    assert model.config.max_batch_size == 8
    await model.close()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"version-compatible": "maybe"}, "--backend-config=tensorrt,version-compatible must be true or false"),
        ({"coalesce-request-input": "2"}, "--backend-config=tensorrt,coalesce-request-input must be true or false"),
        ({"plugins": "/x.so"}, "plugin libraries are code"),
    ],
)
def test_options_are_checked(options: dict[str, str], text: str) -> None:
    with pytest.raises(InferenceError, match=text):
        TensorRtBackend(fake_tensorrt, FakeCuda(), options)


def test_the_backend_is_made_of_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", fake_tensorrt)
    monkeypatch.setattr("serving_node.backends.tensorrt.backend.cudart", FakeCuda)
    assert isinstance(Backends().get("tensorrt"), TensorRtBackend)

    def missing() -> None:
        raise CudaError("the CUDA runtime (libcudart.so.13) is not installed")

    monkeypatch.setattr("serving_node.backends.tensorrt.backend.cudart", missing)
    with pytest.raises(InferenceError) as caught:
        Backends().get("tensorrt")
    assert caught.value.message == (
        "backend 'tensorrt' is not installed on this node: the CUDA runtime (libcudart.so.13) is not installed"
    )


def test_a_node_without_tensorrt_says_so() -> None:
    if importlib.util.find_spec("tensorrt") is not None:
        pytest.skip("TensorRT is installed here")
    with pytest.raises(InferenceError, match=r"^backend 'tensorrt' is not installed on this node: ") as caught:
        Backends().get("tensorrt")
    assert caught.value.code is ErrorCode.UNSUPPORTED
