"""How hard answers over gRPC are compressed. Source: Triton's --grpc-infer-response-compression-level."""

from __future__ import annotations

from enum import StrEnum


class CompressionLevel(StrEnum):
    """The levels of the flag."""

    NONE = "none"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
