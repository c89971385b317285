"""The one error of node clients."""

from __future__ import annotations

from enum import StrEnum


class NodeErrorCode(StrEnum):
    """Why a call to a node failed, independent of the transport."""

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    UNAUTHORIZED = "unauthorized"
    CONFLICT = "conflict"
    INVALID = "invalid"
    NOT_FOUND = "not_found"
    UNAVAILABLE = "unavailable"
    TOO_LARGE = "too_large"
    PROTOCOL = "protocol"
    NODE_FAILED = "node_failed"


_PERMANENT = frozenset(
    {
        NodeErrorCode.UNAUTHORIZED,
        NodeErrorCode.CONFLICT,
        NodeErrorCode.INVALID,
        NodeErrorCode.NOT_FOUND,
        NodeErrorCode.TOO_LARGE,
    }
)


class NodeClientError(Exception):
    """A node did not do what was asked.

    ``permanent`` means that the same call fails again until somebody changes something; otherwise trying later helps.
    """

    def __init__(self, code: NodeErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def permanent(self) -> bool:
        """Return whether repeating the same call is useless."""
        return self.code in _PERMANENT
