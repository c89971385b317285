"""Request parameters with a meaning of their own, the same under every protocol.

Source: Triton's sequence, schedule-policy and parameters extensions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest, Parameter

# A request header (or gRPC metadata key) whose value pins a caller to one route of a model.
STICKY_HEADER = b"flotilla-sticky-key"
EMPTY_FINAL = "triton_enable_empty_final_response"
_MAX_SEQUENCE_ID = 128
RESERVED = "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."


@dataclass(slots=True)
class RequestParameters:
    """The parameters of a request, sorted out. ``others`` are for the model."""

    others: dict[str, Parameter] = field(default_factory=dict)
    priority: int = 0
    timeout_us: int = 0
    sequence_id: int | str = 0
    sequence_start: bool = False
    sequence_end: bool = False
    empty_final: bool = False

    def apply(self, request: InferenceRequest) -> None:
        """Write them into a request."""
        request.parameters = dict(self.others)
        request.priority = self.priority
        request.timeout_us = self.timeout_us
        request.sequence_id = self.sequence_id
        request.sequence_start = self.sequence_start
        request.sequence_end = self.sequence_end


def sort_parameters(
    parameters: Mapping[str, Parameter], wrong_type: Callable[[str, str], InferenceError], *, reserved: str = RESERVED
) -> RequestParameters:
    """Return the parameters with the reserved ones taken out.

    ``wrong_type(key, expected)`` makes the protocol's error for a value that is not a "boolean", "unsigned-integer"
    or "integer or string"; ``reserved`` is its sentence for forbidden keys.

    Raises:
        InferenceError: a reserved parameter has the wrong type or is forbidden.
    """
    sorted_out = RequestParameters()
    for key, value in parameters.items():
        if key in ("sequence_start", "sequence_end"):
            if not isinstance(value, bool):
                raise wrong_type(key, "boolean")
            setattr(sorted_out, key, value)
        elif key in ("priority", "timeout"):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise wrong_type(key, "unsigned-integer")
            setattr(sorted_out, "timeout_us" if key == "timeout" else key, value)
        elif key == "sequence_id":
            if isinstance(value, bool) or not isinstance(value, int | str):
                raise wrong_type(key, "integer or string")
            sorted_out.sequence_id = _checked_sequence_id(value)
        elif key == EMPTY_FINAL and isinstance(value, bool):
            sorted_out.empty_final = value
        elif key.startswith("triton_"):
            raise InferenceError(ErrorCode.INVALID_ARG, reserved)
        else:
            sorted_out.others[key] = value
    return sorted_out


def _checked_sequence_id(value: int | str) -> int | str:
    if isinstance(value, str) and len(value) > _MAX_SEQUENCE_ID:
        sentence = f"string correlation ID cannot be longer than {_MAX_SEQUENCE_ID} characters"
        raise InferenceError(ErrorCode.UNSUPPORTED, sentence)
    return value
