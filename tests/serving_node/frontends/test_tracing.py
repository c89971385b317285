"""What the frontends note on the traces of requests, over real connections."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc

from serving_node.core.tensor import Tensor
from serving_node.frontends.codec_pool import CodecPool
from serving_node.frontends.grpc.connection import GrpcLimits
from serving_node.frontends.grpc.frontend import GrpcFrontend
from serving_node.frontends.http.frontend import HttpFrontend, HttpLimits


class Notes:
    """A trace that remembers."""

    def __init__(self) -> None:
        self.marks: list[str] = []
        self.times: list[int] = []
        self.finished = 0

    def begin(self, model: str, version: str, request_id: str, ns: int) -> None:
        self.mark("REQUEST_START", ns)

    def mark(self, activity: str, ns: int) -> None:
        self.marks.append(activity)
        self.times.append(ns)

    def tensors(self, activity: str, tensors: Sequence[Tensor]) -> None:
        pass

    def context(self) -> str:
        return ""

    def end(self, ns: int) -> None:
        self.mark("REQUEST_END", ns)

    def finish(self) -> None:
        self.finished += 1


class EveryRequest:
    """A tracer that traces all, and sees what it was asked."""

    def __init__(self) -> None:
        self.notes: list[Notes] = []
        self.asked: list[tuple[str, bytes | None]] = []

    def start(self, model: str, headers: Mapping[bytes, bytes]) -> Notes:
        self.asked.append((model, headers.get(b"traceparent")))
        self.notes.append(Notes())
        return self.notes[-1]


@pytest.fixture
def tracing(dataplane: Any) -> EveryRequest:
    every = dataplane.tracing = EveryRequest()
    return every


@pytest.fixture
def http_port(dataplane: Any, loop_thread: Any) -> Iterator[int]:
    pool = CodecPool()
    frontend = loop_thread.call(lambda: HttpFrontend(dataplane, HttpLimits(max_input_bytes=32 << 20), pool))
    server = loop_thread.run(frontend.serve("127.0.0.1", 0))
    yield server.sockets[0].getsockname()[1]
    loop_thread.run(frontend.stop(1.0))
    loop_thread.call(pool.close)


@pytest.fixture
def grpc_port(dataplane: Any, loop_thread: Any) -> Iterator[int]:
    pool = CodecPool()
    frontend = loop_thread.call(lambda: GrpcFrontend(dataplane, GrpcLimits(), pool))
    server = loop_thread.run(frontend.serve("127.0.0.1", 0))
    yield server.sockets[0].getsockname()[1]
    loop_thread.run(frontend.stop(1.0))
    loop_thread.call(pool.close)


def post(port: int, model: str, rows: int = 1) -> int:
    data = {"name": "INPUT0", "datatype": "FP32", "shape": [rows, 4], "data": [1.0] * 4 * rows}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("POST", f"/v2/models/{model}/infer", json.dumps({"inputs": [data]}), {"traceparent": "00-x"})
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.parametrize("model", ["echo", "fail"])
def test_http_notes_receiving_and_sending(http_port: int, tracing: EveryRequest, model: str) -> None:
    post(http_port, model)
    assert tracing.asked == [(model, b"00-x")]
    (notes,) = tracing.notes
    assert notes.marks == [
        "HTTP_RECV_START",
        "HTTP_RECV_END",
        "INFER_RESPONSE_COMPLETE",
        "HTTP_SEND_START",
        "HTTP_SEND_END",
    ]
    assert notes.times == sorted(notes.times)
    assert notes.finished == 1


def test_http_finishes_refused_requests_and_those_whose_client_left(
    http_port: int, tracing: EveryRequest, dataplane: Any
) -> None:
    assert post(http_port, "refuse") == 400
    assert tracing.notes[0].finished == 1
    connection = http.client.HTTPConnection("127.0.0.1", http_port, timeout=20)
    body = '{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,1],"data":[1]}]}'
    connection.request("POST", "/v2/models/hold/infer", body)
    (*_, held) = dataplane.wait_for(2)
    assert held.trace is tracing.notes[1]
    assert tracing.notes[1].finished == 0
    connection.close()
    post(http_port, "echo")  # after the loop has seen the other client leave
    assert tracing.notes[1].finished == 1


def test_http_large_body_began_before_it_ended(http_port: int, tracing: EveryRequest) -> None:
    assert post(http_port, "echo", rows=200_000) == 200
    notes = tracing.notes[0]
    assert notes.times[0] <= notes.times[1]


def tensor() -> triton_grpc.InferInput:
    made = triton_grpc.InferInput("INPUT0", [1, 4], "FP32")
    made.set_data_from_numpy(np.ones((1, 4), np.float32))
    return made


def test_grpc_notes_reading_and_sending(grpc_port: int, tracing: EveryRequest) -> None:
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{grpc_port}") as client:
        client.infer("echo", [tensor()], headers={"traceparent": "00-y"})
        with pytest.raises(Exception, match="refused"):
            client.infer("refuse", [tensor()])
    assert tracing.asked[0] == ("echo", b"00-y")
    notes, refused = tracing.notes
    assert notes.marks == [
        "GRPC_WAITREAD_START",
        "GRPC_WAITREAD_END",
        "INFER_RESPONSE_COMPLETE",
        "GRPC_SEND_START",
        "GRPC_SEND_END",
    ]
    assert notes.times == sorted(notes.times)
    assert (notes.finished, refused.finished) == (1, 1)


def test_grpc_stream_notes_every_response(grpc_port: int, tracing: EveryRequest) -> None:
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{grpc_port}") as client:
        client.start_stream(lambda result, error: None)
        client.async_stream_infer("twice", [tensor()])
        client.async_stream_infer("refuse", [tensor()])
        client.stop_stream()
    notes, refused = tracing.notes
    assert notes.marks.count("GRPC_SEND_START") == 3
    assert notes.marks.count("INFER_RESPONSE_COMPLETE") == 1
    assert (notes.finished, refused.finished) == (1, 1)
