"""The HTTP frontend against Triton's own client and raw requests."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import struct
import threading
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from serving_node.frontends.codec_pool import CodecPool
from serving_node.frontends.http import HttpFrontend, HttpLimits


@pytest.fixture
def frontend(dataplane: Any, loop_thread: Any) -> Iterator[tuple[HttpFrontend, int]]:
    pool = CodecPool()
    frontend = loop_thread.call(lambda: HttpFrontend(dataplane, HttpLimits(max_input_bytes=32 << 20), pool))
    server = loop_thread.run(frontend.serve("127.0.0.1", 0))
    yield frontend, server.sockets[0].getsockname()[1]
    loop_thread.run(frontend.stop(1.0))
    loop_thread.call(pool.close)


@pytest.fixture
def port(frontend: tuple[HttpFrontend, int]) -> int:
    return frontend[1]


@pytest.fixture
def client(port: int) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{port}", network_timeout=60) as client:
        yield client


@pytest.fixture
def connection(port: int) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    yield connection
    connection.close()


def ask(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, Any, dict[str, str]]:
    """Return status, body (parsed when JSON) and headers."""
    content = json.dumps(body).encode() if isinstance(body, dict) else body
    connection.request(method, path, content, headers or {})
    answer = connection.getresponse()
    raw = answer.read()
    found = {name.lower(): value for name, value in answer.getheaders()}
    is_json = found.get("content-type") == "application/json" and "content-encoding" not in found and raw
    return answer.status, json.loads(raw) if is_json else raw, found


def body_of(datatype: str, shape: list[int], data: Any, **more: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "INPUT0", "datatype": datatype, "shape": shape, "data": data}], **more}


INFER = "/v2/models/echo/infer"


@pytest.mark.parametrize("binary", [True, False])
def test_triton_client_infers(client: triton.InferenceServerClient, binary: bool) -> None:
    arrays = {
        "INPUT0": np.arange(16, dtype=np.float32).reshape(1, 16) / 7,
        "INPUT1": np.array([["a", "ü", ""]], dtype=np.object_),
        "INPUT2": np.array([[True, False]]),
        "INPUT3": np.array([[2**63 + 1, 5]], dtype=np.uint64),
        "INPUT4": np.zeros((0, 3), dtype=np.int8),
    }
    types = ["FP32", "BYTES", "BOOL", "UINT64", "INT8"]
    inputs, outputs = [], []
    for (name, array), datatype in zip(arrays.items(), types, strict=True):
        tensor = triton.InferInput(name, array.shape, datatype)
        tensor.set_data_from_numpy(array, binary_data=binary)
        inputs.append(tensor)
        outputs.append(triton.InferRequestedOutput(name.replace("IN", "OUT"), binary_data=binary))
    for request_id in ("", "7", "7"):
        result = client.infer("echo", inputs, outputs=outputs, request_id=request_id)
        assert result.get_response().get("id", "") == request_id
        assert result.get_response()["model_version"] == "1"
        for name, array in arrays.items():
            got = result.as_numpy(name.replace("IN", "OUT"))
            if name == "INPUT1":
                texts = [item.decode() if isinstance(item, bytes) else item for item in got[0]]
                assert texts == ["a", "ü", ""]
            else:
                np.testing.assert_array_equal(got, array)


def test_triton_client_sends_parameters(client: triton.InferenceServerClient, dataplane: Any) -> None:
    tensor = triton.InferInput("INPUT0", [1, 2], "INT32")
    tensor.set_data_from_numpy(np.array([[1, 2]], dtype=np.int32))
    client.infer(
        "echo",
        [tensor],
        sequence_id="abc",
        sequence_end=True,
        priority=3,
        timeout=5000,
        parameters={"mine": "x", "yes": True},
        headers={"flotilla-sticky-key": "alice"},
    )
    request = dataplane.requests[0]
    assert (request.sequence_id, request.sequence_start, request.sequence_end) == ("abc", False, True)
    assert (request.priority, request.timeout_us, request.sticky_key) == (3, 5000, "alice")
    assert request.parameters == {"mine": "x", "yes": True}


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
@pytest.mark.parametrize("size", [100, 1_000_000])
def test_compression_both_ways(client: triton.InferenceServerClient, algorithm: str, size: int) -> None:
    array = np.random.default_rng(1).integers(0, 4, (1, size), np.uint8)
    tensor = triton.InferInput("INPUT0", array.shape, "UINT8")
    tensor.set_data_from_numpy(array)
    result = client.infer(
        "echo", [tensor], request_compression_algorithm=algorithm, response_compression_algorithm=algorithm
    )
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), array)


def test_classification(client: triton.InferenceServerClient) -> None:
    tensor = triton.InferInput("INPUT0", [2, 3], "FP32")
    tensor.set_data_from_numpy(np.array([[0.1, 0.7, 0.2], [3, 1, 2]], dtype=np.float32))
    result = client.infer("echo", [tensor], outputs=[triton.InferRequestedOutput("OUTPUT0", class_count=2)])
    assert result.as_numpy("OUTPUT0").tolist() == [[b"0.700000:1", b"0.200000:2"], [b"3.000000:0", b"2.000000:2"]]


def test_triton_client_reads_everything_else(client: triton.InferenceServerClient, dataplane: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("echo")
    assert client.is_model_ready("echo", "1")
    assert not client.is_model_ready("nothing")
    metadata = client.get_server_metadata()
    assert metadata == {"name": "triton", "version": "1.2", "extensions": ["classification", "sequence"]}
    model = client.get_model_metadata("echo")
    assert model["inputs"] == [{"name": "INPUT0", "datatype": "FP32", "shape": [-1, 4]}]
    assert client.get_model_config("echo")["max_batch_size"] == 8
    statistics = client.get_inference_statistics("echo")["model_stats"][0]
    assert statistics["inference_stats"]["success"] == {"count": 5, "ns": 0}
    assert statistics["batch_stats"][0]["batch_size"] == 2
    assert client.get_inference_statistics() == {"model_stats": [statistics]}
    assert client.get_model_repository_index() == [
        {"name": "echo", "version": "1", "state": "READY"},
        {"name": "broken", "version": "2", "state": "UNAVAILABLE", "reason": "no file"},
        {"name": "never"},
    ]
    client.load_model("echo", config='{"a": 1}', files={"file:1/model.onnx": b"xyz" * 200_000})
    client.unload_model("echo", unload_dependents=True)
    assert dataplane.calls == [
        ("load", "echo", '{"a": 1}', {"1/model.onnx": b"xyz" * 200_000}),
        ("unload", "echo", True),
    ]
    assert client.get_log_settings()["log_info"] is True
    assert client.update_log_settings({"log_verbose_level": 2})["log_verbose_level"] == 2
    assert client.get_trace_settings()["trace_level"] == ["OFF"]
    assert client.get_system_shared_memory_status() == []


@pytest.mark.parametrize(
    ("call", "status", "text"),
    [
        (lambda c: c.get_model_config("x"), "404", "Request for unknown model: 'x' is not found"),
        (lambda c: c.get_inference_statistics("x"), "400", "requested model 'x' is not available"),
        (lambda c: c.load_model("unknown"), "500", "failed to poll from model repository"),
        (lambda c: c.register_system_shared_memory("r", "/k", 8), "501", "shared memory is disabled"),
        (lambda c: c.get_system_shared_memory_status("r"), "404", "shared memory region: 'r'"),
        (
            lambda c: c.update_trace_settings(settings={"trace_level": ["TENSORS"]}),
            "400",
            "trace file name is not given",
        ),
    ],
)
def test_errors_reach_triton_client(client: triton.InferenceServerClient, call: Any, status: str, text: str) -> None:
    with pytest.raises(InferenceServerException) as caught:
        call(client)
    assert caught.value.status() == status
    assert text in caught.value.message()


def test_managed_node_refuses_changes(connection: http.client.HTTPConnection, dataplane: Any) -> None:
    dataplane.managed = True
    for path, body in (
        ("/v2/repository/models/echo/load", b""),
        ("/v2/repository/models/echo/unload", b""),
        ("/v2/logging", b'{"log_info": false}'),
    ):
        assert ask(connection, "POST", path, body)[0] == 503


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        ("GET", "/v2/health/live", 200, b""),
        ("GET", "/v2/health/ready?x=1", 200, b""),
        ("HEAD", "/v2/health/ready", 200, b""),
        ("POST", "/v2/health/ready", 405, {"error": "Method Not Allowed"}),
        ("GET", "/", 404, {"error": "Not Found"}),
        ("GET", "/v2/models/echo/versions/x/ready", 404, {"error": "Not Found"}),
        ("GET", "/v2/models/echo/infer", 405, {"error": "Method Not Allowed"}),
        ("GET", "/v2/models/e%63ho/ready", 200, b""),
        ("GET", "/v2/models/echo/versions/7/ready", 400, {"error": "Model version not ready"}),
        (
            "POST",
            "/v2/repository/r/models/echo/load",
            501,
            {"error": "'repository_name' specification is not supported"},
        ),
    ],
)
def test_routes(connection: http.client.HTTPConnection, method: str, path: str, status: int, body: Any) -> None:
    assert ask(connection, method, path)[:2] == (status, body)


def test_server_that_is_not_ready_answers_400(connection: http.client.HTTPConnection, dataplane: Any) -> None:
    dataplane.is_ready = False
    assert ask(connection, "GET", "/v2/health/ready")[:2] == (400, b"")


def test_nested_data_and_flat_answer(connection: http.client.HTTPConnection) -> None:
    status, body, _ = ask(connection, "POST", INFER, body_of("FP32", [2, 2], [[1, 2.5], [3, 4]], id="i"))
    assert status == 200
    assert body == {
        "id": "i",
        "model_name": "echo",
        "model_version": "1",
        "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [2, 2], "data": [1.0, 2.5, 3.0, 4.0]}],
    }


@pytest.mark.parametrize(
    ("datatype", "data", "expected"),
    [
        ("INT8", [1, -2], [1, -2]),
        ("INT8", [300, -2], [44, -2]),
        ("UINT64", [2**64 - 1, 1], [2**64 - 1, 1]),
        ("INT64", [-(2**63), 2**63 - 1], [-(2**63), 2**63 - 1]),
        ("INT64", [[-1], [[2]]], [-1, 2]),
        ("FP32", [0.1, 1e39], [0.10000000149011612, float("inf")]),
        ("BOOL", [True, False], [True, False]),
        ("BYTES", ["a", "é"], ["a", "é"]),
        ("FP64", [0.1, 1], [0.1, 1.0]),
    ],
)
def test_json_types(
    connection: http.client.HTTPConnection, datatype: str, data: list[Any], expected: list[Any]
) -> None:
    status, body, _ = ask(connection, "POST", INFER, body_of(datatype, [2], data))
    assert (status, body["outputs"][0]["data"]) == (200, expected)


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"{", 500, "failed to parse the request JSON buffer: "),
        (b"[]", 500, "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"),
        (b"{}", 500, "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"),
        (body_of("FP32", [1], [1], id=3), 500, "Unable to parse 'id': attempt to access JSON non-string as string"),
        (body_of("FP32", [-1], [1]), 500, "Unable to parse 'shape': attempt to access JSON non-unsigned-integer"),
        (body_of("FP32", [2], [1]), 500, "Unable to parse 'data': Shape does not match true shape of 'data' field"),
        (body_of("FP32", [2], [1, "1"]), 500, "Unable to parse 'data': attempt to access JSON non-number as double"),
        (body_of("FP32", [2], [1, True]), 500, "Unable to parse 'data': attempt to access JSON non-number as double"),
        (body_of("INT32", [1], [1.7]), 500, "Unable to parse 'data'"),
        (body_of("INT32", [1], [True]), 500, "Unable to parse 'data'"),
        (body_of("BOOL", [1], [1]), 500, "Unable to parse 'data'"),
        (body_of("BYTES", [1], [1]), 500, "Unable to parse JSON bytes array: attempt to access JSON non-string"),
        (body_of("FP32", [1], 1), 500, "Unable to parse 'data': attempt to access JSON non-array as array"),
        (body_of("FP16", [1], [1]), 400, "receiving FP16 data via JSON is not supported."),
        (body_of("FP31", [1], [1]), 400, "invalid datatype for input INPUT0"),
        (body_of("FP32", [1], eval("[" * 150 + "1" + "]" * 150)), 400, "JSON nesting depth exceeds maximum"),
        (
            body_of("FP32", [1], [1], parameters={"timeout": "1"}),
            500,
            "Unable to parse 'timeout': attempt to access JSON non-unsigned",
        ),
        (body_of("FP32", [1], [1], parameters={"triton_a": 1}), 400, "parameter keys starting with 'triton_'"),
        ({"inputs": [{"name": "A", "datatype": "FP32", "shape": [1]}]}, 400, "But no field is set"),
        (
            {
                "inputs": [
                    {
                        "name": "A",
                        "datatype": "FP32",
                        "shape": [1],
                        "data": [1],
                        "parameters": {"binary_data_size": 4},
                    }
                ]
            },
            400,
            "But set 'data' 'binary_data_size'",
        ),
        (
            {"inputs": [{"name": "A", "datatype": "FP32", "shape": [1], "parameters": {"shared_memory_region": "r"}}]},
            404,
            "Unable to find shared memory region: 'r'",
        ),
        (
            {"inputs": [{"name": "A", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4}}]},
            400,
            "unexpected size for input 'A', expecting 4 additional bytes for model 'echo'",
        ),
    ],
)
def test_bad_infer_requests(connection: http.client.HTTPConnection, body: Any, status: int, text: str) -> None:
    for _ in range(2):
        got, answer, _ = ask(connection, "POST", INFER, body)
        assert got == status
        assert text in answer["error"]


@pytest.mark.parametrize(
    ("model", "status", "text"),
    [
        ("refuse", 400, "refused: 100% “bad”\n"),
        ("fail", 503, "Exceeds maximum queue size"),
        ("crash", 500, "internal error"),
        ("x", 404, "Request for unknown model: 'x' is not found"),
        ("twice", 500, "expected a single response, got 2"),
    ],
)
def test_infer_errors(connection: http.client.HTTPConnection, model: str, status: int, text: str) -> None:
    answer = ask(connection, "POST", f"/v2/models/{model}/infer", body_of("FP32", [1], [1]))
    assert answer[:2] == (status, {"error": text})


def binary_request(data: bytes, **more: Any) -> tuple[bytes, dict[str, str]]:
    document = {
        "inputs": [
            {
                "name": "INPUT0",
                "datatype": "UINT8",
                "shape": [1, len(data)],
                "parameters": {"binary_data_size": len(data)},
            }
        ],
        **more,
    }
    head = json.dumps(document).encode()
    return head + data, {"Inference-Header-Content-Length": str(len(head))}


@pytest.mark.parametrize("size", [1, 1000, 20_000, 400_000, 20 << 20])
def test_binary_bodies_of_all_sizes(connection: http.client.HTTPConnection, size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    body, headers = binary_request(data, parameters={"binary_data_output": True})
    for _ in range(2):
        status, answer, found = ask(connection, "POST", INFER, body, headers)
        assert status == 200
        assert found["content-type"] == "application/octet-stream"
        assert answer[int(found["inference-header-content-length"]) :] == data


def test_empty_binary_output_is_plain_json(connection: http.client.HTTPConnection) -> None:
    body, headers = binary_request(b"", parameters={"binary_data_output": True})
    status, answer, found = ask(connection, "POST", INFER, body, headers)
    assert (status, found["content-type"]) == (200, "application/json")
    assert answer["outputs"][0]["parameters"] == {"binary_data_size": 0}


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ("99999", "inference header size should be in range (0, "),
        ("-1", "inference header size should be in range (0, "),
        ("x", "Unable to parse Inference-Header-Content-Length, got: x"),
        ("9" * 5000, "Unable to parse Inference-Header-Content-Length, value is out of range [ -2147483648, 214"),
        (None, "unexpected additional input data for model 'echo'"),
    ],
)
def test_bad_header_length(connection: http.client.HTTPConnection, header: str | None, text: str) -> None:
    body, headers = binary_request(b"abc")
    if header is None:
        body += b"more"
    else:
        headers["Inference-Header-Content-Length"] = header
    status, answer, _ = ask(connection, "POST", INFER, body, headers)
    assert status == 400
    assert text in answer["error"]


def test_raw_request(connection: http.client.HTTPConnection, dataplane: Any) -> None:
    dataplane.config.input.add(name="INPUT0", data_type="TYPE_FP32", dims=[-1])
    raw = struct.pack("<3f", 1, 2, 3)
    status, answer, found = ask(connection, "POST", INFER, raw, {"Inference-Header-Content-Length": "0"})
    assert status == 200
    assert answer[int(found["inference-header-content-length"]) :] == raw
    assert dataplane.requests[0].inputs[0].shape == (1, 3)


def test_raw_request_of_bytes(connection: http.client.HTTPConnection, dataplane: Any) -> None:
    dataplane.config.input.add(name="INPUT0", data_type="TYPE_STRING", dims=[1])
    ask(connection, "POST", INFER, b"hello", {"Inference-Header-Content-Length": "0"})
    assert bytes(dataplane.requests[0].inputs[0].data) == b"\5\0\0\0hello"


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ([], "Raw request must only have 1 input (found 1) to be deduced but got 0 inputs in 'echo'"),
        ([("TYPE_FP32", [-1, -1])], "because there are more than one variable-sized dimension"),
        ([("TYPE_STRING", [2])], "For BYTE datatype raw input 'INPUT0', the model must have input shape [1]"),
    ],
)
def test_bad_raw_requests(connection: http.client.HTTPConnection, dataplane: Any, inputs: Any, text: str) -> None:
    for data_type, dims in inputs:
        dataplane.config.input.add(name="INPUT0", data_type=data_type, dims=dims)
    status, answer, _ = ask(connection, "POST", INFER, b"", {"Inference-Header-Content-Length": "0"})
    assert status == 400
    assert text in answer["error"]


def test_large_json_is_parsed_and_written_in_another_process(connection: http.client.HTTPConnection) -> None:
    data = np.random.default_rng(2).integers(0, 10**6, 300_000).tolist()
    status, body, _ = ask(connection, "POST", INFER, body_of("INT32", [len(data)], data, id="big"))
    assert (status, body["id"]) == (200, "big")
    assert body["outputs"][0]["data"] == data
    status, body, _ = ask(connection, "POST", INFER, body_of("INT32", [7], data))
    assert status == 500
    assert "Shape does not match" in body["error"]


def test_input_over_the_limit_is_refused(connection: http.client.HTTPConnection, port: int) -> None:
    status, body, _ = ask(connection, "POST", INFER, b" " * (33 << 20))
    assert status == 400
    assert body["error"] == (
        f"request JSON size of {33 << 20} bytes exceeds the maximum allowed input size of {32 << 20} bytes."
        " Use --http-max-input-size to increase the limit."
    )
    bomb = zlib.compress(bytes(33 << 20))
    status, body, _ = ask(connection, "POST", INFER, bomb, {"Content-Encoding": "deflate"})
    assert status == 400
    assert "Decompressed data size exceeds" in body["error"]


def test_unsupported_encoding(connection: http.client.HTTPConnection) -> None:
    status, body, headers = ask(connection, "POST", INFER, b"x", {"Content-Encoding": "br"})
    assert (status, headers["accept-encoding"]) == (501, "gzip, deflate")
    status, body, _ = ask(connection, "POST", INFER, b"no gzip", {"Content-Encoding": "gzip"})
    assert status == 400
    status, body, _ = ask(connection, "POST", INFER, gzip.compress(bytes(10**6))[:-9], {"Content-Encoding": "gzip"})
    assert status == 400
    assert "incomplete" in body["error"]


@pytest.mark.parametrize(
    ("accept", "encoding"),
    [
        ("gzip, deflate", "gzip"),
        ("gzip;q=0.1, deflate;q=0.5", "deflate"),
        ("gzip;q=0", None),
        ("identity, gzip;q=0.5", None),
        ("br", None),
        ("*", None),
        ("deflate, gzip", "deflate"),
    ],
)
def test_accept_encoding(connection: http.client.HTTPConnection, accept: str, encoding: str | None) -> None:
    body = body_of("INT32", [300], [0] * 300)
    status, _, headers = ask(connection, "POST", INFER, body, {"Accept-Encoding": accept})
    assert (status, headers.get("content-encoding")) == (200, encoding)


def test_requested_outputs_decide_their_own_encoding(connection: http.client.HTTPConnection) -> None:
    document = {
        "inputs": [{"name": f"INPUT{i}", "datatype": "INT32", "shape": [1], "data": [i]} for i in range(3)],
        "outputs": [
            {"name": "OUTPUT2"},  # named, so that the wish for all does not count
            {"name": "OUTPUT0", "parameters": {"binary_data": True}},
            {"name": "OUTPUT2", "parameters": {"binary_data": True}},  # asked for again: the first wish counts
        ],
        "parameters": {"binary_data_output": True},
    }
    status, answer, headers = ask(connection, "POST", INFER, document)
    size = int(headers["inference-header-content-length"])
    outputs = json.loads(answer[:size])["outputs"]
    assert outputs == [
        {"name": "OUTPUT0", "datatype": "INT32", "shape": [1], "parameters": {"binary_data_size": 4}},
        {"name": "OUTPUT2", "datatype": "INT32", "shape": [1], "data": [2]},
    ]
    assert answer[size:] == bytes(4)
    assert status == 200


def test_half_precision_output_needs_binary(connection: http.client.HTTPConnection) -> None:
    document = {
        "inputs": [
            {"name": "INPUT0", "datatype": "FP16", "shape": [1], "parameters": {"binary_data_size": 2}},
        ]
    }
    head = json.dumps(document).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    status, answer, _ = ask(connection, "POST", INFER, head + b"\0\0", headers)
    assert status == 400
    assert answer["error"].startswith("sending FP16 data via JSON is not supported.")


def test_lost_connection_cancels_the_request(port: int, dataplane: Any, loop_thread: Any) -> None:
    body = json.dumps(body_of("FP32", [1], [1])).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=20) as peer:
        peer.sendall(b"POST /v2/models/hold/infer HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        (request,) = dataplane.wait_for(1)
        cancelled = threading.Event()
        loop_thread.call(lambda: setattr(request, "on_cancel", lambda _: cancelled.set()))
    assert cancelled.wait(20)
    loop_thread.call(lambda: dataplane.answer(request))


def test_chunked_request_with_expect(port: int) -> None:
    body = json.dumps(body_of("FP32", [1], [1])).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=20) as peer:
        peer.sendall(
            b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
            b"Expect: 100-continue\r\nConnection: close\r\n\r\n"
        )
        assert peer.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        peer.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        answer = b""
        while chunk := peer.recv(65536):
            answer += chunk
    assert answer.startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("path", ["/v2/models/hold/infer", "/v2/models/hold/generate"])
def test_leaving_cancels_and_frees_what_is_parsed_elsewhere(
    port: int, dataplane: Any, connection: http.client.HTTPConnection, path: str
) -> None:
    large = json.dumps({**body_of("INT32", [600_000], [1] * 600_000), "INPUT0": [1.0] * 600_000}).encode()
    head = f"POST {path} HTTP/1.1\r\nContent-Length: {len(large)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(head + large)
    status, _, _ = ask(connection, "POST", INFER, large)  # parsed behind the other one
    assert status == 200
    assert [request.model_name for request in dataplane.requests if not request.cancelled] == ["echo"]


@pytest.mark.parametrize(
    "path", ["/v2/repository/index", "/v2/logging", "/v2/trace/setting", "/v2/repository/models/echo/unload"]
)
def test_calls_that_say_little_take_little(connection: http.client.HTTPConnection, path: str) -> None:
    status, answer, _ = ask(connection, "POST", path, b"{" + b" " * (1 << 20) + b"}")
    assert (status, answer) == (
        400,
        {"error": "request JSON size of 1048578 bytes exceeds the maximum of 1048576 bytes for this call"},
    )
