"""The gRPC frontend against grpcio and Triton's own client."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from serving_node.contract.proto import grpc_service_pb2 as pb
from serving_node.contract.proto import health_pb2
from serving_node.frontends.grpc import GrpcFrontend, GrpcLimits
from serving_node.wire.http2.frames import PREFACE

from .calls import SERVICE, Feed, infer_method, raw_request, stream_method


@pytest.fixture
def frontend(dataplane: Any, loop_thread: Any) -> Iterator[tuple[GrpcFrontend, int]]:
    frontend = loop_thread.call(lambda: GrpcFrontend(dataplane, GrpcLimits(max_message_bytes=64 << 20)))
    server = loop_thread.run(frontend.serve("127.0.0.1", 0))
    yield frontend, server.sockets[0].getsockname()[1]
    loop_thread.run(frontend.stop(1.0))


@pytest.fixture
def port(frontend: tuple[GrpcFrontend, int]) -> int:
    return frontend[1]


@pytest.fixture
def channel(port: int) -> Iterator[grpc.Channel]:
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        yield channel


@pytest.fixture
def client(port: int) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
        yield client


def test_triton_client_infers(client: triton.InferenceServerClient) -> None:
    arrays = {
        "INPUT0": np.arange(16, dtype=np.float32).reshape(1, 16),
        "INPUT1": np.array([["a", "ü", ""]], dtype=np.object_),
        "INPUT2": np.array([[True, False]]),
    }
    types = {"INPUT0": "FP32", "INPUT1": "BYTES", "INPUT2": "BOOL"}
    inputs = []
    for name, array in arrays.items():
        tensor = triton.InferInput(name, array.shape, types[name])
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    for request_id in ("", "7"):
        result = client.infer("echo", inputs, request_id=request_id)
        assert result.get_response().id == request_id
        assert result.get_response().model_version == "1"
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), arrays["INPUT0"])
        assert result.as_numpy("OUTPUT1").tolist() == [[b"a", "ü".encode(), b""]]
        np.testing.assert_array_equal(result.as_numpy("OUTPUT2"), arrays["INPUT2"])


def test_triton_client_asks_for_outputs_and_parameters(client: triton.InferenceServerClient, dataplane: Any) -> None:
    tensors = []
    for name in ("INPUT0", "INPUT1"):
        tensor = triton.InferInput(name, [1, 2], "INT32")
        tensor.set_data_from_numpy(np.array([[1, 2]], dtype=np.int32))
        tensors.append(tensor)
    result = client.infer(
        "echo",
        tensors,
        outputs=[triton.InferRequestedOutput("OUTPUT1")],
        sequence_id=42,
        sequence_start=True,
        priority=3,
        timeout=5000,
        parameters={"mine": "x", "n": 7, "yes": True},
        headers={"flotilla-sticky-key": "alice"},
    )
    assert [output.name for output in result.get_response().outputs] == ["OUTPUT1"]
    request = dataplane.requests[0]
    assert (request.sequence_id, request.sequence_start, request.sequence_end) == (42, True, False)
    assert (request.priority, request.timeout_us) == (3, 5000)
    assert request.parameters == {"mine": "x", "n": 7, "yes": True}
    assert request.sticky_key == "alice"
    parameters = result.get_response().parameters
    assert (parameters["mine"].string_param, parameters["n"].int64_param) == ("x", 7)


def test_classification(client: triton.InferenceServerClient) -> None:
    tensor = triton.InferInput("INPUT0", [2, 3], "FP32")
    tensor.set_data_from_numpy(np.array([[0.1, 0.7, 0.2], [3, 1, 2]], dtype=np.float32))
    result = client.infer("echo", [tensor], outputs=[triton.InferRequestedOutput("OUTPUT0", class_count=2)])
    assert result.as_numpy("OUTPUT0").tolist() == [[b"0.700000:1", b"0.200000:2"], [b"3.000000:0", b"2.000000:2"]]


def test_triton_client_reads_everything_else(client: triton.InferenceServerClient, dataplane: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("echo")
    assert not client.is_model_ready("nothing")
    assert client.get_server_metadata().version == "1.2"
    metadata = client.get_model_metadata("echo")
    assert (metadata.inputs[0].name, list(metadata.inputs[0].shape)) == ("INPUT0", [-1, 4])
    assert client.get_model_config("echo").config.max_batch_size == 8
    assert client.get_inference_statistics("echo").model_stats[0].inference_count == 5
    index = client.get_model_repository_index().models
    assert [(row.name, row.state) for row in index] == [("echo", "READY"), ("broken", "UNAVAILABLE"), ("never", "")]
    client.load_model("echo", config='{"a": 1}', files={"file:1/model.onnx": b"xyz"})
    client.unload_model("echo", unload_dependents=True)
    assert dataplane.calls == [("load", "echo", '{"a": 1}', {"1/model.onnx": b"xyz"}), ("unload", "echo", True)]
    assert client.get_log_settings().settings["log_info"].bool_param
    assert client.update_log_settings({"log_verbose_level": 2}).settings["log_verbose_level"].uint32_param == 2
    assert client.get_trace_settings().settings["trace_level"].value == ["OFF"]
    assert list(client.get_system_shared_memory_status().regions) == []


@pytest.mark.parametrize(
    ("call", "status", "text"),
    [
        (lambda c: c.get_model_config("x"), "NOT_FOUND", "Request for unknown model: 'x' is not found"),
        (lambda c: c.get_model_metadata("x"), "NOT_FOUND", "Request for unknown model: 'x' is not found"),
        (lambda c: c.get_inference_statistics("x"), "INVALID_ARGUMENT", "requested model 'x' is not available"),
        (lambda c: c.load_model("unknown"), "INTERNAL", "failed to poll from model repository"),
        (lambda c: c.register_system_shared_memory("r", "/k", 8), "UNIMPLEMENTED", "shared memory is disabled"),
        (lambda c: c.get_system_shared_memory_status("r"), "NOT_FOUND", "shared memory region: 'r'"),
        (
            lambda c: c.update_trace_settings(settings={"trace_level": ["TENSORS"]}),
            "INVALID_ARGUMENT",
            "trace file name",
        ),
    ],
)
def test_errors_reach_triton_client(client: triton.InferenceServerClient, call: Any, status: str, text: str) -> None:
    with pytest.raises(InferenceServerException) as caught:
        call(client)
    assert caught.value.status() == f"StatusCode.{status}"
    assert text in caught.value.message()


def test_managed_node_refuses_changes(client: triton.InferenceServerClient, dataplane: Any) -> None:
    dataplane.managed = True
    for call in (
        lambda: client.load_model("echo"),
        lambda: client.unload_model("echo"),
        lambda: client.update_log_settings({"log_info": False}),
    ):
        with pytest.raises(InferenceServerException) as caught:
            call()
        assert caught.value.status() == "StatusCode.UNAVAILABLE"


@pytest.mark.parametrize(
    ("model", "status", "text"),
    [
        ("refuse", grpc.StatusCode.INVALID_ARGUMENT, "refused: 100% “bad”\n"),
        ("fail", grpc.StatusCode.UNAVAILABLE, "Exceeds maximum queue size"),
        ("crash", grpc.StatusCode.INTERNAL, "internal error"),
        ("x", grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'x' is not found"),
        ("twice", grpc.StatusCode.INTERNAL, "expected a single response, got 2"),
    ],
)
def test_infer_errors(channel: grpc.Channel, model: str, status: grpc.StatusCode, text: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        infer_method(channel)(raw_request(b"abc", model), timeout=20)
    assert caught.value.code() is status
    assert caught.value.details() == text


def test_final_flag_apart_from_the_response_is_merged(channel: grpc.Channel) -> None:
    response = infer_method(channel)(raw_request(b"abc", "split"), timeout=20)
    assert response.raw_output_contents == [b"abc"]


@pytest.mark.parametrize(
    ("datatype", "field", "values", "raw"),
    [
        ("BOOL", "bool_contents", [True, False], b"\1\0"),
        ("INT8", "int_contents", [-1, 2], b"\xff\2"),
        ("UINT16", "uint_contents", [1, 65535], b"\1\0\xff\xff"),
        ("INT64", "int64_contents", [-2], b"\xfe" + b"\xff" * 7),
        ("FP32", "fp32_contents", [1.0], b"\0\0\x80\x3f"),
        ("FP64", "fp64_contents", [1.0], b"\0" * 6 + b"\xf0\x3f"),
        ("BYTES", "bytes_contents", [b"ab", b""], b"\2\0\0\0ab\0\0\0\0"),
    ],
)
def test_typed_contents(channel: grpc.Channel, datatype: str, field: str, values: list[Any], raw: bytes) -> None:
    request = pb.ModelInferRequest(model_name="echo")
    tensor = request.inputs.add(name="INPUT0", datatype=datatype, shape=[len(values)])
    getattr(tensor.contents, field).extend(values)
    assert infer_method(channel)(request, timeout=20).raw_output_contents == [raw]


def test_large_typed_contents_are_converted_in_another_process(channel: grpc.Channel) -> None:
    array = np.arange(400_000, dtype=np.float32)
    request = pb.ModelInferRequest(model_name="echo", id="big")
    tensor = request.inputs.add(name="INPUT0", datatype="FP32", shape=[len(array)])
    tensor.contents.fp32_contents.extend(array.tolist())
    response = infer_method(channel)(request, timeout=60)
    assert response.raw_output_contents[0] == array.tobytes()
    assert response.id == "big"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda r: r.raw_input_contents.pop(), "unable to find data for input tensor 'INPUT0' for model 'echo'"),
        (
            lambda r: r.inputs[0].contents.int_contents.append(1),
            "contents field must not be specified when using raw_input_contents for 'INPUT0' for model 'echo'",
        ),
        (lambda r: r.parameters["timeout"].MergeFrom(pb.InferParameter(string_param="1")), "expected int64_param."),
        (
            lambda r: r.parameters["sequence_start"].MergeFrom(pb.InferParameter(int64_param=1)),
            "expected bool_param.",
        ),
        (
            lambda r: r.parameters["triton_x"].MergeFrom(pb.InferParameter(int64_param=1)),
            "parameter keys starting with 'triton_' are reserved",
        ),
    ],
)
def test_bad_infer_requests(channel: grpc.Channel, change: Any, text: str) -> None:
    request = raw_request(b"abc")
    change(request)
    with pytest.raises(grpc.RpcError) as caught:
        infer_method(channel)(request, timeout=20)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert text in caught.value.details()


def test_wrong_typed_contents(channel: grpc.Channel) -> None:
    request = pb.ModelInferRequest(model_name="echo")
    tensor = request.inputs.add(name="INPUT0", datatype="FP32", shape=[1])
    tensor.contents.int_contents.append(1)
    with pytest.raises(grpc.RpcError) as caught:
        infer_method(channel)(request, timeout=20)
    assert caught.value.details() == (
        "unexpected explicit tensor data for input tensor 'INPUT0' for model 'echo' of type 'INT32',"
        " expected datatype 'FP32'"
    )


def test_garbage_message_is_refused(channel: grpc.Channel) -> None:
    send = channel.unary_unary(SERVICE + "ModelInfer")
    for message in (b"\xff\xff\xff", b"\x0a\x05ab", b"\x3a\xff\xff\xff\xff\xff\xff\xff", b"\x0a\x01\xff"):
        with pytest.raises(grpc.RpcError) as caught:
            send(message, timeout=20)
        assert caught.value.code() is grpc.StatusCode.INTERNAL


def test_unknown_fields_are_ignored(channel: grpc.Channel) -> None:
    send = channel.unary_unary(SERVICE + "ModelInfer", response_deserializer=pb.ModelInferResponse.FromString)
    message = b"\xa0\x06\x01" + raw_request(b"abc").SerializeToString() + b"\x9a\x06\x02hi"
    assert send(message, timeout=20).raw_output_contents == [b"abc"]


def test_unknown_method(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/a/b")(b"", timeout=20)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_health(channel: grpc.Channel, dataplane: Any) -> None:
    check = channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
    assert check(health_pb2.HealthCheckRequest(), timeout=20).status == health_pb2.HealthCheckResponse.SERVING
    dataplane.is_ready = False
    assert check(health_pb2.HealthCheckRequest(), timeout=20).status == health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.mark.parametrize("size", [0, 1, 16_000, 17_000, 100_000, 300_000, 16 << 20])
def test_messages_of_all_sizes(channel: grpc.Channel, size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    assert infer_method(channel)(raw_request(data), timeout=60).raw_output_contents == [data]


def test_message_over_the_limit(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        infer_method(channel)(raw_request(bytes(65 << 20)), timeout=60)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
@pytest.mark.parametrize("size", [100, 4_000_000])
def test_compressed_requests(channel: grpc.Channel, compression: grpc.Compression, size: int) -> None:
    data = np.random.default_rng(1).integers(0, 4, size, np.uint8).tobytes()
    response = infer_method(channel)(raw_request(data), compression=compression, timeout=60)
    assert response.raw_output_contents == [data]


def test_compression_bomb_is_refused(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        infer_method(channel)(raw_request(bytes(70 << 20)), compression=grpc.Compression.Gzip, timeout=60)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_many_concurrent_calls(channel: grpc.Channel) -> None:
    infer = infer_method(channel)
    payloads = [np.random.default_rng(index).bytes(index * 97 % 60_000) for index in range(300)]
    futures = [infer.future(raw_request(data, request_id=str(index))) for index, data in enumerate(payloads)]
    for index, future in enumerate(futures):
        response = future.result(60)
        assert (response.id, response.raw_output_contents[0]) == (str(index), payloads[index])


def test_client_cancellation_cancels_the_request(channel: grpc.Channel, dataplane: Any, loop_thread: Any) -> None:
    future = infer_method(channel).future(raw_request(b"abc", "hold"))
    (request,) = dataplane.wait_for(1)
    cancelled = threading.Event()
    loop_thread.call(lambda: setattr(request, "on_cancel", lambda _: cancelled.set()))
    future.cancel()
    assert cancelled.wait(20)
    loop_thread.call(lambda: dataplane.answer(request))


def test_client_deadline_cancels_the_request(channel: grpc.Channel, dataplane: Any, loop_thread: Any) -> None:
    grpc.channel_ready_future(channel).result(30)
    future = infer_method(channel).future(raw_request(b"abc", "hold"), timeout=1.5)
    (request,) = dataplane.wait_for(1)
    assert request.deadline_ns > 0
    cancelled = threading.Event()
    loop_thread.call(lambda: setattr(request, "on_cancel", lambda _: cancelled.set()))
    assert future.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert cancelled.wait(20)


def test_lost_connection_cancels_the_request(port: int, dataplane: Any, loop_thread: Any) -> None:
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    future = infer_method(channel).future(raw_request(b"abc", "hold"))
    (request,) = dataplane.wait_for(1)
    cancelled = threading.Event()
    loop_thread.call(lambda: setattr(request, "on_cancel", lambda _: cancelled.set()))
    channel.close()
    assert cancelled.wait(20)
    future.cancel()


def test_stream_keeps_order_and_drains_after_half_close(
    channel: grpc.Channel, dataplane: Any, loop_thread: Any
) -> None:
    feed = Feed()
    for model, request_id in (("hold", "1"), ("echo", "2"), ("refuse", "3"), ("hold", "4")):
        feed.put(raw_request(b"abc", model, request_id))
    feed.put(None)
    responses = stream_method(channel)(iter(feed), timeout=30)
    requests = dataplane.wait_for(4)
    loop_thread.call(lambda: dataplane.answer(requests[3]))
    loop_thread.call(lambda: dataplane.answer(requests[0]))
    got = list(responses)
    assert [response.infer_response.id for response in got] == ["1", "2", "3", "4"]
    assert [response.error_message[:7] for response in got] == ["", "", "refused", ""]
    finals = [response.infer_response.parameters["triton_final_response"].bool_param for response in got]
    assert finals == [True, True, False, True]  # what no model has got has no such parameter


def test_stream_of_a_decoupled_model(channel: grpc.Channel) -> None:
    feed = Feed()
    feed.put(raw_request(b"abc", "twice", "1"))
    wanting = raw_request(b"abc", "twice", "2")
    wanting.parameters["triton_enable_empty_final_response"].bool_param = True
    feed.put(wanting)
    feed.put(None)
    got = list(stream_method(channel)(iter(feed), timeout=30))
    finals = [(r.infer_response.id, r.infer_response.parameters["triton_final_response"].bool_param) for r in got]
    assert finals == [("1", False), ("1", False), ("2", False), ("2", False), ("2", True)]


def test_cancelled_stream_cancels_its_requests(channel: grpc.Channel, dataplane: Any, loop_thread: Any) -> None:
    feed = Feed()
    for request_id in "12":
        feed.put(raw_request(b"abc", "hold", request_id))
    responses = stream_method(channel)(iter(feed))
    requests = dataplane.wait_for(2)
    cancelled = [threading.Event(), threading.Event()]
    for request, event in zip(requests, cancelled, strict=True):
        loop_thread.call(lambda r=request, e=event: setattr(r, "on_cancel", lambda _: e.set()))
    responses.cancel()
    assert all(event.wait(20) for event in cancelled)
    feed.put(None)


def test_stream_with_a_slow_reader(channel: grpc.Channel) -> None:
    data = np.random.default_rng(5).bytes(1 << 20)
    feed = Feed()
    for index in range(30):
        feed.put(raw_request(data, request_id=str(index)))
    feed.put(None)
    responses = stream_method(channel)(iter(feed), timeout=60)
    first = next(responses)
    # another call is served while the stream's answers wait for the reader
    assert infer_method(channel)(raw_request(b"abc"), timeout=30).raw_output_contents == [b"abc"]
    rest = list(responses)
    assert [response.infer_response.id for response in [first, *rest]] == [str(index) for index in range(30)]
    assert all(response.infer_response.raw_output_contents == [data] for response in [first, *rest])


def test_more_stream_requests_than_may_be_pending(channel: grpc.Channel, dataplane: Any, loop_thread: Any) -> None:
    feed = Feed()
    for index in range(600):
        feed.put(raw_request(b"a", "hold" if index == 0 else "echo", str(index)))
    feed.put(None)
    responses = stream_method(channel)(iter(feed), timeout=60)
    (first, *_) = dataplane.wait_for(256)
    loop_thread.call(lambda: dataplane.answer(first))
    assert [response.infer_response.id for response in responses] == [str(index) for index in range(600)]


def test_triton_stream_client(client: triton.InferenceServerClient) -> None:
    results: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(lambda result, error: results.put((result, error)))
    tensor = triton.InferInput("INPUT0", [1, 2], "INT32")
    tensor.set_data_from_numpy(np.array([[1, 2]], dtype=np.int32))
    client.async_stream_infer("echo", [tensor], request_id="a")
    client.async_stream_infer("refuse", [tensor], request_id="b")
    result, error = results.get(timeout=20)
    assert error is None
    assert result.as_numpy("OUTPUT0").tolist() == [[1, 2]]
    result, error = results.get(timeout=20)
    assert "refused" in error.message()
    client.stop_stream()


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", PREFACE + b"\xff" * 40, PREFACE + bytes(9), b"\x16\x03\x01" + bytes(40)]
)
def test_bad_bytes_close_the_connection(port: int, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as peer:
        peer.sendall(data)
        received = b""
        while chunk := peer.recv(65536):
            received += chunk
        assert b"\x00\x00" in received  # SETTINGS, GOAWAY


def connect_until_refused(port: int) -> None:
    while True:
        with contextlib.suppress(ConnectionResetError):  # it was accepted just before the socket closed
            socket.create_connection(("127.0.0.1", port), timeout=30).close()


def test_stop_lets_calls_finish_and_refuses_new_ones(
    frontend: tuple[GrpcFrontend, int], channel: grpc.Channel, dataplane: Any, loop_thread: Any
) -> None:
    server, port = frontend
    future = infer_method(channel).future(raw_request(b"abc", "hold"))
    (request,) = dataplane.wait_for(1)
    stopped = threading.Thread(target=lambda: loop_thread.run(server.stop(20)))
    stopped.start()
    with pytest.raises(ConnectionRefusedError):
        connect_until_refused(port)
    loop_thread.call(lambda: dataplane.answer(request))
    assert future.result(20).raw_output_contents == [b"abc"]
    stopped.join(20)
    assert not stopped.is_alive()
