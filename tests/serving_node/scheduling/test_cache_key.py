from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.core.request import InferenceRequest, RequestedOutput
from serving_node.core.tensor import Tensor
from serving_node.scheduling.cache_key import private_inputs, request_key

X = Tensor("x", "FP32", (2,), b"12345678")
Y = Tensor("y", "INT8", (4,), b"abcd")


def request(**changes: Any) -> InferenceRequest:
    values: dict[str, Any] = {"inputs": [X, Y], "parameters": {"n": 1}, "outputs": [RequestedOutput("o")], **changes}
    return InferenceRequest("m", "1", on_response=lambda response: None, **values)


KEY = request_key(b"model", request())


@pytest.mark.parametrize(
    "changes",
    [
        {"inputs": [Y, X]},
        {"id": "other"},
        {"priority": 2},
        {"timeout_us": 5},
        {"sticky_key": "caller"},
        {"deadline_ns": 7},
        {"outputs": [RequestedOutput("o", {"binary_data": True, "classification": 3})]},
        {"inputs": [Tensor("x", "FP32", (2,), memoryview(bytearray(X.data))), Y]},
    ],
)
def test_what_cannot_change_the_answer_is_not_part_of_it(changes: dict[str, Any]) -> None:
    assert request_key(b"model", request(**changes)) == KEY


@pytest.mark.parametrize(
    "changes",
    [
        {"inputs": [X]},
        {"inputs": [Tensor("z", "FP32", (2,), X.data), Y]},
        {"inputs": [Tensor("x", "INT32", (2,), X.data), Y]},
        {"inputs": [Tensor("x", "FP32", (1, 2), X.data), Y]},
        {"inputs": [Tensor("x", "FP32", (2,), b"12345679"), Y]},
        {"inputs": [Tensor("x", "FP32", (2,), Y.data), Tensor("y", "INT8", (4,), X.data)]},
        {"parameters": {}},
        {"parameters": {"n": 2}},
        {"parameters": {"n": True}},
        {"parameters": {"n": 1.0}},
        {"parameters": {"n": "1"}},
        {"parameters": {"m": 1}},
        {"outputs": []},
        {"outputs": [RequestedOutput("p")]},
        {"outputs": [RequestedOutput("o"), RequestedOutput("p")]},
    ],
)
def test_what_can_change_the_answer_is_part_of_it(changes: dict[str, Any]) -> None:
    assert request_key(b"model", request(**changes)) != KEY


def test_models_do_not_share_answers() -> None:
    assert request_key(b"other", request()) != KEY


def test_bytes_cannot_move_from_one_tensor_to_the_next() -> None:
    one = [Tensor("a", "BYTES", (1,), b"xy"), Tensor("b", "BYTES", (1,), b"z")]
    other = [Tensor("a", "BYTES", (1,), b"x"), Tensor("b", "BYTES", (1,), b"yz")]
    assert request_key(b"", request(inputs=one)) != request_key(b"", request(inputs=other))


def test_private_inputs_stay_what_they_were() -> None:
    memory = bytearray(b"1234")
    shared = request(inputs=[Tensor("x", "INT8", (4,), memoryview(memory))])
    inputs = private_inputs(shared)
    key = request_key(b"", shared)
    memory[:] = b"9999"
    assert request_key(b"", shared) != key
    assert request_key(b"", shared, inputs) == key


_TEXTS = st.text(max_size=4)
_INPUTS = st.lists(
    st.builds(
        Tensor,
        _TEXTS,
        st.sampled_from(["INT8", "BYTES"]),
        st.tuples(st.integers(0, 3), st.integers(0, 3)),
        st.binary(max_size=6),
    ),
    max_size=3,
    unique_by=lambda tensor: tensor.name,
)
_PARAMETERS = st.dictionaries(_TEXTS, st.one_of(st.booleans(), st.integers(-2, 2), _TEXTS), max_size=3)
_OUTPUTS = st.lists(st.builds(RequestedOutput, _TEXTS), max_size=2)


@given(first=st.tuples(_INPUTS, _PARAMETERS, _OUTPUTS), second=st.tuples(_INPUTS, _PARAMETERS, _OUTPUTS))
def test_keys_are_equal_exactly_when_requests_are(first: Any, second: Any) -> None:
    def meaning(inputs: Any, parameters: Any, outputs: Any) -> Any:
        tensors = sorted(
            ((tensor.name, tensor.datatype, tensor.shape, tensor.data) for tensor in inputs), key=lambda row: row[0]
        )
        typed = sorted((name, type(value).__name__, value) for name, value in parameters.items())
        return tensors, typed, [output.name for output in outputs]

    keys = [request_key(b"", request(inputs=i, parameters=p, outputs=o)) for i, p, o in (first, second)]
    assert (keys[0] == keys[1]) == (meaning(*first) == meaning(*second))
