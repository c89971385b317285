"""States of sequences in a config: what Triton refuses, in its words, and what could never work."""

from __future__ import annotations

import pytest

from serving_node.contract.model_config import parse_pbtxt
from serving_node.contract.model_config.validation import problems

IO = 'name: "m" backend: "python" max_batch_size: 4 input { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }'
NAMED = 'input_name: "SIN" output_name: "SOUT" data_type: TYPE_INT32'


def said(state: str, more: str = "") -> list[str]:
    text = f'{IO} output {{ name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }} sequence_batching {{ {state} }} {more}'
    return [problem.message for problem in problems(parse_pbtxt(text))]


def first(how: str, dims: str = "1") -> str:
    return f"state {{ {NAMED} dims: [ {dims} ] initial_state {{ {how} }} }}"


@pytest.mark.parametrize(
    "state",
    [
        f"state {{ {NAMED} dims: [ 1 ] }}",
        f"state {{ {NAMED} dims: [ -1 ] }}",
        first('name: "n" data_type: TYPE_INT32 dims: [ 3 ] zero_data: true', "-1"),
        first('name: "n" data_type: TYPE_INT32 dims: [ 1 ] data_file: "there"'),
        f"state {{ {NAMED} dims: [ 1 ] use_same_buffer_for_input_output: true use_growable_memory: true }}",
        'state { input_name: "SIN" output_name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }',
    ],
)
def test_states_that_can_be_kept(state: str) -> None:
    assert said(state) == []


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (
            first("data_type: TYPE_INT32 dims: [ 1 ] zero_data: true"),
            "Field 'name' must be set when using initial_state for state input 'SIN'.",
        ),
        (
            first('name: "n" data_type: TYPE_INT32 dims: [ 1 ]'),
            "initial_state setting expects state'SIN' to have state_data set",
        ),
        (
            first('name: "n" data_type: TYPE_FP32 dims: [ 1 ] zero_data: true'),
            "The data type used for 'initial_state' field of state 'SIN' does not match the state data type.",
        ),
        (
            first('name: "n" data_type: TYPE_INT32 dims: [ 2 ] zero_data: true'),
            "'initial_state' dim for input name 'SIN' doesn't match 'state' dim description. 2 != 1",
        ),
        (
            first('name: "n" data_type: TYPE_INT32 zero_data: true'),
            "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state input"
            " 'SIN'. 0 != 1",
        ),
        (
            first('name: "n" data_type: TYPE_INT32 dims: [ -1 ] zero_data: true', "-1"),
            "'initial_state' field for state input name 'SIN' contains variable dimensions.",
        ),
        (
            first('name: "n" data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } initial_state { name: "m"'),
            "initial_state field for state input 'SIN' must contain exactly one or zero element. Found '2' elements.",
        ),
        (
            "state { data_type: TYPE_INT32 dims: [ 1 ] }",
            "a state of model 'm' must have 'input_name' and 'output_name'",
        ),
        (f"state {{ {NAMED} }}", "state 'SIN' of model 'm' must have 'dims'"),
        (
            'state { input_name: "SIN" output_name: "SOUT" dims: [ 1 ] }',
            "state 'SIN' of model 'm' must have a 'data_type'",
        ),
        (
            'state { input_name: "IN" output_name: "SOUT" data_type: TYPE_INT32 dims: [ 1 ] }',
            "state 'IN' of model 'm' is the name of another input or state",
        ),
    ],
)
def test_states_that_cannot(state: str, sentence: str) -> None:
    assert said(state) == [sentence]


def test_two_states_of_one_name() -> None:
    state = f"state {{ {NAMED} dims: [ 1 ] }}"
    assert set(said(f"{state} {state}")) == {"state 'SIN' of model 'm' is the name of another input or state"}


def test_a_decoupled_model_has_no_states() -> None:
    sentences = said(f"state {{ {NAMED} dims: [ 1 ] }}", "model_transaction_policy { decoupled: true }")
    assert sentences == ["the states of model 'm' need one response for each request, and it is decoupled"]


def test_a_control_has_a_name_of_its_own() -> None:
    control = 'control_input { name: "IN" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }'
    assert said(control) == ["sequence batching control 'IN' of model 'm' is the name of another input"]
