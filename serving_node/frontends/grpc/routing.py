"""What the headers of a call mean: a method to run, or an answer to give at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from serving_node.frontends.restricted_access import ApiCategory, RestrictedAccess
from serving_node.wire.grpc import (
    ACCEPTED_ENCODINGS,
    GrpcCall,
    GrpcStatus,
    MessageHandler,
    parse_timeout,
    trailers_only,
)
from serving_node.wire.http2 import RequestHeaders, encode_headers

_ACCEPT_ENCODING = (b"grpc-accept-encoding", b"identity,deflate,gzip")
_GRPC = re.compile(rb"application/grpc(?:[+;]|\Z)")
_NOT_GRPC = encode_headers([(b":status", b"415")])
_NOT_POST = encode_headers([(b":status", b"405")])


@dataclass(frozen=True, slots=True)
class Method:
    """How a method is served: ``unary`` takes the one message; ``open_stream`` returns what takes each message.

    ``category`` is the part of the protocol that it belongs to, None for what cannot be restricted.
    """

    unary: MessageHandler | None = None
    open_stream: Callable[[GrpcCall], MessageHandler] | None = None
    category: ApiCategory | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A method to run, or with None the header block of a ``refusal``. Units: ``timeout_ns`` 0 means none."""

    method: Method | None
    refusal: bytes = b""
    timeout_ns: int = 0
    encoding: bytes = b"identity"


class Routes:
    """The methods of a port by path, and who may call them. Shared by its connections."""

    def __init__(
        self, methods: Mapping[bytes, Method], max_header_list_bytes: int, restricted: RestrictedAccess | None = None
    ) -> None:
        self._methods = methods
        self._max_header_list_bytes = max_header_list_bytes
        self._restricted = restricted or None

    def plan(self, headers: RequestHeaders) -> Plan:
        """Return what to do with a call. The same for all calls with these headers."""
        if headers.method != b"POST":
            return Plan(None, _NOT_POST)
        if not _GRPC.match(headers.fields.get(b"content-type", b"")):
            return Plan(None, _NOT_GRPC)
        limit = self._max_header_list_bytes
        if headers.list_bytes > limit:
            text = f"received metadata size exceeds hard limit ({headers.list_bytes} vs. {limit})"
            return _refused(GrpcStatus.RESOURCE_EXHAUSTED, text)
        method = self._methods.get(headers.path)
        if method is None:
            return _refused(GrpcStatus.UNIMPLEMENTED, "")
        if self._restricted is not None and method.category is not None:
            refusal = self._restricted.check(method.category, headers.fields)
            if refusal is not None:
                return _refused(GrpcStatus.UNAVAILABLE, refusal)
        return _timed(method, headers.fields)


def _timed(method: Method, fields: Mapping[bytes, bytes]) -> Plan:
    timeout_ns = 0
    if b"grpc-timeout" in fields:
        parsed = parse_timeout(fields[b"grpc-timeout"])
        if parsed is None:
            return _refused(GrpcStatus.INTERNAL, "malformed grpc-timeout")
        if not parsed:
            return _refused(GrpcStatus.DEADLINE_EXCEEDED, "Deadline Exceeded")
        timeout_ns = parsed
    encoding = fields.get(b"grpc-encoding", b"identity")
    if encoding not in ACCEPTED_ENCODINGS:
        name = encoding.decode("ascii", "replace")
        text = f"message encoding '{name}' is not supported"
        return Plan(None, trailers_only(GrpcStatus.UNIMPLEMENTED, text, (_ACCEPT_ENCODING,)))
    return Plan(method, b"", timeout_ns, encoding)


def _refused(status: GrpcStatus, text: str) -> Plan:
    return Plan(None, trailers_only(status, text))
