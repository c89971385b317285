from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config import parse_pbtxt
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest, RequestedOutput
from serving_node.core.tensor import Tensor
from serving_node.scheduling.io_rules import IoRules

BATCHING = """
name: "m" backend: "identity" max_batch_size: 8
input { name: "A" data_type: TYPE_FP32 dims: 16 }
input { name: "B" data_type: TYPE_INT32 dims: -1 }
output { name: "Y" data_type: TYPE_FP32 dims: 16 }
"""
NOTE = (
    " NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each"
    " input shape. If you want to specify the full shape including the batch dim in your input dims config, try"
    " setting max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)
ID = "[request id: r] "


def fp32(name: str, *shape: int, size: int | None = None) -> Tensor:
    return Tensor(name, "FP32", shape, bytes(4 * int(np.prod(shape)) if size is None else size))


def int32(name: str, *shape: int) -> Tensor:
    return Tensor(name, "INT32", shape, bytes(4 * max(0, int(np.prod(shape)))))


def request(*inputs: Tensor, outputs: tuple[str, ...] = ()) -> InferenceRequest:
    wanted = [RequestedOutput(name) for name in outputs]
    return InferenceRequest("m", "", list(inputs), lambda response: None, "r", outputs=wanted)


def rules(text: str = BATCHING) -> IoRules:
    return IoRules(parse_pbtxt(text))


def test_good_request_gets_rows_and_config_order() -> None:
    asked = request(int32("B", 3, 5), fp32("A", 3, 16))
    rules().check(asked)
    assert asked.batch_size == 3
    assert [tensor.name for tensor in asked.inputs] == ["A", "B"]


def test_only_equal_variable_shapes_share_a_batch() -> None:
    asked = [request(fp32("A", rows, 16), int32("B", rows, length)) for rows, length in ((1, 5), (2, 5), (1, 6))]
    for one in asked:
        rules().check(one)
    assert asked[0].batch_key == asked[1].batch_key != asked[2].batch_key


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        ((fp32("A", 9, 16), int32("B", 9, 1)), ID + "inference request batch-size must be <= 8 for 'm'"),
        ((fp32("A", 16), int32("B", 16, 1)), ID + "inference request batch-size must be <= 8 for 'm'"),
        ((fp32("A", 2, 16), int32("B", 1, 1)), ID + "input 'B' batch size does not match other inputs for 'm'"),
        (
            (fp32("A", -1, 16, size=0), int32("B", 1, 1)),
            ID + "input 'A' batch size does not match other inputs for 'm'",
        ),
        ((fp32("A"), int32("B", 1, 1)), ID + "input 'A' has no shape but model requires batch dimension for 'm'"),
        (
            (int32("A", 1, 16), int32("B", 1, 1)),
            ID + "inference input 'A' data-type is 'INT32', but model 'm' expects 'FP32'",
        ),
        (
            (fp32("A", 1, 17), int32("B", 1, 1)),
            ID + "unexpected shape for input 'A' for model 'm'. Expected [-1,16], got [1,17]." + NOTE,
        ),
        (
            (fp32("A", 1, 16), int32("B", 1, -1)),
            ID + "All input dimensions should be specified for input 'B' for model 'm', got [1,-1]",
        ),
        (
            (fp32("A", 1, 16, size=60), int32("B", 1, 1)),
            ID + "input byte size mismatch for input 'A' for model 'm'. Expected 64, got 60",
        ),
        (
            (fp32("A", 1, 16),),
            ID + "expected 2 inputs but got 1 inputs for model 'm'. Got input(s) ['A'], but missing required input(s)"
            " ['B']. Please provide all required input(s).",
        ),
        (
            (fp32("A", 1, 16), int32("B", 1, 1), int32("C", 1, 1)),
            ID + "expected 2 inputs but got 3 inputs for model 'm'. Got input(s) ['A','B','C']."
            " Please provide all required input(s).",
        ),
        ((fp32("A", 1, 16), int32("C", 1, 1)), "unexpected inference input 'C' for model 'm'"),
        ((fp32("A", 1, 16), fp32("A", 1, 16)), ID + "input 'A' already exists in request"),
    ],
)
def test_bad_input_gets_triton_sentence(inputs: tuple[Tensor, ...], sentence: str) -> None:
    with pytest.raises(InferenceError) as caught:
        rules().check(request(*inputs))
    assert caught.value.code is ErrorCode.INVALID_ARG
    assert caught.value.message == sentence


def test_bad_output_gets_triton_sentence() -> None:
    with pytest.raises(InferenceError, match="unexpected inference output 'Z' for model 'm'"):
        rules().check(request(fp32("A", 1, 16), int32("B", 1, 1), outputs=("Y", "Z")))


def test_an_output_asked_for_twice_is_one_output_and_the_first_wish_counts() -> None:
    asked = request(fp32("A", 1, 16), int32("B", 1, 1))
    asked.outputs = [RequestedOutput("Y", {"classification": 1}), RequestedOutput("Y")]
    rules().check(asked)
    assert [(output.name, output.parameters) for output in asked.outputs] == [("Y", {"classification": 1})]


def test_model_without_batching_takes_the_shape_as_it_is() -> None:
    plain = rules('name: "m" input { name: "A" data_type: TYPE_FP32 dims: [2, 3] }')
    asked = request(fp32("A", 2, 3))
    plain.check(asked)
    assert asked.batch_size == 1
    with pytest.raises(InferenceError, match=r"Expected \[2,3\], got \[1,2,3\]\. $"):
        plain.check(request(fp32("A", 1, 2, 3)))


def test_optional_inputs_may_be_missing_but_then_batch_apart() -> None:
    optional = rules(
        'name: "m" max_batch_size: 4 input { name: "A" data_type: TYPE_FP32 dims: 1 }'
        ' input { name: "B" data_type: TYPE_INT32 dims: 1 optional: true }'
        ' output { name: "Y" dims: 1 data_type: TYPE_FP32 }'
    )
    both, one = request(fp32("A", 1, 1), int32("B", 1, 1)), request(fp32("A", 1, 1))
    optional.check(both)
    optional.check(one)
    assert both.batch_key != one.batch_key
    with pytest.raises(InferenceError, match="expected number of inputs between 1 and 2 but got 0 inputs"):
        optional.check(request())


def test_reshape_translates_variable_dimensions() -> None:
    reshaped = rules(
        'name: "m" max_batch_size: 4'
        ' input { name: "A" data_type: TYPE_FP32 dims: [-1, 2] reshape { shape: [2, -1] } }'
        ' input { name: "S" data_type: TYPE_INT32 dims: 1 reshape { } }'
        ' output { name: "Y" dims: 1 data_type: TYPE_FP32 reshape { } }'
    )
    asked = request(fp32("A", 3, 5, 2), int32("S", 3, 1))
    reshaped.check(asked)
    assert [tensor.shape for tensor in asked.inputs] == [(3, 2, 5), (3,)]
    assert reshaped.outputs[0].to_client((3,), True) == (3, 1)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (
            b"\x01\x00\x00",
            ID + "incomplete string length indicator for inference input 'S' for model 'm', expecting 4 bytes but only"
            " 3 bytes available. Please make sure the string length indicator is in one buffer.",
        ),
        (
            b"\x00\x00\x00\x00\x05\x00\x00\x00abc",
            "incomplete string data for inference input 'S', expecting string of length 5 but only 3 bytes available",
        ),
        (b"\x05\x00\x00\x00abc", ID + "expected 2 string elements for inference input 'S' for model 'm', got 1"),
        (bytes(4), ID + "expected 2 string elements for inference input 'S' for model 'm', got 1"),
        (bytes(12), ID + "unexpected number of string elements 3 for inference input 'S' for model 'm', expecting 2"),
    ],
)
def test_malformed_strings_are_refused(data: bytes, sentence: str) -> None:
    strings = rules('name: "m" input { name: "S" data_type: TYPE_STRING dims: 2 }')
    with pytest.raises(InferenceError) as caught:
        strings.check(request(Tensor("S", "BYTES", (2,), data)))
    assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_ARG, sentence)


def test_many_strings_are_left_to_whoever_decodes_them() -> None:
    strings = rules('name: "m" input { name: "S" data_type: TYPE_STRING dims: -1 }')
    strings.check(request(Tensor("S", "BYTES", (5000,), b"no strings at all")))


def test_a_shape_beyond_all_memory_is_refused_by_its_own_sentence() -> None:
    free = rules('name: "m" input { name: "A" data_type: TYPE_FP32 dims: [-1, -1] }')
    with pytest.raises(
        InferenceError, match=r"causes total element count to exceed maximum size of 9223372036854775807"
    ):
        free.check(request(fp32("A", 2**40, 2**40, size=4)))


TENSORS = st.builds(
    Tensor,
    name=st.sampled_from(("A", "B", "C")),
    datatype=st.sampled_from(("FP32", "FP32", "INT32")),
    shape=st.lists(st.sampled_from((-1, 0, 1, 2, 3, 9)), max_size=3).map(tuple),
    data=st.sampled_from((0, 8, 12, 24, 36)).map(bytes),
)


@given(first=st.lists(TENSORS, max_size=3), rows=st.integers(0, 4))
def test_the_short_way_accepts_nothing_that_the_long_way_refuses(first: list[Tensor], rows: int) -> None:
    text = (
        'name: "m" max_batch_size: 3 input { name: "A" data_type: TYPE_FP32 dims: 2 }'
        ' input { name: "B" data_type: TYPE_FP32 dims: 3 }'
    )
    good = [fp32("A", rows, 2), fp32("B", rows, 3)]
    for inputs in (first, good, [*good[:1], *first], [*first, *good[1:]]):
        short, long = rules(text), rules(text)
        long._good = None
        outcomes = []
        for way in (short, long):
            asked = request(*inputs)
            try:
                way.check(asked)
                outcomes.append((asked.batch_size, asked.batch_key, [tensor.name for tensor in asked.inputs]))
            except InferenceError as error:
                outcomes.append(error.message)
        assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    ("tensor", "sentence"),
    [
        (fp32("A", 0, 16), "input byte size mismatch for input 'A' for model 'm'. Expected 64, got 0"),
        (Tensor("S", "BYTES", (0, 2), b""), "expected 2 string elements for inference input 'S' for model 'm', got 0"),
    ],
)
def test_a_batch_needs_rows(tensor: Tensor, sentence: str) -> None:
    kind = "TYPE_STRING" if tensor.datatype == "BYTES" else "TYPE_FP32"
    one = rules(
        f'name: "m" max_batch_size: 8 input {{ name: "{tensor.name}" data_type: {kind} dims: {tensor.shape[1]} }}'
    )
    with pytest.raises(InferenceError) as caught:
        one.check(request(tensor))
    assert caught.value.message == ID + sentence


@pytest.mark.parametrize("backend", ["python", "onnxruntime"])
def test_ragged_inputs_share_batches(backend: str) -> None:
    config = f'name: "m" backend: "{backend}" max_batch_size: 8 input {{ name: "A" data_type: TYPE_FP32 dims: -1 %s }}'
    ragged, strict = rules(config % "allow_ragged_batch: true"), rules(config % "")
    for one, expected in ((ragged, True), (strict, False)):
        keys = []
        for width in (3, 4):
            asked = request(fp32("A", 1, width))
            one.check(asked)
            keys.append(asked.batch_key)
        assert (keys[0] == keys[1]) is expected


def test_ragged_inputs_beside_optional_ones_are_told_apart_by_what_is_there() -> None:
    one = rules(
        'name: "m" backend: "python" max_batch_size: 8'
        ' input { name: "A" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }'
        ' input { name: "B" data_type: TYPE_FP32 dims: 1 optional: true }'
    )
    keys = []
    for inputs in ([fp32("A", 1, 3)], [fp32("A", 1, 5)], [fp32("A", 1, 3), fp32("B", 1, 1)]):
        asked = request(*inputs)
        one.check(asked)
        keys.append(asked.batch_key)
    assert keys[0] == keys[1] != keys[2]
