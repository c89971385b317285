"""Error codes as HTTP numbers, for every frontend that speaks HTTP. Source: Triton's http_server.cc."""

from __future__ import annotations

from serving_node.contract.errors import ErrorCode

HTTP_STATUS_OF = {
    ErrorCode.UNKNOWN: 400,
    ErrorCode.INTERNAL: 500,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.INVALID_ARG: 400,
    ErrorCode.UNAVAILABLE: 503,
    ErrorCode.UNSUPPORTED: 501,
    ErrorCode.ALREADY_EXISTS: 400,
    ErrorCode.CANCELLED: 400,
}
