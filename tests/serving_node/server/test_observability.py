"""Traces, metrics and logs of real nodes, set by their flags and at run time."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from .processes import NodeProcess, doubling_model, eventually

pytestmark = pytest.mark.integration
Launch = Callable[..., NodeProcess]

_CONTEXT_MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            context = np.array([str(request.trace().get_context())], np.object_)
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("CONTEXT", context)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
_CONTEXT_CONFIG = """
backend: "python"
input { name: "X" data_type: TYPE_FP32 dims: 4 }
output { name: "CONTEXT" data_type: TYPE_STRING dims: 1 }
model_transaction_policy { decoupled: true }
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / "doubling" / "1").mkdir(parents=True)
    (folder / "doubling" / "1" / "model.onnx").write_bytes(doubling_model())
    (folder / "doubling" / "config.pbtxt").write_text('metric_tags { key: "team" value: "x" }')
    return folder


@pytest.fixture
def launch(tmp_path: Path, repository: Path) -> Iterator[Launch]:
    made: list[NodeProcess] = []

    def start(*more: str) -> NodeProcess:
        arguments = [f"--model-repository={repository}", "--exit-timeout-secs=10", *more]
        made.append(NodeProcess(tmp_path / f"node{len(made)}.log", *arguments).start())
        return made[-1]

    yield start
    for node in made:
        node.end(signal.SIGKILL)


def double(module: Any, port: int, request_id: str, headers: dict[str, str] | None = None) -> None:
    with module.InferenceServerClient(f"127.0.0.1:{port}") as client:
        tensor = module.InferInput("x", [1, 4], "FP32")
        tensor.set_data_from_numpy(np.ones((1, 4), np.float32))
        client.infer("doubling", [tensor], request_id=request_id, headers=headers)


def test_traces_metrics_and_logs_of_one_node(launch: Launch, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    node = launch(
        f"--trace-config=triton,file={file}",
        "--trace-config=rate=1",
        "--metrics-config=summary_latencies=true",
        "--metrics-config=summary_quantiles=0.5:0.05",
        "--allow-cpu-metrics=false",
        "--log-format=ISO8601",
    ).until_ready()
    client = triton_http.InferenceServerClient(f"127.0.0.1:{node.http}")
    double(triton_http, node.http, "not traced")
    assert client.update_trace_settings("doubling", {"trace_level": ["TIMESTAMPS"]})["trace_rate"] == "1"
    assert client.get_trace_settings()["trace_level"] == ["OFF"]
    client.update_log_settings({"log_verbose_level": 1})
    double(triton_http, node.http, "over http")
    double(triton_grpc, node.grpc, "over grpc")
    client.update_log_settings({"log_verbose_level": 0})
    metrics = httpx2.get(f"http://127.0.0.1:{node.metrics}/metrics", trust_env=False, timeout=30).text
    client.close()
    assert node.end() == 0

    rows = json.loads(file.read_text())
    assert [row.get("request_id") for row in rows if "model_name" in row] == ["over http", "over grpc"]
    names = [row["timestamps"][0]["name"] for row in rows if row["id"] == 1 and "timestamps" in row]
    assert set(names) == {
        "HTTP_RECV_START",
        "HTTP_RECV_END",
        "REQUEST_START",
        "QUEUE_START",
        "COMPUTE_START",
        "COMPUTE_INPUT_END",
        "COMPUTE_OUTPUT_START",
        "COMPUTE_END",
        "INFER_RESPONSE_COMPLETE",
        "HTTP_SEND_START",
        "HTTP_SEND_END",
        "REQUEST_END",
    }
    labels = '_team="x",model="doubling",version="1"'
    assert f"nv_inference_request_success{{{labels}}} 3\n" in metrics
    assert f"nv_inference_request_summary_us_count{{{labels}}} 3\n" in metrics
    assert f'nv_inference_queue_summary_us{{{labels},quantile="0.5"}} ' in metrics
    assert "nv_cpu_utilization" not in metrics
    said = node.said()
    assert " V " in said
    assert 'request_id="over http"' in said or "request_id=over http" in said
    assert "not traced" not in said


class _Collector(BaseHTTPRequestHandler):
    """Keeps what exporters send."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.append(ExportTraceServiceRequest.FromString(body))  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Any]:
    with HTTPServer(("127.0.0.1", 0), _Collector) as server:
        server.got = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(30)


def test_context_of_a_caller_reaches_python_models_and_the_collector(
    launch: Launch, repository: Path, collector: Any
) -> None:
    (repository / "context" / "1").mkdir(parents=True)
    (repository / "context" / "config.pbtxt").write_text(_CONTEXT_CONFIG)
    (repository / "context" / "1" / "model.py").write_text(_CONTEXT_MODEL)
    node = launch(
        "--trace-config=mode=opentelemetry",
        f"--trace-config=opentelemetry,url=http://127.0.0.1:{collector.server_port}/v1/traces",
        "--trace-config=opentelemetry,bsp_schedule_delay=100",
        "--trace-config=level=TIMESTAMPS",
        "--trace-config=rate=0",
    ).until_ready()
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    answers: list[Any] = []
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{node.grpc}") as client:
        client.start_stream(
            lambda result, error: answers.append(error or result.as_numpy("CONTEXT")[0]),
            headers={"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"},
        )
        tensor = triton_grpc.InferInput("X", [4], "FP32")
        tensor.set_data_from_numpy(np.ones(4, np.float32))
        client.async_stream_infer("context", [tensor])
        eventually(lambda: answers, "the model answered")
        client.stop_stream()
    double(triton_http, node.http, "nobody asked")
    assert node.end() == 0

    spans = [
        span
        for request in collector.got
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    by_name = {span.name: span for span in spans}
    assert sorted(span.name for span in spans) == ["InferRequest", "compute", "context"]
    assert by_name["InferRequest"].parent_span_id.hex() == "b7ad6b7169203331"
    context = json.loads(answers[0])
    assert context == {"traceparent": f"00-{trace_id}-{by_name['context'].span_id.hex()}-01"}


def test_node_refuses_trace_flags_that_mean_nothing(launch: Launch) -> None:
    node = launch("--trace-config=sampler=x")
    assert node.wait() == 1
    assert "--trace-config sampler: there is no such setting" in node.said()
