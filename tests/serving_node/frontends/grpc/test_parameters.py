"""Parameters of requests: what every kind of value gives, as the reference server was seen to answer."""

from __future__ import annotations

from typing import Any

import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.contract.proto import grpc_service_pb2 as pb
from serving_node.core.errors import InferenceError
from serving_node.frontends.grpc.parameters import plain_parameters, request_parameters, response_parameters

KINDS: dict[str, pb.InferParameter] = {
    "none": pb.InferParameter(),
    "bool": pb.InferParameter(bool_param=True),
    "int": pb.InferParameter(int64_param=7),
    "zero": pb.InferParameter(int64_param=0),
    "negative": pb.InferParameter(int64_param=-7),
    "uint": pb.InferParameter(uint64_param=2**63 + 5),
    "double": pb.InferParameter(double_param=1.5),
    "text": pb.InferParameter(string_param="abc"),
    "long text": pb.InferParameter(string_param="x" * 129),
}
MINE = "int64_param, bool_param, or string_param"
FINAL = "triton_enable_empty_final_response"


@pytest.mark.parametrize(
    ("key", "kind", "field", "value"),
    [
        ("mine", "bool", "others", {"mine": True}),
        ("mine", "negative", "others", {"mine": -7}),
        ("mine", "double", "others", {"mine": 1.5}),
        ("", "text", "others", {"": "abc"}),
        ("binary_data_output", "bool", "others", {"binary_data_output": True}),
        ("sequence_id", "int", "sequence_id", 7),
        ("sequence_id", "negative", "sequence_id", 2**64 - 7),
        ("sequence_id", "text", "sequence_id", "abc"),
        ("sequence_start", "bool", "sequence_start", True),
        ("sequence_end", "bool", "sequence_end", True),
        ("priority", "int", "priority", 7),
        ("priority", "uint", "priority", 2**63 + 5),
        ("timeout", "int", "timeout_us", 7),
        ("timeout", "negative", "timeout_us", 2**64 - 7),
        (FINAL, "bool", "empty_final", True),
    ],
)
def test_values_that_are_taken(key: str, kind: str, field: str, value: Any) -> None:
    assert getattr(request_parameters({key: KINDS[kind]}), field) == value


@pytest.mark.parametrize(
    ("key", "kinds", "expected"),
    [
        ("mine", ["none", "uint"], MINE),
        ("headers", ["none", "uint"], MINE),
        ("sequence_id", ["none", "bool", "uint", "double"], "int64_param or string_param"),
        ("sequence_start", ["none", "int", "zero", "uint", "double", "text"], "bool_param"),
        ("sequence_end", ["none", "int", "zero", "uint", "double", "text"], "bool_param"),
        ("priority", ["none", "bool", "double", "text"], "int64_param or uint64_param"),
        ("timeout", ["none", "bool", "uint", "double", "text"], "int64_param"),
        (FINAL, ["none", "int", "uint", "double", "text"], "bool_param"),
    ],
)
def test_values_of_the_wrong_type(key: str, kinds: list[str], expected: str) -> None:
    for kind in kinds:
        with pytest.raises(InferenceError) as caught:
            request_parameters({key: KINDS[kind]})
        assert caught.value.code is ErrorCode.INVALID_ARG
        assert caught.value.message == f"invalid value type for '{key}' parameter, expected {expected}."


@pytest.mark.parametrize(
    ("key", "kind", "code", "text"),
    [
        ("priority", "negative", ErrorCode.INVALID_ARG, "invalid value for 'priority', expected value >= 0."),
        ("triton_x", "int", ErrorCode.INVALID_ARG, f"'triton_' are allowed: {FINAL}"),
        ("triton_x", "none", ErrorCode.INVALID_ARG, f"'triton_' are allowed: {FINAL}"),
        ("sequence_id", "long text", ErrorCode.UNSUPPORTED, "cannot be longer than 128 characters"),
    ],
)
def test_values_that_are_refused(key: str, kind: str, code: ErrorCode, text: str) -> None:
    with pytest.raises(InferenceError) as caught:
        request_parameters({key: KINDS[kind]})
    assert caught.value.code is code
    assert text in caught.value.message


def test_parameters_of_tensors_and_responses() -> None:
    assert plain_parameters({"a": KINDS["uint"], "b": KINDS["none"]}) == {"a": 2**63 + 5}
    fields = response_parameters({"a": True, "b": 2, "c": 0.5, "d": "x"})
    assert [fields[key].WhichOneof("parameter_choice") for key in "abcd"] == [
        "bool_param",
        "int64_param",
        "double_param",
        "string_param",
    ]
