from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.core.errors import InferenceError
from serving_node.core.tensor import Tensor, decode_bytes_elements


@given(st.lists(st.binary(max_size=9), max_size=9))
def test_strings_survive_the_way_there_and_back(elements: list[bytes]) -> None:
    array = np.empty((len(elements), 1), np.object_)
    array[:, 0] = elements
    tensor = Tensor.from_numpy("s", array, "BYTES")
    assert tensor.as_numpy().tolist() == array.tolist()


def test_text_becomes_utf8() -> None:
    assert Tensor.from_numpy("s", np.array(["é"], np.object_), "BYTES").data == b"\x02\x00\x00\x00\xc3\xa9"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"\x01\x00", "incomplete string length indicator for inference input 's'"),
        (b"\x02\x00\x00\x00a", "incomplete string data for inference input 's'"),
        (bytes(8), "unexpected number of string elements 2 for inference input 's', expecting 1"),
    ],
)
def test_malformed_strings_are_refused(data: bytes, sentence: str) -> None:
    with pytest.raises(InferenceError, match=sentence):
        decode_bytes_elements(data, "s", 1)


def test_numbers_are_views_of_the_right_size() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = Tensor.from_numpy("x", array, "FP32")
    assert np.shares_memory(tensor.as_numpy(), array)
    with pytest.raises(InferenceError, match=r"byte size mismatch for input 'x'\. Expected 24, got 20"):
        Tensor("x", "FP32", (2, 3), bytes(20)).as_numpy()
    assert Tensor.from_numpy("x", np.zeros((0, 3), np.float32), "FP32").as_numpy().shape == (0, 3)
