"""Padding in a config: what contradicts itself is refused with a sentence."""

from __future__ import annotations

import pytest

from serving_node.contract.model_config import parse_pbtxt, problems

CONFIG = """
name: "m" backend: "onnxruntime" max_batch_size: %d dynamic_batching { }
input { name: "ids" data_type: TYPE_INT8 dims: [ -1, 4 ] }
input { name: "text" data_type: TYPE_STRING dims: [ -1 ] }
input { name: "flat" data_type: TYPE_FP32 dims: [ -1 ] reshape { shape: [ -1, 1 ] } }
input { name: "rag" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true }
output { name: "y" data_type: TYPE_FP32 dims: [ -1, 2 ] }
"""
ON = {"padding.ids": "0"}


def complaints(values: dict[str, str], size: int = 8) -> list[str]:
    keys = "".join(
        f'parameters {{ key: "flotilla.{key}" value {{ string_value: "{value}" }} }}' for key, value in values.items()
    )
    return [problem.message for problem in problems(parse_pbtxt(CONFIG % size + keys))]


@pytest.mark.parametrize(
    "values",
    [
        ON,
        ON | {"padding_value.ids": "-128", "padding_multiple.ids": "64"},
        ON | {"padding_mask.ids": "mask", "padding_lengths.ids": "lengths: TYPE_INT32"},
        ON | {"padding_outputs.ids": "y, y:0"},
    ],
)
def test_padding_that_makes_sense(values: dict[str, str]) -> None:
    assert complaints(values) == []


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"padding.ids": "1"}, "padding.ids' must be a variable dimension of input 'ids', whose dims are [-1, 4]"),
        ({"padding.ids": "9"}, "padding.ids' must be a variable dimension of input 'ids', whose dims are [-1, 4]"),
        ({"padding.ids": "-1"}, "padding.ids' must be at least 0, got -1"),
        ({"padding.text": "0"}, "padding.text' cannot pad an input of type TYPE_STRING"),
        ({"padding.flat": "0"}, "padding.flat' cannot pad input 'flat', which is reshaped"),
        ({"padding.rag": "0"}, "padding.rag' cannot pad input 'rag', which allows ragged batches"),
        ({"padding_value.ids": "1"}, "padding_value.ids' means nothing without 'flotilla.padding.ids'"),
        (ON | {"padding_value.ids": "128"}, "padding_value.ids' is no TYPE_INT8, the type of 'ids'"),
        (ON | {"padding_value.ids": "0.5"}, "padding_value.ids' is no TYPE_INT8, the type of 'ids'"),
        (ON | {"padding_mask.ids": "ids"}, "padding_mask.ids' names 'ids', which is an input already"),
        (
            ON | {"padding_mask.ids": "made", "padding_lengths.ids": "made"},
            "padding_lengths.ids' names 'made', which is an input already",
        ),
        (
            ON | {"padding_mask.ids": "mask:STRING"},
            "padding_mask.ids' must be a name, or NAME:TYPE with one of BOOL, INT32, INT64, FP16, FP32,"
            " got 'mask:STRING'",
        ),
        (ON | {"padding_outputs.ids": "z"}, "padding_outputs.ids' names 'z', which is no output"),
        (
            ON | {"padding_outputs.ids": "y:1"},
            "padding_outputs.ids' must cut a variable dimension of output 'y', whose dims are [-1, 2]",
        ),
        (
            ON | {"padding_outputs.ids": "y:first"},
            "padding_outputs.ids' must be names of outputs, each alone or as NAME:AXIS, got 'y:first'",
        ),
    ],
)
def test_padding_that_does_not(values: dict[str, str], sentence: str) -> None:
    assert complaints(values) == [f"parameter 'flotilla.{sentence}"]


def test_padding_needs_batches() -> None:
    assert "parameter 'flotilla.padding.ids' needs a 'max_batch_size' of at least 1" in complaints(ON, size=0)
