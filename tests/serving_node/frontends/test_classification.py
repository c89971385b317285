"""Classes of outputs. The expected texts are those of a real Triton."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.metadata import OutputClasses
from serving_node.core.tensor import Tensor
from serving_node.frontends.classification import classify

LABELS = ("zero", "one", "", "three")
BATCHED = OutputClasses(has_rows=True, labels={"OUT": LABELS})
FLAT = OutputClasses(has_rows=False)


def classes(values: object, datatype: str, count: int, known: OutputClasses = BATCHED) -> tuple[object, list[str]]:
    tensor = Tensor.from_numpy("OUT", np.asarray(values), datatype)
    result = classify(tensor, count, known)
    assert result.datatype == "BYTES"
    return result.shape, [text.decode() for text in result.as_numpy().ravel()]


@pytest.mark.parametrize("datatype", ["UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"])
def test_integers_of_every_size(datatype: str) -> None:
    values = np.array([[1, 3, 2, 3, 0]], datatype.lower())
    assert classes(values, datatype, 3) == ((1, 3), ["3:1:one", "3:3:three", "2:2"])
    assert classes(values, datatype, 9) == ((1, 5), ["3:1:one", "3:3:three", "2:2", "1:0:zero", "0:4"])


def test_numbers_with_fractions_have_six_digits_of_them() -> None:
    values = np.array([[3e38, -3e38, 1.23456789, 1e-9, 16777217.0]], np.float32)
    shape, texts = classes(values, "FP32", 5)
    assert shape == (1, 5)
    assert texts[0] == "300000000549775575777803994281145270272.000000:0:zero" and texts[1:3] == [
        "16777216.000000:4",
        "1.234568:2",
    ]
    assert texts[3] == "0.000000:3:three" and texts[4].endswith(":1:one")
    assert classes(np.array([[0.5, 1e300]], np.float64), "FP64", 1)[1][0].endswith("000000:1:one")


def test_large_integers_are_compared_exactly() -> None:
    values = np.array([[2**64 - 2, 2**64 - 1, 1]], np.uint64)
    assert classes(values, "UINT64", 2)[1] == ["18446744073709551615:1:one", "18446744073709551614:0:zero"]
    low = np.array([[-(2**63), 2**63 - 1]], np.int64)
    assert classes(low, "INT64", 2)[1] == ["9223372036854775807:1:one", "-9223372036854775808:0:zero"]


def test_rows_are_classified_one_by_one_and_models_without_rows_as_a_whole() -> None:
    values = np.array([[[0, 1], [2, 3]], [[7, 6], [5, 4]]], np.int32)
    assert classes(values, "INT32", 2) == ((2, 2), ["3:3:three", "2:2", "7:0:zero", "6:1:one"])
    assert classes(values, "INT32", 2, FLAT) == ((2,), ["7:4", "6:5"])


def test_outputs_without_elements_and_without_rows() -> None:
    assert classes(np.zeros((1, 0), np.int32), "INT32", 2) == ((1, 0), [])
    assert classes(np.zeros((0, 3), np.int32), "INT32", 2) == ((0, 2), [])


@pytest.mark.parametrize("datatype", ["BOOL", "FP16", "BF16", "BYTES"])
def test_types_without_order_are_refused(datatype: str) -> None:
    with pytest.raises(InferenceError, match=f"due to unsupported type '{datatype}'") as caught:
        classify(Tensor("OUT", datatype, (1, 0), b""), 1, BATCHED)
    assert caught.value.code is ErrorCode.INVALID_ARG


def test_a_row_may_have_a_million_elements() -> None:
    classify(Tensor("OUT", "UINT8", (1_000_000,), bytes(1_000_000)), 1, FLAT)
    with pytest.raises(InferenceError, match="classification output tensor too large"):
        classify(Tensor("OUT", "UINT8", (1_000_001,), bytes(1_000_001)), 1, FLAT)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=40), st.integers(1, 50))
def test_the_largest_come_first_and_of_equal_ones_the_first(values: list[int], count: int) -> None:
    _, texts = classes(np.array(values, np.int64), "INT64", count, FLAT)
    expected = sorted(range(len(values)), key=lambda index: (-values[index], index))[:count]
    assert texts == [f"{values[index]}:{index}" for index in expected]
