"""What Triton's public example programs do, done by programs of ours: inference over both protocols."""

from __future__ import annotations

import queue
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any
from uuid import uuid4

import grpc as grpc_library
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio
import tritonclient.http as triton_http
import tritonclient.http.aio as triton_http_aio
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.http.auth import BasicAuth
from tritonclient.utils import InferenceServerException

from tests.serving_node.server.processes import NodeProcess

from .conftest import Serve

A = np.arange(16, dtype=np.int32).reshape(1, 16)
B = np.full((1, 16), 3, np.int32)
NAMES = (
    "simple",
    "simple_int8",
    "simple_string",
    "simple_identity",
    "custom_identity_int32",
    "identity_fp32",
    "densenet_onnx",
)


@pytest.fixture(scope="module")
def node(serve: Serve) -> Iterator[NodeProcess]:
    with serve(*NAMES) as node:
        yield node


def texts(*values: object) -> np.ndarray[Any, Any]:
    return np.array([str(value).encode() for value in values], np.object_).reshape(1, -1)


def pair(library: Any, a: np.ndarray[Any, Any] = A, b: np.ndarray[Any, Any] = B, kind: str = "INT32") -> list[Any]:
    inputs = [library.InferInput(f"INPUT{number}", list(a.shape), kind) for number in (0, 1)]
    for tensor, array in zip(inputs, (a, b), strict=True):
        tensor.set_data_from_numpy(array)
    return inputs


def wanted(library: Any, *names: str, **more: Any) -> list[Any]:
    return [library.InferRequestedOutput(name, **more) for name in names]


def check(result: Any) -> None:
    assert np.array_equal(result.as_numpy("OUTPUT0"), A + B)
    assert np.array_equal(result.as_numpy("OUTPUT1"), A - B)


# -- one request, one answer


def test_all_outputs_come_without_being_asked_for(protocol: tuple[Any, Any]) -> None:
    library, client = protocol
    check(client.infer("simple", pair(library)))


def test_only_the_requested_output_comes(protocol: tuple[Any, Any]) -> None:
    library, client = protocol
    result = client.infer(
        "simple", pair(library), outputs=wanted(library, "OUTPUT1"), request_id="7", model_version="1"
    )
    assert np.array_equal(result.as_numpy("OUTPUT1"), A - B)
    assert result.as_numpy("OUTPUT0") is None
    response = result.get_response()
    assert (response["id"] if isinstance(response, dict) else response.id) == "7"


def test_json_tensors_both_ways(http: triton_http.InferenceServerClient) -> None:
    inputs = pair(triton_http)
    for tensor, array in zip(inputs, (A, B), strict=True):
        tensor.set_data_from_numpy(array, binary_data=False)
    check(http.infer("simple", inputs, outputs=wanted(triton_http, "OUTPUT0", "OUTPUT1", binary_data=False)))
    result = http.infer("simple", inputs, outputs=wanted(triton_http, "OUTPUT0", binary_data=True))
    assert np.array_equal(result.as_numpy("OUTPUT0"), A + B)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_requests_and_answers(node: NodeProcess, algorithm: str) -> None:
    with triton_http.InferenceServerClient(f"127.0.0.1:{node.http}") as client:
        compressed = {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}
        check(client.infer("simple", pair(triton_http), **compressed))
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{node.grpc}") as client:
        check(client.infer("simple", pair(triton_grpc), compression_algorithm=algorithm))


def test_headers_query_parameters_and_a_plugin_do_no_harm(node: NodeProcess) -> None:
    with triton_http.InferenceServerClient(f"127.0.0.1:{node.http}") as client:
        client.register_plugin(BasicAuth("somebody", "secret"))
        check(client.infer("simple", pair(triton_http), headers={"test": "1"}, query_params={"a": 1, "b": [2, 3]}))
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{node.grpc}") as client:
        check(client.infer("simple", pair(triton_grpc), headers={"test": "1"}, client_timeout=30))


def test_objects_of_a_request_are_used_again(protocol: tuple[Any, Any]) -> None:
    library, client = protocol
    inputs, outputs = pair(library), wanted(library, "OUTPUT0", "OUTPUT1")
    for factor in (1, 2, 3):
        inputs[0].set_data_from_numpy(A * factor)
        result = client.infer("simple", inputs, outputs=outputs)
        assert np.array_equal(result.as_numpy("OUTPUT0"), A * factor + B)


def test_many_short_connections(node: NodeProcess) -> None:
    for library, port in ((triton_http, node.http), (triton_grpc, node.grpc)):
        given = library.InferInput("INPUT0", [1, 16], "INT32")
        given.set_data_from_numpy(A)
        for _ in range(25):
            with library.InferenceServerClient(f"127.0.0.1:{port}") as client:
                assert np.array_equal(client.infer("custom_identity_int32", [given]).as_numpy("OUTPUT0"), A)


def test_classes_of_an_output(protocol: tuple[Any, Any]) -> None:
    library, client = protocol
    given = library.InferInput("INPUT0", [2, 3], "FP32")
    given.set_data_from_numpy(np.array([[0.5, 2, 1], [7, 6, 5]], np.float32))
    result = client.infer("identity_fp32", [given], outputs=wanted(library, "OUTPUT0", class_count=2))
    assert result.as_numpy("OUTPUT0").tolist() == [
        [b"2.000000:1", b"1.000000:2"],
        [b"7.000000:0", b"6.000000:1"],
    ]


def test_classes_have_the_names_of_the_label_file(protocol: tuple[Any, Any]) -> None:
    library, client = protocol
    image = library.InferInput("data_0", [3, 224, 224], "FP32")
    image.set_data_from_numpy(np.zeros((3, 224, 224), np.float32))
    result = client.infer("densenet_onnx", [image], outputs=wanted(library, "fc6_1", class_count=2))
    assert result.as_numpy("fc6_1").tolist() == [b"1.000000:999:class 999", b"0.998999:998:class 998"]


# -- strings


def test_strings_of_numbers(protocol: tuple[Any, Any]) -> None:
    library, client = protocol
    result = client.infer("simple_string", pair(library, texts(*range(16)), texts(*[1] * 16), "BYTES"))
    assert [int(text) for text in result.as_numpy("OUTPUT0")[0]] == list(range(1, 17))
    assert [int(text) for text in result.as_numpy("OUTPUT1")[0]] == list(range(-1, 15))


@pytest.mark.parametrize(
    "values",
    [[b"one", b"", b"\0in the \0 middle\0"], ["zwölf".encode(), "三".encode()], [b"x" * 100_000]],
    ids=["zeros", "unicode", "long"],
)
def test_strings_come_back_as_they_went(protocol: tuple[Any, Any], values: list[bytes]) -> None:
    library, client = protocol
    array = np.array(values, np.object_).reshape(1, -1)
    given = library.InferInput("INPUT0", list(array.shape), "BYTES")
    given.set_data_from_numpy(array)
    assert client.infer("simple_identity", [given]).as_numpy("OUTPUT0").tolist() == [values]


def test_strings_as_json(http: triton_http.InferenceServerClient) -> None:
    array = np.array([["one", "zwölf", ""]], np.object_)
    given = triton_http.InferInput("INPUT0", [1, 3], "BYTES")
    given.set_data_from_numpy(array, binary_data=False)
    result = http.infer("simple_identity", [given], outputs=wanted(triton_http, "OUTPUT0", binary_data=False))
    assert result.as_numpy("OUTPUT0").tolist() == array.tolist()


# -- the generated stub, with typed contents


@pytest.mark.parametrize(
    ("model", "datatype", "field", "values", "dtype"),
    [
        ("simple", "INT32", "int_contents", list(range(16)), np.int32),
        ("simple_int8", "INT8", "int_contents", list(range(16)), np.int8),
        ("simple_string", "BYTES", "bytes_contents", [str(number).encode() for number in range(16)], None),
    ],
)
def test_typed_contents(
    node: NodeProcess, model: str, datatype: str, field: str, values: list[Any], dtype: type[Any] | None
) -> None:
    request = service_pb2.ModelInferRequest(model_name=model, id="my request")
    for name in ("INPUT0", "INPUT1"):
        tensor = request.inputs.add(name=name, datatype=datatype, shape=[1, 16])
        getattr(tensor.contents, field).extend(values)
    for name in ("OUTPUT0", "OUTPUT1"):
        request.outputs.add(name=name)
    with grpc_library.insecure_channel(f"127.0.0.1:{node.grpc}") as channel:
        response = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=30)
    assert (response.id, [output.name for output in response.outputs]) == ("my request", ["OUTPUT0", "OUTPUT1"])
    sums, differences = (triton_grpc.InferResult(response).as_numpy(name) for name in ("OUTPUT0", "OUTPUT1"))
    assert [int(value) for value in sums[0]] == [2 * int(value) for value in values]
    assert [int(value) for value in differences[0]] == [0] * 16
    assert dtype is None or sums.dtype == dtype


# -- many at once


def test_many_at_once_over_http(http: triton_http.InferenceServerClient) -> None:
    waiting = [http.async_infer("simple", pair(triton_http), request_id=str(number)) for number in range(12)]
    for number, request in enumerate(waiting):
        result = request.get_result()
        check(result)
        assert result.get_response()["id"] == str(number)


def test_many_at_once_over_grpc(grpc: triton_grpc.InferenceServerClient) -> None:
    done: queue.Queue[tuple[Any, Any]] = queue.Queue()
    for _ in range(12):
        grpc.async_infer(
            "simple", pair(triton_grpc), lambda result, error: done.put((result, error)), client_timeout=30
        )
    for _ in range(12):
        result, error = done.get(timeout=30)
        assert error is None
        check(result)


async def test_asyncio_over_http(node: NodeProcess) -> None:
    async with triton_http_aio.InferenceServerClient(f"127.0.0.1:{node.http}") as client:
        assert await client.is_server_ready()
        check(await client.infer("simple", pair(triton_http), outputs=wanted(triton_http, "OUTPUT0", "OUTPUT1")))


async def test_asyncio_over_grpc(node: NodeProcess) -> None:
    async with triton_grpc_aio.InferenceServerClient(f"127.0.0.1:{node.grpc}") as client:
        assert await client.is_model_ready("simple")
        check(await client.infer("simple", pair(triton_grpc), outputs=wanted(triton_grpc, "OUTPUT0", "OUTPUT1")))


async def test_asyncio_stream_over_grpc(node: NodeProcess) -> None:
    async def requests() -> AsyncIterator[dict[str, Any]]:
        for number in range(5):
            yield {"model_name": "simple", "inputs": pair(triton_grpc), "request_id": str(number)}

    async with triton_grpc_aio.InferenceServerClient(f"127.0.0.1:{node.grpc}") as client:
        seen = []
        async for result, error in client.stream_infer(requests()):
            assert error is None
            check(result)
            seen.append(result.get_response().id)
    assert seen == ["0", "1", "2", "3", "4"]


# -- channels


def test_keep_alive_and_channel_arguments(node: NodeProcess) -> None:
    options = triton_grpc.KeepAliveOptions(
        keepalive_time_ms=2**31 - 1,
        keepalive_timeout_ms=20000,
        keepalive_permit_without_calls=False,
        http2_max_pings_without_data=2,
    )
    arguments = [("grpc.primary_user_agent", "flotilla-test"), ("grpc.max_receive_message_length", 1 << 20)]
    for more in ({"keepalive_options": options}, {"channel_args": arguments}):
        with triton_grpc.InferenceServerClient(f"127.0.0.1:{node.grpc}", **more) as client:
            check(client.infer("simple", pair(triton_grpc)))


# -- everything else that can be asked


def test_health_and_metadata(protocol: tuple[Any, Any]) -> None:
    library, client = protocol
    plain = {} if library is triton_http else {"as_json": True}
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("simple")
    assert not client.is_model_ready("nobody")
    server = client.get_server_metadata(**plain)
    assert server["name"] == "triton"
    assert "system_shared_memory" in server["extensions"]
    metadata = client.get_model_metadata("simple", **plain)
    assert (metadata["name"], metadata["versions"]) == ("simple", ["1"])
    assert [int(size) for size in metadata["inputs"][0]["shape"]] == [-1, 16]
    config = client.get_model_config("simple", **plain)
    assert config.get("config", config)["max_batch_size"] == 8
    rows = client.get_model_repository_index(**plain)
    assert sorted(row["name"] for row in (rows["models"] if isinstance(rows, dict) else rows)) == sorted(NAMES)


def test_statistics_count_requests(protocol: tuple[Any, Any]) -> None:
    library, client = protocol
    plain = {} if library is triton_http else {"as_json": True}

    def successes() -> int:
        (row,) = client.get_inference_statistics("simple", **plain)["model_stats"]
        return int(row["inference_stats"]["success"]["count"])

    client.infer("simple", pair(library))
    before = successes()
    client.infer("simple", pair(library))
    assert successes() == before + 1


@pytest.mark.parametrize(
    ("model", "size", "text"),
    [("nobody", 16, "Request for unknown model: 'nobody' is not found"), ("simple", 15, "unexpected shape for input")],
)
def test_mistakes_are_named(protocol: tuple[Any, Any], model: str, size: int, text: str) -> None:
    library, client = protocol
    short = np.zeros((1, size), np.int32)
    with pytest.raises(InferenceServerException, match=text):
        client.infer(model, pair(library, short, short))


def test_a_stream_goes_on_after_a_mistake(grpc: triton_grpc.InferenceServerClient) -> None:
    done: queue.Queue[tuple[Any, Any]] = queue.Queue()
    grpc.start_stream(partial(lambda result, error: done.put((result, error))))
    key = str(uuid4())
    grpc.async_stream_infer("nobody", pair(triton_grpc), request_id=key)
    grpc.async_stream_infer("simple", pair(triton_grpc), request_id=key)
    _, error = done.get(timeout=30)
    assert "unknown model" in str(error)
    result, error = done.get(timeout=30)
    assert error is None
    check(result)
    grpc.stop_stream()
