"""Padding: requests of different lengths share a batch, and each gets the answer that it would get alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from serving_node.contract.model_config import parse_pbtxt
from serving_node.contract.model_config.padding import MadeInput, PaddingRule, padding_rules
from serving_node.core.backend import InstanceEvents
from serving_node.core.errors import InferenceError
from serving_node.core.execution import Execution
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.core.tensor import Tensor
from serving_node.scheduling.io_rules import IoRules
from serving_node.scheduling.padding import Padder, PaddingInstance, PaddingLoopInstance, padding
from tests.serving_node import onnx_models
from tests.serving_node.backends.model_calls import arrays, infer, load
from tests.serving_node.scheduling.test_loop_instances import Played

CONFIG = """
name: "m" backend: "onnxruntime" max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 200000 %s }
input { name: "ids" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "total" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "each" data_type: TYPE_FP32 dims: [ -1 ] }
"""


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "flotilla.{key}" value {{ string_value: "{value}" }} }}'


PADDED = (
    parameter("padding.ids", "0")
    + parameter("padding_value.ids", "7")
    + parameter("padding_multiple.ids", "4")
    + parameter("padding_mask.ids", "mask:FP32")
    + parameter("padding_lengths.ids", "lengths:INT32")
    + parameter("padding_outputs.ids", "each")
)


def request(identity: int, array: np.ndarray, name: str = "ids") -> InferenceRequest:
    tensor = Tensor.from_numpy(name, array.astype(np.float32), "FP32")
    made = InferenceRequest("m", "", [tensor], lambda response: None, str(identity))
    made.batch_size = array.shape[0]
    return made


class MaskAware:
    """Computes on a batch as one array, and looks only at what the mask says is there."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []

    def execute(self, execution: Execution) -> None:
        inputs = [{tensor.name: tensor.as_numpy() for tensor in one.inputs} for one in execution.requests]
        ids, mask = (np.concatenate([one[name] for one in inputs]) for name in ("ids", "mask"))
        lengths = np.concatenate([one["lengths"] for one in inputs])
        self.shapes.append(ids.shape)
        assert (mask.sum(axis=1, keepdims=True) == lengths).all()
        total, each = (ids * mask).sum(axis=1, keepdims=True), np.cumsum(ids * mask, axis=1)
        start = 0
        for one in inputs:
            rows = slice(start, start + one["ids"].shape[0])
            execution.results.append(
                [Tensor.from_numpy("total", total[rows], "FP32"), Tensor.from_numpy("each", each[rows], "FP32")]
            )
            start = rows.stop

    def close(self) -> None:
        pass


@given(
    shapes=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9)), min_size=1, max_size=6),
    multiple=st.integers(1, 5),
    value=st.integers(-9, 9),
    seed=st.integers(0, 100),
)
@settings(max_examples=80, deadline=None)
def test_a_model_that_heeds_the_mask_answers_as_without_padding(
    shapes: list[tuple[int, int]], multiple: int, value: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    given_ = [generator.integers(-50, 50, shape).astype(np.float32) for shape in shapes]
    mask, lengths = MadeInput("mask", "FP32"), MadeInput("lengths", "INT32")
    rule = PaddingRule("ids", 0, float(value), multiple, mask, lengths, (("each", 0),))
    model = MaskAware()
    execution = Execution([request(place, one) for place, one in enumerate(given_)], sum(rows for rows, _ in shapes))

    PaddingInstance(model, Padder((rule,))).execute(execution)

    longest = max(length for _, length in shapes)
    assert model.shapes == [(sum(rows for rows, _ in shapes), -(-longest // multiple) * multiple)]
    for one, result in zip(given_, execution.results, strict=True):
        assert isinstance(result, list)
        total, each = (tensor.as_numpy() for tensor in result)
        np.testing.assert_array_equal(total, one.sum(axis=1, keepdims=True))
        np.testing.assert_array_equal(each, np.cumsum(one, axis=1))


@given(lengths=st.lists(st.integers(0, 6), min_size=1, max_size=5), axis=st.integers(0, 2), multiple=st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_cutting_gives_back_what_was_padded(lengths: list[int], axis: int, multiple: int) -> None:
    padder = Padder((PaddingRule("ids", axis, -1.0, multiple, outputs=(("ids", axis),)),))
    given_ = [np.random.default_rng(n).random((2, *(n if d == axis else 2 for d in range(3)))) for n in lengths]
    requests = [request(place, one) for place, one in enumerate(given_)]

    before = padder.pad(requests)

    assert len({one.inputs[0].shape for one in requests}) == 1
    for one, was, kept in zip(given_, before, requests, strict=True):
        (tensor,) = padder.cut(kept.inputs, was)
        np.testing.assert_array_equal(tensor.as_numpy(), one.astype(np.float32))


def test_a_request_of_the_common_length_is_not_copied() -> None:
    padder = Padder((PaddingRule("ids", 0),))
    long, short = request(0, np.ones((1, 5))), request(1, np.ones((1, 3)))
    (tensor,) = long.inputs
    padder.pad([long, short])
    assert long.inputs[0] is tensor
    assert short.inputs[0].as_numpy().tolist() == [[1, 1, 1, 0, 0]]


def test_only_the_padded_dimension_may_differ_within_a_batch() -> None:
    config = parse_pbtxt(
        'name: "m" backend: "python" max_batch_size: 8 dynamic_batching { }'
        ' input { name: "ids" data_type: TYPE_FP32 dims: [ -1, -1 ] }' + parameter("padding.ids", "0")
    )
    rules = IoRules(config)
    keys = []
    for shape in ((1, 3, 2), (1, 9, 2), (1, 3, 4)):
        asked = request(0, np.ones(shape))
        rules.check(asked)
        keys.append(asked.batch_key)
    assert keys[0] == keys[1] != keys[2]


def test_a_model_without_padding_keeps_its_instance() -> None:
    instance = MaskAware()
    assert padding(instance, IoRules(parse_pbtxt(CONFIG % ""))) is instance


def test_instances_of_the_loop_pad_and_cut_too() -> None:
    played = Played()
    instance = PaddingLoopInstance(played, Padder((PaddingRule("ids", 0, outputs=(("ids", 0),)),)))
    done: list[Execution] = []
    responded: list[InferenceResponse] = []
    events = InstanceEvents(done.append, lambda _, response: responded.append(response), lambda: None)
    instance.attach(events)
    short, long, apart = request(0, np.ones((1, 2))), request(1, np.ones((1, 4))), request(2, np.ones((1, 3)))

    instance.begin([Execution([short, long], 2), Execution([apart, request(3, np.ones((1, 6)))], 2)])
    assert [one.inputs[0].shape for one in (short, long, apart)] == [(1, 4), (1, 4), (1, 6)]
    played.finish()
    played.finish(apart=True)
    for final in (False, True):
        response = InferenceResponse("m", "1", outputs=list(apart.inputs), final=final)
        played.events.responded(apart, response)

    results = [result for result in done[0].results if isinstance(result, list)]
    assert [result[0].shape for result in results] == [(1, 2), (1, 4)]
    assert [response.outputs[0].shape for response in responded] == [(1, 3), (1, 3)]
    assert len(instance._begun) == 1, "only the request that was not answered yet"


def save_masked(path: Path) -> Path:
    float_ = TensorProto.FLOAT
    nodes = [
        helper.make_node("Mul", ["ids", "mask"], ["there"]),
        helper.make_node("ReduceSum", ["there", "one"], ["sum"], keepdims=1),
        helper.make_node("Cast", ["lengths"], ["long"], to=float_),
        helper.make_node("Add", ["sum", "long"], ["total"]),
        helper.make_node("Neg", ["ids"], ["each"]),
    ]
    inputs = [
        onnx_models.tensor("ids", float_, ["N", "L"]),
        onnx_models.tensor("mask", float_, ["N", "L"]),
        onnx_models.tensor("lengths", TensorProto.INT32, ["N", 1]),
    ]
    outputs = [onnx_models.tensor("total", float_, ["N", 1]), onnx_models.tensor("each", float_, ["N", "L"])]
    return onnx_models.save(path, nodes, inputs, outputs, {"one": np.array([1], np.int64)})


async def test_requests_of_different_lengths_share_a_batch_of_an_onnx_model(tmp_path: Path) -> None:
    path = save_masked(tmp_path / "1" / "model.onnx")
    model = await load(path.parent, CONFIG % "preferred_batch_size: 4" + PADDED)
    given_ = [np.array([[1, 2, 3]]), np.array([[4, 5, 6, 7, 8], [1, 1, 1, 1, 1]]), np.array([[9]])]

    responses = await infer(model, *(request(place, one).inputs for place, one in enumerate(given_)))

    for one, response in zip(given_, responses, strict=True):
        found = arrays(response)
        np.testing.assert_array_equal(found["total"], one.sum(axis=1, keepdims=True) + one.shape[1])
        np.testing.assert_array_equal(found["each"], -one)
    assert set(model.statistics.batches) == {4}
    assert [tensor.name for tensor in model.metadata.inputs] == ["ids"], "clients do not send what the node makes"
    await model.close()


async def test_auto_completion_leaves_out_what_the_node_makes(tmp_path: Path) -> None:
    path = save_masked(tmp_path / "1" / "model.onnx")
    config = 'name: "m" backend: "onnxruntime" max_batch_size: 8 dynamic_batching { }' + PADDED
    model = await load(path.parent, config)
    assert [tensor.name for tensor in model.config.input] == ["ids"]
    await model.close()


async def test_a_contradiction_is_refused_when_the_model_is_loaded(tmp_path: Path) -> None:
    path = save_masked(tmp_path / "1" / "model.onnx")
    with pytest.raises(InferenceError, match="names 'all', which is no output"):
        await load(path.parent, CONFIG % "" + PADDED.replace('"each"', '"all"'))


def test_rules_are_read_in_the_order_of_the_inputs() -> None:
    (rule,) = padding_rules(parse_pbtxt(CONFIG % "" + PADDED))
    mask, lengths = MadeInput("mask", "FP32"), MadeInput("lengths", "INT32")
    assert rule == PaddingRule("ids", 0, 7.0, 4, mask, lengths, (("each", 0),))
