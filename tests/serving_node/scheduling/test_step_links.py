"""Tensors between steps: names, rows, sequences."""

from __future__ import annotations

import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config import parse_pbtxt
from serving_node.core.errors import InferenceError
from serving_node.core.request import Parameter
from serving_node.core.tensor import Tensor
from serving_node.scheduling.step_links import Place, Side, pipeline, place_of


@pytest.mark.parametrize(
    ("has_rows", "dims", "rows", "shape", "seen"),
    [
        (True, (4,), 2, (2, 4), (2, 4)),
        (False, (4,), 0, (4,), (4,)),
        (True, (4,), 0, (4,), (1, 4)),
        (True, (-1,), 0, (7,), (1, 7)),
        (True, (4,), 0, (3, 4), (3, 4)),  # taken for rows already
        (False, (4,), 1, (1, 4), (4,)),
        (False, (4,), 2, (2, 4), (2, 4)),  # the model will refuse it
        (False, (-1, 4), 1, (1, 4), (1, 4)),
        (False, (-1, 4), 3, (3, 4), (3, 4)),
    ],
)
def test_only_a_side_that_batches_differently_changes_the_shape(
    has_rows: bool, dims: tuple[int, ...], rows: int, shape: tuple[int, ...], seen: tuple[int, ...]
) -> None:
    data = memoryview(bytes(48))
    fitted = Side(has_rows, {"IN": dims}).fit("IN", Tensor("OUT", "INT32", shape, data), rows)
    assert (fitted.name, fitted.shape) == ("IN", seen)
    assert fitted.data is data


@pytest.mark.parametrize(
    ("parameters", "place"),
    [
        ({}, None),
        ({"other": 1}, None),
        ({"sequence_id": 7}, Place(7)),
        ({"sequence_id": "seven", "sequence_end": True}, Place("seven", end=True)),
        ({"sequence_start": True}, Place(0, start=True)),
    ],
)
def test_a_response_may_say_which_sequence_follows(parameters: dict[str, Parameter], place: Place | None) -> None:
    assert place_of(parameters) == place


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"sequence_id": 1.5}, "'sequence_id' to be TRITONSERVER_PARAMETER_INT or TRITONSERVER_PARAMETER_STRING"),
        ({"sequence_id": True}, "'sequence_id' to be"),
        ({"sequence_start": "yes"}, "'sequence_start' to be TRITONSERVER_PARAMETER_BOOL"),
        ({"sequence_end": 1}, "'sequence_end' to be TRITONSERVER_PARAMETER_BOOL"),
    ],
)
def test_sequence_parameters_have_types(parameters: dict[str, Parameter], text: str) -> None:
    with pytest.raises(InferenceError, match=text) as caught:
        place_of(parameters)
    assert caught.value.code is ErrorCode.INVALID_ARG


def test_a_pipeline_knows_models_versions_and_which_of_them_multiply() -> None:
    config = parse_pbtxt(
        'name: "e" platform: "ensemble" input { name: "A" data_type: TYPE_INT32 dims: 1 }'
        ' output { name: "Y" data_type: TYPE_INT32 dims: 1 } output { name: "Z" data_type: TYPE_INT32 dims: 1 }'
        ' ensemble_scheduling { step { model_name: "m" model_version: -1 input_map { key: "i" value: "A" }'
        ' output_map { key: "o" value: "Y" } } step { model_name: "n" model_version: 3 model_namespace: "here"'
        ' input_map { key: "i" value: "Y" } output_map { key: "o" value: "Z" } } }'
    )
    one = parse_pbtxt('max_batch_size: 4 input { name: "i" data_type: TYPE_INT32 dims: 1 }')
    two = parse_pbtxt('model_transaction_policy { decoupled: true } input { name: "i" data_type: TYPE_INT32 dims: 1 }')
    made = pipeline(config, [one, two])
    assert [(link.model, link.version, link.side.has_rows) for link in made.links] == [
        ("m", "", True),
        ("here::n", "3", False),
    ]
    assert made.graph.is_decoupled
    assert made.outputs == ("Z", "Y")
