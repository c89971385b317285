"""How the frontends begin the traces of requests. Source: Triton's timestamps of its HTTP and gRPC frontends."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from serving_node.core.request import InferenceRequest, InferenceResponse
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


def begin_grpc_trace(request: InferenceRequest, call: GrpcCall, tracer: Tracer) -> None:
    """Trace a request that has been received, and its responses, if it is to be traced.

    ``trace.finish`` is left to the caller when no model gets the request.
    """
    trace = tracer.start(request.model_name, call.metadata)
    if trace is None:
        return
    now_ns = time.monotonic_ns()
    # of a stream nobody knows when the wait for this message began
    trace.mark("GRPC_WAITREAD_START", now_ns if call.streaming else min(int(call.since * _NS), now_ns))
    trace.mark("GRPC_WAITREAD_END", now_ns)
    request.trace = trace
    request.on_response = _Sender(trace, request.on_response)


class _Sender:
    """Passes on responses, and notes when they are sent."""

    __slots__ = ("_is_first", "_send", "_trace")

    def __init__(self, trace: RequestTrace, send: Callable[[InferenceResponse], None]) -> None:
        self._trace = trace
        self._send = send
        self._is_first = True

    def __call__(self, response: InferenceResponse) -> None:
        trace = self._trace
        if self._is_first:
            self._is_first = False
            trace.mark("INFER_RESPONSE_COMPLETE", time.monotonic_ns())
        trace.mark("GRPC_SEND_START", time.monotonic_ns())
        try:
            self._send(response)
        finally:
            trace.mark("GRPC_SEND_END", time.monotonic_ns())
            if response.final:
                trace.finish()
