"""What is the same in the management calls of HTTP and gRPC.

Source: Triton's extensions for the repository and shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError


@dataclass(slots=True)
class LoadParameters:
    """The parameters of a load request: a config override, and files by their path ("1/model.onnx")."""

    config: str | None = None
    files: dict[str, bytes] = field(default_factory=dict)

    def add(self, name: str, value: object) -> None:
        """Take one parameter; files as bytes.

        Raises:
            InferenceError: INVALID_ARG, unknown name or wrong type.
        """
        if name == "config":
            if not isinstance(value, str):
                raise _bad_type(name, "string_param")
            self.config = value
        elif name.startswith("file:"):
            if not isinstance(value, bytes):
                raise _bad_type(name, "bytes_param")
            self.files[name.removeprefix("file:")] = value
        else:
            raise InferenceError(ErrorCode.INVALID_ARG, f"unrecognized load parameter '{name}'.")


def _bad_type(name: str, expected: str) -> InferenceError:
    sentence = f"invalid value type for load parameter '{name}', expected {expected}."
    return InferenceError(ErrorCode.INVALID_ARG, sentence)
