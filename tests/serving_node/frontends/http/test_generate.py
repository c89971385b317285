"""generate and generate_stream over a dataplane whose answers the test chooses."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.metadata import ModelMetadata, TensorMetadata
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.core.tensor import Tensor
from serving_node.frontends.header_forwarding import HeaderForwarding
from serving_node.frontends.http import HttpFrontend, HttpLimits
from serving_node.wire.http1 import Http1Limits

INPUTS = (
    TensorMetadata("text_input", "BYTES", (1,)),
    TensorMetadata("INPUT0", "INT32", (-1,)),
    TensorMetadata("matrix", "FP64", (-1, 2, -1)),
)
NOT_ONE = "generate expects model to produce exactly 1 response, use generate stream for model that generates various"
GENERATE, STREAM = "/v2/models/hold/generate", "/v2/models/hold/generate_stream"


@pytest.fixture
def port(dataplane: Any, loop_thread: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(
        dataplane, "model_metadata", lambda name, version: ModelMetadata(name, ("1",), "fake", INPUTS, ())
    )
    limits = HttpLimits(max_input_bytes=4 << 20, connection=Http1Limits(max_buffered_bytes=1 << 20))
    frontend = loop_thread.call(lambda: HttpFrontend(dataplane, limits, forwarding=HeaderForwarding("^X-")))
    server = loop_thread.run(frontend.serve("127.0.0.1", 0))
    yield server.sockets[0].getsockname()[1]
    loop_thread.run(frontend.stop(1.0))


@pytest.fixture
def connection(port: int) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    yield connection
    connection.close()


class Model:
    """Answers the newest request."""

    def __init__(self, dataplane: Any, loop_thread: Any) -> None:
        self._dataplane = dataplane
        self._loop = loop_thread

    def request(self, count: int = 1) -> InferenceRequest:
        found: InferenceRequest = self._dataplane.wait_for(count)[-1]
        return found

    def send(
        self, *tensors: Tensor, final: bool = False, flag_only: bool = False, error: str = "", **more: Any
    ) -> None:
        failure = InferenceError(ErrorCode.UNAVAILABLE, error) if error else None
        request = self.request()
        response = InferenceResponse(
            "m", "1", request.id, list(tensors), more, error=failure, final=final, flag_only=flag_only
        )
        self._loop.call(lambda: request.on_response(response))

    def end(self) -> None:
        self.send(final=True, flag_only=True)


@pytest.fixture
def model(dataplane: Any, loop_thread: Any) -> Model:
    return Model(dataplane, loop_thread)


def text(value: str) -> Tensor:
    return Tensor.from_numpy("text_output", np.array([value], np.object_), "BYTES")


def post(connection: http.client.HTTPConnection, path: str, body: Any, headers: dict[str, str] | None = None) -> None:
    connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body).encode(), headers or {})


def answer(connection: http.client.HTTPConnection) -> tuple[int, bytes, str]:
    found = connection.getresponse()
    return found.status, found.read(), found.headers["content-type"]


def test_members_become_tensors_and_parameters(connection: http.client.HTTPConnection, model: Model) -> None:
    body = {
        "id": "7",
        "text_input": "é",
        "INPUT0": [1, 2, 3],
        "parameters": {"temperature": 0.5, "matrix": [1, 2, 3, 4]},
        "stream": False,
        "big": 2**64,
    }
    post(connection, GENERATE, body, {"X-Tenant": "a", "Other": "b"})
    request = model.request()
    assert request.id == "7"
    assert request.parameters == {"id": "7", "temperature": 0.5, "stream": False, "big": float(2**64), "X-Tenant": "a"}
    assert [(tensor.name, tensor.datatype, tensor.shape) for tensor in request.inputs] == [
        ("text_input", "BYTES", (1,)),
        ("INPUT0", "INT32", (3,)),
        ("matrix", "FP64", (1, 2, 2)),
    ]
    assert bytes(request.inputs[0].data) == b"\2\0\0\0\xc3\xa9"
    assert request.inputs[1].as_numpy().tolist() == [1, 2, 3]
    model.send(final=True)
    assert answer(connection) == (200, b'{"id":"7","model_name":"m","model_version":"1"}', "application/json")


def test_the_answer_has_elements_out_of_arrays_and_keys_in_order(
    connection: http.client.HTTPConnection, model: Model
) -> None:
    post(connection, GENERATE, {})
    outputs = [
        text('a "quote" \n'),
        Tensor.from_numpy("Z", np.array([[1, 2]], np.int8), "INT8"),
        Tensor.from_numpy("A", np.array([[0.1]], np.float32), "FP32"),
        Tensor.from_numpy("empty", np.zeros((0,), np.float64), "FP64"),
        Tensor.from_numpy("nan", np.array([np.nan, 1.0]), "FP64"),
        Tensor.from_numpy("model_name", np.array([1]), "INT64"),  # a reserved key: the model's name wins
    ]
    model.send(*outputs, final=True, tokens=3, finished=True, score=float("inf"), why="end")
    expected = (
        b'{"A":0.10000000149011612,"Z":[1,2],"empty":[],"finished":true,"model_name":"m","model_version":"1",'
        b'"nan":[NaN,1.0],"score":Infinity,"text_output":"a \\"quote\\" \\n","tokens":3,"why":"end"}'
    )
    assert answer(connection) == (200, expected, "application/json")


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b"", 500, "failed to parse the request JSON buffer: The document is empty. at 0"),
        (b"{", 500, "failed to parse the request JSON buffer: "),
        (b"[1]", 500, "attempt to get members for non-object"),
        ({"id": 5}, 500, "Unable to parse 'id': attempt to access JSON non-string as string"),
        ({"parameters": 1}, 500, "Expected JSON object for keyword: 'parameters': attempt to access JSON non-object"),
        ({"parameters": {"a": []}}, 400, "Converting keyword: 'parameters': parameter 'a' has invalid type. It should"),
        ({"a": None}, 400, "parameter 'a' has invalid type. It should be either 'int', 'bool', or 'string'."),
        ({"text_input": 5}, 500, "Unable to parse JSON bytes array: attempt to access JSON non-string as string"),
        ({"text_input": ["a", "b"]}, 400, "The schema can not convert input 'text_input' to tensor with proper shape"),
        ({"matrix": [1, 2, 3]}, 400, "The schema can not convert input 'matrix' to tensor with proper shape"),
        ({"INPUT0": 1.5}, 500, "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer"),
        ({"INPUT0": [[1, 2], [3]]}, 500, "Shape does not match true shape of 'data' field"),
        (
            {"id": "x", "INPUT0": 1, "parameters": {"INPUT0": 1}},
            400,
            "Converting keyword: 'parameters': [request id: x] input 'INPUT0' already exists in request",
        ),
        (b'{"INPUT0": 1, "text_input": "a", "INPUT0": 2}', 400, "[request id: <id_unknown>] input 'INPUT0' already ex"),
        (b'{"INPUT0": 1, "text_input": "a", "text_input": "", "INPUT0": 2}', 400, "input 'text_input' already exists"),
        ({"text_input": "a" * (5 << 20)}, 400, "request JSON size of 52428"),
        (
            b'{"matrix":[' + b"1," * 524_290 + b"1,1]}",
            400,
            "request size of 0 bytes with input 'matrix' of size 4194336 bytes exceeds the maximum allowed input size",
        ),
    ],
    ids=range(17),  # the test's name is in its environment: a body of megabytes there keeps processes from starting
)
@pytest.mark.parametrize("path", [GENERATE, STREAM])
def test_bad_requests(connection: http.client.HTTPConnection, path: str, body: Any, status: int, sentence: str) -> None:
    post(connection, path, body)
    found, content, content_type = answer(connection)
    assert (found, content_type) == (status, "application/json")
    assert sentence in json.loads(content)["error"]


def test_the_name_of_an_input_may_be_said_in_text(connection: http.client.HTTPConnection, model: Model) -> None:
    body = {"text_input": 'INPUT0 "INPUT0": 1', "INPUT0": 1, "stop": "INPUT0"}
    post(connection, GENERATE, body)
    assert model.request().parameters == {"stop": "INPUT0"}
    model.send(final=True)
    assert answer(connection)[0] == 200


def test_compressed_bodies_are_refused(connection: http.client.HTTPConnection) -> None:
    post(connection, GENERATE, {}, {"Content-Encoding": "gzip"})
    status, content, _ = answer(connection)
    assert (status, json.loads(content)["error"]) == (
        400,
        "Unsupported content-encoding, only 'identity' is supported.",
    )


@pytest.mark.parametrize("count", [0, 2])
def test_generate_wants_one_response(connection: http.client.HTTPConnection, model: Model, count: int) -> None:
    post(connection, GENERATE, {})
    for _ in range(count):
        model.send(text("a"))
    model.end()
    status, content, _ = answer(connection)
    assert status == 500
    assert NOT_ONE in json.loads(content)["error"]


def test_generate_takes_a_response_with_its_flag_apart(connection: http.client.HTTPConnection, model: Model) -> None:
    post(connection, GENERATE, {})
    model.send(text("a"))
    model.end()
    assert answer(connection)[:2] == (200, b'{"model_name":"m","model_version":"1","text_output":"a"}')


def test_generate_answers_with_the_error(connection: http.client.HTTPConnection, model: Model) -> None:
    post(connection, GENERATE, {})
    model.send(error="no room", final=True)
    assert answer(connection)[:2] == (503, b'{"error":"no room"}')


def test_large_requests_are_parsed_elsewhere(connection: http.client.HTTPConnection, model: Model) -> None:
    post(connection, GENERATE, {"text_input": "a" * (2 << 20)})
    assert len(model.request().inputs[0].data) == (2 << 20) + 4
    model.send(final=True)
    assert answer(connection)[0] == 200


def test_stream(connection: http.client.HTTPConnection, model: Model) -> None:
    post(connection, STREAM, {"id": "q"})
    model.send(text("one"))
    found = connection.getresponse()  # while the model still works
    assert (found.status, found.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    first = b'data: {"id":"q","model_name":"m","model_version":"1","text_output":"one"}\n\n'
    assert found.read1() == first
    model.send(error="not now")
    assert found.read1() == b'data: {"error":"not now"}\n\n'
    model.send(text("two"), final=True)
    assert found.read() == first.replace(b"one", b"two")
    post(connection, STREAM, {})  # the connection is still good
    model.request(2)
    model.end()
    assert answer(connection) == (200, b"", "text/event-stream; charset=utf-8")


def test_the_first_response_gives_a_stream_its_status(connection: http.client.HTTPConnection, model: Model) -> None:
    post(connection, STREAM, {})
    model.send(error="full")
    model.send(text("still"))
    model.end()
    status, content, content_type = answer(connection)
    assert (status, content_type) == (503, "text/event-stream; charset=utf-8")
    assert content.split(b"\n\n")[0] == b'data: {"error":"full"}'
    assert content.count(b"data: ") == 2


def test_an_output_that_json_cannot_carry(connection: http.client.HTTPConnection, model: Model) -> None:
    post(connection, STREAM, {})
    model.send(Tensor("half", "FP16", (1,), b"\0\0"), final=True)
    status, content, _ = answer(connection)
    assert status == 400
    assert b"sending FP16 data via JSON is not supported" in content


def test_large_responses_are_written_elsewhere_and_stay_in_order(
    connection: http.client.HTTPConnection, model: Model
) -> None:
    post(connection, STREAM, {})
    large = np.arange(100_000, dtype=np.float64) % 1000
    model.send(Tensor.from_numpy("large", large, "FP64"))
    model.send(text("small"))
    model.send(Tensor.from_numpy("half", large.astype(np.float16), "FP16"), Tensor.from_numpy("large", large, "FP64"))
    model.end()
    status, content, _ = answer(connection)
    events = [json.loads(event.removeprefix(b"data: ")) for event in content.split(b"\n\n")[:-1]]
    assert status == 200
    assert events[0]["large"] == large.tolist()
    assert events[1]["text_output"] == "small"
    assert "sending FP16 data via JSON is not supported" in events[2]["error"]
    assert len(events) == 3


@pytest.mark.parametrize("path", [GENERATE, STREAM])
def test_leaving_cancels(port: int, model: Model, loop_thread: Any, path: str) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(b"POST %b HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}" % path.encode())
        request = model.request()
        if path == STREAM:
            model.send(text("one"))
            assert client.recv(9) == b"HTTP/1.1 "
        cancelled = _watch(request)
    loop_thread.run(cancelled())
    model.send(text("nobody listens"))
    model.end()


def test_a_reader_that_does_not_keep_up_is_cut_off(port: int, model: Model, loop_thread: Any) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(b"POST %b HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}" % STREAM.encode())
        request = model.request()
        cancelled = _watch(request)
        for _ in range(200):  # 20 MiB at most, of which the connection may hold one
            if request.cancelled:
                break
            model.send(text("a" * 100_000))
        loop_thread.run(cancelled())
        model.end()


def test_a_stream_that_waits_behind_another_answer_is_bounded(port: int, dataplane: Any, loop_thread: Any) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        for _ in range(2):
            client.sendall(b"POST %b HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}" % STREAM.encode())
        _, second = dataplane.wait_for(2)
        cancelled = _watch(second)
        response = InferenceResponse("m", "1", outputs=[text("a" * 100_000)], final=False)
        for _ in range(12):
            loop_thread.call(lambda: second.on_response(response))
        loop_thread.run(cancelled())


def _watch(request: InferenceRequest) -> Any:
    """Return what waits until the request is cancelled."""

    async def wait() -> None:
        event = asyncio.Event()
        if not request.cancelled:
            request.on_cancel = lambda _: event.set()
            await asyncio.wait_for(event.wait(), 20)

    return wait
