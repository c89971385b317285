"""Error codes: the only error language between frontends, engine and control plane.

Source: Triton's eight TRITONSERVER_Error classes; the mapping to HTTP and gRPC numbers lives in each frontend.
"""

from __future__ import annotations

from enum import StrEnum


class ErrorCode(StrEnum):
    """What went wrong, independent of any protocol."""

    UNKNOWN = "UNKNOWN"
    INTERNAL = "INTERNAL"
    NOT_FOUND = "NOT_FOUND"
    INVALID_ARG = "INVALID_ARG"
    UNAVAILABLE = "UNAVAILABLE"
    UNSUPPORTED = "UNSUPPORTED"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    CANCELLED = "CANCELLED"


class ContractError(ValueError):
    """A document of the contract (config, control message, digest input) is not acceptable.

    ``field`` is the dotted path of the offending field, empty when the whole document is meant.
    """

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.field = field
