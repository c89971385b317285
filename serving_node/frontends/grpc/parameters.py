"""The parameters of a ModelInferRequest, with Triton's errors for those of the wrong type.

Source: Triton's infer_handler.cc, SetInferenceRequestMetadata.
"""

from __future__ import annotations

from collections.abc import Mapping

from serving_node.contract.errors import ErrorCode
from serving_node.contract.proto import grpc_service_pb2 as pb
from serving_node.core.errors import InferenceError
from serving_node.core.request import Parameter
from serving_node.frontends.parameters import EMPTY_FINAL, RequestParameters, sort_parameters

_RESERVED = (
    "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting with"
    f" 'triton_' are allowed: {EMPTY_FINAL}"
)
# parameter -> the fields that may hold it, and how the error names them
_INT, _UINT, _BOOL, _STRING, _DOUBLE = "int64_param", "uint64_param", "bool_param", "string_param", "double_param"
_SPECIAL: dict[str, tuple[frozenset[str], str]] = {
    "sequence_id": (frozenset({_INT, _STRING}), "int64_param or string_param"),
    "sequence_start": (frozenset({_BOOL}), "bool_param"),
    "sequence_end": (frozenset({_BOOL}), "bool_param"),
    "priority": (frozenset({_INT, _UINT}), "int64_param or uint64_param"),
    "timeout": (frozenset({_INT}), "int64_param"),
    EMPTY_FINAL: (frozenset({_BOOL}), "bool_param"),
}
_OTHERS = (frozenset({_INT, _BOOL, _STRING, _DOUBLE}), "int64_param, bool_param, or string_param")
_UINT64 = 2**64 - 1


def request_parameters(parameters: Mapping[str, pb.InferParameter]) -> RequestParameters:
    """Return the parameters of a request, sorted out.

    Raises:
        InferenceError: one has the wrong type or value, or is reserved.
    """
    values: dict[str, Parameter] = {}
    for key, message in parameters.items():
        if key.startswith("triton_") and key != EMPTY_FINAL:
            raise InferenceError(ErrorCode.INVALID_ARG, _RESERVED)
        allowed, expected = _SPECIAL.get(key, _OTHERS)
        choice = message.WhichOneof("parameter_choice")
        if choice not in allowed:
            raise _wrong_type(key, expected)
        value: Parameter = getattr(message, choice)
        if type(value) is int and value < 0:
            if key == "priority":
                raise InferenceError(ErrorCode.INVALID_ARG, "invalid value for 'priority', expected value >= 0.")
            if key in ("timeout", "sequence_id"):
                value &= _UINT64  # both are unsigned inside, and a negative one wraps
        values[key] = value
    return sort_parameters(values, _wrong_type, reserved=_RESERVED)


def plain_parameters(parameters: Mapping[str, pb.InferParameter]) -> dict[str, Parameter]:
    """Return the parameters of a tensor as they are; those without a value are left out."""
    found: dict[str, Parameter] = {}
    for key, message in parameters.items():
        choice = message.WhichOneof("parameter_choice")
        if choice is not None:
            found[key] = getattr(message, choice)
    return found


def response_parameters(parameters: Mapping[str, Parameter]) -> dict[str, pb.InferParameter]:
    """Return the parameters of a response as messages."""
    fields: dict[str, pb.InferParameter] = {}
    for key, value in parameters.items():
        if isinstance(value, bool):
            fields[key] = pb.InferParameter(bool_param=value)
        elif isinstance(value, int):
            fields[key] = pb.InferParameter(int64_param=value)
        elif isinstance(value, float):
            fields[key] = pb.InferParameter(double_param=value)
        else:
            fields[key] = pb.InferParameter(string_param=value)
    return fields


def _wrong_type(key: str, expected: str) -> InferenceError:
    return InferenceError(ErrorCode.INVALID_ARG, f"invalid value type for '{key}' parameter, expected {expected}.")
