"""OpenTelemetry mode against a collector of a few lines."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from structlog.testing import capture_logs

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from serving_node.core.trace import RequestTrace
from serving_node.observability.tracing.options import OpenTelemetryOptions, TraceLevel, TraceMode, TraceOptions
from serving_node.observability.tracing.settings import changes_from_json
from serving_node.observability.tracing.tracer import Tracer, open_tracer

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"


class Collector(HTTPServer):
    """Takes what exporters send."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[ExportTraceServiceRequest] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/traces"

    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.requests.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(30)


def tracer(collector: Collector, rate: int = 1) -> Tracer:
    telemetry = OpenTelemetryOptions(url=collector.url, resource=(("team", "x"),), schedule_delay_ms=60_000)
    return open_tracer(TraceOptions(TraceMode.OPENTELEMETRY, TraceLevel.TIMESTAMPS, rate=rate, opentelemetry=telemetry))


def run(trace: RequestTrace | None, model: str = "m") -> str:
    """Take a trace the way of a request; return the context that its model got."""
    assert trace is not None
    trace.mark("HTTP_RECV_START", 1000)
    trace.begin(model, "2", "r1", 2000)
    trace.mark("QUEUE_START", 2500)
    context = trace.context()
    for activity, ns in (("COMPUTE_START", 3000), ("COMPUTE_INPUT_END", 3100), ("COMPUTE_OUTPUT_START", 3800)):
        trace.mark(activity, ns)
    trace.mark("COMPUTE_END", 4000)
    trace.mark("INFER_RESPONSE_COMPLETE", 4500)
    trace.end(5000)
    trace.finish()
    return context


async def test_spans_are_tritons(collector: Collector) -> None:
    traced = tracer(collector)
    context = json.loads(run(traced.start("add_sub", {b"traceparent": PARENT, b"tracestate": b"a=b"}), "add_sub"))
    await traced.close(20)
    compute, model, root = collector.spans()
    assert [span.name for span in (root, model, compute)] == ["InferRequest", "add_sub", "compute"]
    assert root.parent_span_id.hex() == "b7ad6b7169203331"
    assert (model.parent_span_id, compute.parent_span_id) == (root.span_id, model.span_id)
    assert {span.trace_id.hex() for span in (root, model, compute)} == {"0af7651916cd43dd8448eb211c80319c"}
    assert root.trace_state == "a=b"
    assert {a.key: a.value.string_value or a.value.int_value for a in model.attributes} == {
        "triton.model_name": "add_sub",
        "triton.model_version": 2,
        "triton.trace_id": 1,
        "triton.trace_parent_id": 0,
        "triton.request_id": "r1",
    }
    assert [event.name for event in root.events] == ["HTTP_RECV_START", "INFER_RESPONSE_COMPLETE"]
    assert [event.name for event in model.events] == ["REQUEST_START", "QUEUE_START", "REQUEST_END"]
    assert [event.name for event in compute.events] == [
        "COMPUTE_START",
        "COMPUTE_INPUT_END",
        "COMPUTE_OUTPUT_START",
        "COMPUTE_END",
    ]
    assert compute.end_time_unix_nano - compute.start_time_unix_nano == 1000
    assert model.end_time_unix_nano - model.start_time_unix_nano == 3000
    assert context == {
        "traceparent": f"00-0af7651916cd43dd8448eb211c80319c-{model.span_id.hex()}-01",
        "tracestate": "a=b",
    }
    resource = {a.key: a.value.string_value for a in collector.requests[0].resource_spans[0].resource.attributes}
    assert (resource["service.name"], resource["team"]) == ("triton-inference-server", "x")


async def test_only_propagated_contexts_with_rate_zero(collector: Collector) -> None:
    traced = tracer(collector, rate=0)
    assert traced.start("m", {}) is None
    assert traced.start("m", {b"traceparent": b"no such thing"}) is None
    assert json.loads(run(traced.start("m", {b"traceparent": PARENT})))["traceparent"].endswith("-01")
    await traced.close(20)
    assert len(collector.spans()) == 3


async def test_collector_that_does_not_answer_does_not_keep_the_node() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/v1/traces"
        options = TraceOptions(
            TraceMode.OPENTELEMETRY, TraceLevel.TIMESTAMPS, rate=1, opentelemetry=OpenTelemetryOptions(url=url)
        )
        traced = open_tracer(options)
        run(traced.start("m", {}))
        with capture_logs() as lines:
            await asyncio.wait_for(traced.close(0.1), 5)
    assert [line["event"] for line in lines] == ["trace.not_exported"]


async def test_refused_request_is_one_span(collector: Collector) -> None:
    traced = tracer(collector)
    trace = traced.start("m", {})
    assert trace is not None
    assert trace.context() == ""
    trace.finish()
    trace.finish()
    assert json.loads(run(traced.start("m", {})))["traceparent"].endswith("-01")
    traced.update("", changes_from_json({"trace_level": ["TENSORS"]}))
    run(traced.start("m", {}))
    await traced.close(20)
    refused, *full, without_times = collector.spans()
    assert [span.name for span in (refused, *full)] == ["InferRequest", "compute", "m", "InferRequest"]
    assert (without_times.name, list(without_times.events)) == ("InferRequest", [])
