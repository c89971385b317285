"""What clients may set by the logging extension. Pure. Source: Triton's logging extension and its sentences."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError

_MAX_LEVEL = 2**31 - 1
_BOOLEANS = ("log_info", "log_warning", "log_error")
# Setting -> (its type, the word for it over HTTP, the word for it over gRPC).
_TYPES: dict[str, tuple[type, str, str]] = {
    **dict.fromkeys(_BOOLEANS, (bool, "boolean", "boolean")),
    "log_verbose_level": (int, "unsigned-integer", "int32"),
    "log_format": (str, "string", "string"),
}


class LogFormat(StrEnum):
    """How a line looks: Triton's two formats, and JSON for machines."""

    DEFAULT = "default"
    ISO8601 = "ISO8601"
    JSON = "json"


def changes_from_json(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes that a JSON object asks for; null asks for none.

    Raises:
        InferenceError: INTERNAL for a wrong type, else as ``check``.
    """
    changes = {name: value for name, value in document.items() if value is not None}
    for name, value in changes.items():
        if name in _TYPES and not _fits(name, value):
            word = _TYPES[name][1]
            raise InferenceError(ErrorCode.INTERNAL, f"attempt to access JSON non-{word} as {word}")
    check(changes)
    return changes


def changes_from_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes that typed parameters ask for. Raises InferenceError."""
    for name, value in parameters.items():
        if name in _TYPES and not _fits(name, value):
            raise InferenceError(ErrorCode.INVALID_ARG, f"expect {_TYPES[name][2]} for '{name}'")
    check(parameters)
    return dict(parameters)


def check(changes: Mapping[str, Any]) -> None:
    """Refuse what cannot be obeyed.

    Raises:
        InferenceError: UNSUPPORTED for the log file; INVALID_ARG for unknown names and wrong values.
    """
    for name, value in changes.items():
        if name == "log_file":
            sentence = "log file location can not be updated through network protocol"
            raise InferenceError(ErrorCode.UNSUPPORTED, sentence)
        if name not in _TYPES:
            raise InferenceError(ErrorCode.INVALID_ARG, f"unknown log setting '{name}'")
        if name == "log_format" and value not in list(LogFormat):
            raise InferenceError(ErrorCode.INVALID_ARG, f"invalid argument for log_format, got: {value}")
        if not _fits(name, value) or (name == "log_verbose_level" and value > _MAX_LEVEL):
            raise InferenceError(ErrorCode.INVALID_ARG, f"invalid value {value!r} for log setting '{name}'")


def _fits(name: str, value: Any) -> bool:
    wanted = _TYPES[name][0]
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return isinstance(value, wanted)
