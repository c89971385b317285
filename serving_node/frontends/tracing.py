"""How the frontends begin the traces of requests. Source: Triton's timestamps of its HTTP and gRPC frontends."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serving_node.core.trace import RequestTrace
    from serving_node.observability.tracing.tracer import Tracer
    from serving_node.wire.exchange import HttpExchange
    from serving_node.wire.grpc import GrpcCall

_NS = 1_000_000_000


def begin_http_trace(exchange: HttpExchange, tracer: Tracer, model: str) -> None:
    """Set the trace of an exchange that has been received, if its request is to be traced."""
    trace = tracer.start(model, exchange.headers)
    if trace is not None:
        now_ns = time.monotonic_ns()
        trace.mark("HTTP_RECV_START", min(int(exchange.since * _NS), now_ns) or now_ns)
        trace.mark("HTTP_RECV_END", now_ns)
        exchange.trace = trace


def begin_grpc_trace(call: GrpcCall, tracer: Tracer, model: str, *, first: bool = True) -> RequestTrace | None:
    """Return the trace of a message that has been received, None if it is not traced.

    ``first``: nothing of the call was received before, so that the message was waited for since the call began.
    """
    trace = tracer.start(model, call.metadata)
    if trace is not None:
        now_ns = time.monotonic_ns()
        trace.mark("GRPC_WAITREAD_START", min(int(call.since * _NS), now_ns) if first else now_ns)
        trace.mark("GRPC_WAITREAD_END", now_ns)
    return trace
