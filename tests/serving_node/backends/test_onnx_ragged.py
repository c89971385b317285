"""Ragged batches on ONNX Runtime: models that get one long tensor, and facts about the batch beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.tensor import Tensor
from tests.serving_node import onnx_models
from tests.serving_node.backends.model_calls import arrays, infer, load

CONFIG = """
backend: "onnxruntime" max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 200000 %s }
input { name: "x" data_type: TYPE_FP32 dims: [ %s ] allow_ragged_batch: true }
batch_input { kind: %s target_name: "fact" data_type: TYPE_FP32 source_input: "x" }
"""
ROWS = 'input { name: "rows" data_type: TYPE_FP32 dims: [ 1 ] }'
ITEM = 'output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] }'
SCATTERED = 'batch_output { target_name: "y" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "x" }'


def tensor(values: np.ndarray) -> Tensor:
    return Tensor.from_numpy("x", values.astype(np.float32), "FP32")


def save_facts(path: Path, rank: int) -> Path:
    """``y`` is the whole fact, flattened, for each row of the batch; of ``x`` and ``rows`` only the shapes count."""
    float_ = TensorProto.FLOAT
    nodes = [
        helper.make_node("ReduceSum", ["x", "axes"], ["total"], keepdims=1),
        helper.make_node("Mul", ["total", "zero"], ["nothing"]),
        helper.make_node("Reshape", ["fact", "line"], ["flat"]),
        helper.make_node("Add", ["flat", "nothing"], ["same"]),
        helper.make_node("Mul", ["rows", "zero"], ["column"]),
        helper.make_node("Add", ["column", "same"], ["y"]),
    ]
    weights = {"axes": np.array([0], np.int64), "zero": np.zeros(1, np.float32), "line": np.array([-1], np.int64)}
    inputs = [
        onnx_models.tensor("x", float_, ["N"]),
        onnx_models.tensor("rows", float_, ["R", 1]),
        onnx_models.tensor("fact", float_, ["F", "D"][:rank]),
    ]
    return onnx_models.save(path, nodes, inputs, [onnx_models.tensor("y", float_, ["R", "K"])], weights)


# Two requests: one row of two elements, and two rows of three.
REQUESTS = (np.ones((1, 2)), np.ones((2, 3)))


@pytest.mark.parametrize(
    ("kind", "rank", "fact"),
    [
        ("BATCH_ELEMENT_COUNT", 1, [2, 6]),
        ("BATCH_ACCUMULATED_ELEMENT_COUNT", 1, [2, 8]),
        ("BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", 1, [0, 2, 8]),
        ("BATCH_MAX_ELEMENT_COUNT_AS_SHAPE", 1, [0] * 6),
        ("BATCH_ITEM_SHAPE", 2, [2, 3, 3]),
        ("BATCH_ITEM_SHAPE_FLATTEN", 1, [2, 3, 3]),
    ],
)
async def test_models_are_told_the_shapes_of_a_batch(tmp_path: Path, kind: str, rank: int, fact: list[int]) -> None:
    path = save_facts(tmp_path / "1" / "model.onnx", rank)
    model = await load(path.parent, CONFIG % ("preferred_batch_size: 3", "-1", kind) + ROWS + ITEM)

    rows = [Tensor.from_numpy("rows", np.ones((len(values), 1), np.float32), "FP32") for values in REQUESTS]
    responses = await infer(model, *([tensor(values), ones] for values, ones in zip(REQUESTS, rows, strict=True)))

    found = [arrays(response)["y"].tolist() for response in responses]
    assert found == [[fact], [fact, fact]]
    assert {size: count.compute_infer.count for size, count in model.statistics.batches.items()} == {3: 1}
    await model.close()


def save_scatter(path: Path, scale: int = 2) -> Path:
    """``y`` = 2 ``x``, element by element; ``fact`` is used for nothing. A ``scale`` of 0 loses all elements."""
    nodes = [
        helper.make_node("ReduceSum", ["fact", "axes"], ["total"], keepdims=1),
        helper.make_node("Mul", ["total", "zero"], ["nothing"]),
        helper.make_node("Mul", ["x", "two"], ["twice"]),
        helper.make_node("Add", ["twice", "nothing"], ["y" if scale else "kept"]),
    ]
    weights = {
        "axes": np.array([0], np.int64),
        "zero": np.zeros(1, np.float32),
        "two": np.full(1, 2, np.float32),
    }
    if not scale:
        nodes.append(helper.make_node("Slice", ["kept", "axes", "axes"], ["y"]))
    inputs = [onnx_models.tensor(name, TensorProto.FLOAT, [dim]) for name, dim in (("x", "N"), ("fact", "F"))]
    return onnx_models.save(path, nodes, inputs, [onnx_models.tensor("y", TensorProto.FLOAT, ["M"])], weights)


async def test_outputs_are_scattered_with_the_shapes_of_the_inputs(tmp_path: Path) -> None:
    path = save_scatter(tmp_path / "1" / "model.onnx")
    config = CONFIG % ("preferred_batch_size: 4", "-1, 2", "BATCH_ELEMENT_COUNT")
    output = 'output { name: "y" data_type: TYPE_FP32 dims: [ -1, 2 ] }'
    model = await load(path.parent, f"{config} {output} {SCATTERED}")
    given = [np.arange(2).reshape(1, 1, 2), np.arange(12).reshape(2, 3, 2), np.arange(8).reshape(1, 4, 2)]

    responses = await infer(model, *([tensor(values)] for values in given))

    for values, response in zip(given, responses, strict=True):
        np.testing.assert_array_equal(arrays(response)["y"], 2 * values)
    assert set(model.statistics.batches) == {4}
    await model.close()


async def test_an_output_that_cannot_be_scattered_fails_its_batch_with_a_sentence(tmp_path: Path) -> None:
    path = save_scatter(tmp_path / "1" / "model.onnx", scale=0)
    model = await load(path.parent, CONFIG % ("", "-1", "BATCH_ELEMENT_COUNT") + ITEM + SCATTERED)
    (response,) = await infer(model, [tensor(np.ones((2, 3)))])
    assert response.error is not None and response.error.code is ErrorCode.INTERNAL
    assert response.error.message == "output 'y' has 0 elements, expected 6: as many as input 'x' of the batch"
    await model.close()


async def test_a_ragged_input_needs_a_model_of_one_dimension(tmp_path: Path) -> None:
    path = onnx_models.save(
        tmp_path / "1" / "model.onnx",
        [helper.make_node("Identity", ["x"], ["y"])],
        [onnx_models.tensor("x", TensorProto.FLOAT, ["N", "L"])],
        [onnx_models.tensor("y", TensorProto.FLOAT, ["N", "L"])],
    )
    config = CONFIG[: CONFIG.index("batch_input")] % ("", "-1") + ITEM
    with pytest.raises(InferenceError) as caught:
        await load(path.parent, config)
    assert caught.value.message == (
        "model 'm', tensor 'x': requests of different shapes are joined into one dimension, so the model must take or"
        " give the shape [-1]; but shape expected by the model is [-1,-1]"
    )
