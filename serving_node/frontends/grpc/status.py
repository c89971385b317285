"""Error codes as gRPC statuses."""

from __future__ import annotations

from serving_node.contract.errors import ErrorCode
from serving_node.wire.grpc import GrpcStatus

STATUS_OF = {
    ErrorCode.UNKNOWN: GrpcStatus.UNKNOWN,
    ErrorCode.INTERNAL: GrpcStatus.INTERNAL,
    ErrorCode.NOT_FOUND: GrpcStatus.NOT_FOUND,
    ErrorCode.INVALID_ARG: GrpcStatus.INVALID_ARGUMENT,
    ErrorCode.UNAVAILABLE: GrpcStatus.UNAVAILABLE,
    ErrorCode.UNSUPPORTED: GrpcStatus.UNIMPLEMENTED,
    ErrorCode.ALREADY_EXISTS: GrpcStatus.ALREADY_EXISTS,
    ErrorCode.CANCELLED: GrpcStatus.CANCELLED,
}
