"""Shared memory through both protocols, with Triton's own clients and with raw requests."""

from __future__ import annotations

import base64
import gc
import http.client
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException, serialize_byte_tensor, serialized_byte_size, shared_memory

from serving_node.contract.errors import ErrorCode
from serving_node.contract.proto import grpc_service_pb2 as pb
from serving_node.core.errors import InferenceError
from serving_node.frontends.grpc import GrpcFrontend
from serving_node.frontends.http import HttpFrontend
from serving_node.frontends.shared_memory import RegionKind, SharedMemory

MakeObject = Callable[..., str]


@dataclass
class Ports:
    """Where both frontends over one registry listen."""

    http: int
    grpc: int
    memory: SharedMemory


def serve(dataplane: Any, loop_thread: Any, memory: SharedMemory) -> Iterator[Ports]:
    http_frontend = loop_thread.call(lambda: HttpFrontend(dataplane, memory=memory))
    grpc_frontend = loop_thread.call(lambda: GrpcFrontend(dataplane, memory=memory))
    servers = [loop_thread.run(frontend.serve("127.0.0.1", 0)) for frontend in (http_frontend, grpc_frontend)]
    numbers = [server.sockets[0].getsockname()[1] for server in servers]
    yield Ports(numbers[0], numbers[1], memory)
    for frontend in (http_frontend, grpc_frontend):
        loop_thread.run(frontend.stop(1.0))


@pytest.fixture
def ports(dataplane: Any, loop_thread: Any) -> Iterator[Ports]:
    yield from serve(dataplane, loop_thread, SharedMemory())


def content(key: str, size: int) -> bytes:
    return Path("/dev/shm", key.lstrip("/")).read_bytes()[:size]


def post(port: int, path: str, body: Any = None, binary: bytes = b"") -> tuple[int, Any]:
    """POST JSON, with binary tensors behind it, and return the status and the parsed answer."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
    headers = {"Inference-Header-Content-Length": str(len(text))} if binary else {}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("POST", path, text + binary, headers)
        answer = connection.getresponse()
        raw = answer.read()
        return answer.status, json.loads(raw) if raw else None
    finally:
        connection.close()


def infer(port: int, inputs: list[Any], outputs: list[Any] | None = None, model: str = "echo", **more: Any) -> Any:
    body = {"inputs": inputs, **({} if outputs is None else {"outputs": outputs})}
    return post(port, f"/v2/models/{model}/infer", body, **more)


def place(region: Any, size: Any = 16, offset: Any = 0) -> dict[str, Any]:
    return {"shared_memory_region": region, "shared_memory_byte_size": size, "shared_memory_offset": offset}


def x(parameters: dict[str, Any], name: str = "INPUT0", **more: Any) -> dict[str, Any]:
    return {"name": name, "datatype": "FP32", "shape": [4], "parameters": parameters, **more}


def y(parameters: dict[str, Any], name: str = "OUTPUT0") -> dict[str, Any]:
    return {"name": name, "parameters": parameters}


FOUR = np.arange(4, dtype=np.float32)


@pytest.fixture
def regions(ports: Ports, shm: MakeObject, loop_thread: Any) -> tuple[str, str]:
    """Register "in", which begins with FOUR, and "out". Return their keys."""
    keys = shm(64, FOUR.tobytes()), shm(64)
    for name, key in zip(("in", "out"), keys, strict=True):
        loop_thread.call(lambda name=name, key=key: ports.memory.register_system(name, key, 0, 64))
    return keys


# -- Triton's clients


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_triton_clients_send_and_receive_tensors_through_regions(ports: Ports, protocol: str) -> None:
    triton: Any = triton_http if protocol == "http" else triton_grpc
    texts = np.array([b"one", b"", "zwölf".encode()], np.object_)
    wire = serialize_byte_tensor(texts)
    handles = [
        shared_memory.create_shared_memory_region(f"{protocol}_{part}", f"/flotilla-test-{protocol}-{part}", 256)
        for part in ("in", "out")
    ]
    try:
        with triton.InferenceServerClient(f"127.0.0.1:{getattr(ports, protocol)}") as client:
            for handle, part in zip(handles, ("in", "out"), strict=True):
                client.register_system_shared_memory(handle._triton_shm_name, f"/flotilla-test-{protocol}-{part}", 256)
            shared_memory.set_shared_memory_region(handles[0], [FOUR, wire])
            inputs = [triton.InferInput("INPUT0", [4], "FP32"), triton.InferInput("INPUT1", [3], "BYTES")]
            inputs[0].set_shared_memory(f"{protocol}_in", 16)
            inputs[1].set_shared_memory(f"{protocol}_in", serialized_byte_size(wire), 16)
            outputs = [triton.InferRequestedOutput("OUTPUT0"), triton.InferRequestedOutput("OUTPUT1")]
            outputs[0].set_shared_memory(f"{protocol}_out", 16)
            outputs[1].set_shared_memory(f"{protocol}_out", 200, 16)
            client.infer("echo", inputs, outputs=outputs)
            got = shared_memory.get_contents_as_numpy(handles[1], np.float32, [4])
            assert got.tolist() == FOUR.tolist()
            got = shared_memory.get_contents_as_numpy(handles[1], np.object_, [3], 16)
            assert got.tolist() == texts.tolist()
            client.unregister_system_shared_memory(f"{protocol}_in")
            status = client.get_system_shared_memory_status()
            assert f"{protocol}_out" in str(status)
            assert f"{protocol}_in" not in str(status)
            client.unregister_system_shared_memory()
    finally:
        for handle in handles:
            shared_memory.destroy_shared_memory_region(handle)
    assert ports.memory.status(RegionKind.SYSTEM, "") == []


def test_both_protocols_see_the_same_regions(ports: Ports, shm: MakeObject) -> None:
    key = shm(64)
    with triton_http.InferenceServerClient(f"127.0.0.1:{ports.http}") as client:
        client.register_system_shared_memory("a b ü", key, 64)
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{ports.grpc}") as client:
        regions = client.get_system_shared_memory_status("a b ü").regions
        assert (regions["a b ü"].key, regions["a b ü"].byte_size) == (key, 64)
        with pytest.raises(InferenceServerException, match="already in manager") as caught:
            client.register_system_shared_memory("a b ü", key, 64)
        assert "ALREADY_EXISTS" in str(caught.value)
        assert not client.get_cuda_shared_memory_status().regions


# -- HTTP


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (None, 500, "failed to parse the request JSON buffer"),
        ([], 400, "Shared memory register request has no 'key' field"),
        ({"byte_size": 4}, 400, "Shared memory register request has no 'key' field"),
        ({"key": "/k"}, 400, "Shared memory register request has no 'byte_size' field"),
        ({"key": 3, "byte_size": 4}, 500, "attempt to access JSON non-string as string"),
        ({"key": "/k", "byte_size": -1}, 500, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ({"key": "/k", "byte_size": 2**64}, 500, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ({"key": "/k", "byte_size": 4.0}, 500, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ({"key": "/k", "byte_size": True}, 500, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ({"key": "/k", "byte_size": 4, "offset": "0"}, 500, "attempt to access JSON non-unsigned-integer"),
    ],
)
def test_registering_over_http_checks_its_json(ports: Ports, body: Any, status: int, text: str) -> None:
    answer = post(ports.http, "/v2/systemsharedmemory/region/r/register", body)
    assert answer[0] == status
    assert text in answer[1]["error"]


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"device_id": 0, "byte_size": 4}, 400, "Shared memory register request has no 'raw_handle' field"),
        ({"raw_handle": {}, "device_id": 0, "byte_size": 4}, 500, "attempt to access non-existing object member 'b64'"),
        ({"raw_handle": {"b64": ""}, "device_id": 0}, 500, "attempt to access non-existing object member 'byte_size'"),
        (
            {"raw_handle": {"b64": "!"}, "device_id": 0, "byte_size": 4},
            400,
            "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t",
        ),
        (
            {"raw_handle": {"b64": base64.b64encode(b"x" * 64).decode()}, "device_id": 0, "byte_size": 4},
            400,
            "failed to register shared memory region: invalid args",
        ),
    ],
)
def test_registering_cuda_over_http_checks_its_json(ports: Ports, body: Any, status: int, text: str) -> None:
    assert post(ports.http, "/v2/cudasharedmemory/region/r/register", body) == (status, {"error": text})


def test_http_names_are_needed_to_register_but_not_to_unregister(ports: Ports, regions: tuple[str, str]) -> None:
    status, answer = post(ports.http, "/v2/systemsharedmemory/register", {"key": "/k", "byte_size": 4})
    assert status == 400
    assert answer["error"] == "'region name' is necessary to register system shared memory region"
    assert post(ports.http, "/v2/systemsharedmemory/unregister", b"not json") == (200, None)
    assert ports.memory.status(RegionKind.SYSTEM, "") == []


def test_http_answers_say_nothing_about_data_in_regions(ports: Ports, regions: tuple[str, str]) -> None:
    for more in ({}, {"parameters": {"binary_data_output": True}}):
        body = {"inputs": [x(place("in"))], "outputs": [y(place("out", 16, 8))], **more}
        status, answer = post(ports.http, "/v2/models/echo/infer", body)
        assert status == 200
        assert answer["outputs"] == [{"name": "OUTPUT0", "datatype": "FP32", "shape": [4]}]
    assert content(regions[1], 24) == bytes(8) + FOUR.tobytes()


def test_http_mixes_regions_with_binary_and_json_tensors(ports: Ports, regions: tuple[str, str]) -> None:
    inputs = [
        x(place("in")),
        x({"binary_data_size": 16}, "INPUT1"),
        x({}, "INPUT2", data=[9, 9, 9, 9]),
    ]
    outputs = [y({}), y(place("out"), "OUTPUT1"), y({}, "OUTPUT2")]
    status, answer = infer(ports.http, inputs, outputs, binary=struct.pack("<4f", 4, 5, 6, 7))
    assert status == 200
    assert [output.get("data") for output in answer["outputs"]] == [[0, 1, 2, 3], None, [9, 9, 9, 9]]
    assert content(regions[1], 16) == struct.pack("<4f", 4, 5, 6, 7)


_UNSIGNED = "attempt to access JSON non-unsigned-integer as unsigned-integer"
_ONE_OF = (
    "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters',"
    " 'shared_memory_region' in 'parameters'. But set"
)


@pytest.mark.parametrize(
    ("given", "wanted", "status", "text"),
    [
        (x(place("zz")), None, 404, "Unable to find shared memory region: 'zz'"),
        (x(place(5)), None, 500, "Unable to parse 'shared_memory_region': attempt to access JSON non-string as string"),
        (x(place("in", "16")), None, 500, f"Unable to parse 'shared_memory_byte_size': {_UNSIGNED}"),
        (x(place("in", 16, -1)), None, 500, f"Unable to parse 'shared_memory_offset': {_UNSIGNED}"),
        (x(place("in", 16, 64)), None, 400, "Invalid offset for shared memory region: 'in'"),
        (x(place("in", 16, 49)), None, 400, "Invalid offset + byte size for shared memory region: 'in'"),
        (x(place("in"), data=[0]), None, 400, f"{_ONE_OF} 'data' 'shared_memory_region'"),
        (
            x({**place("in"), "binary_data_size": 16}),
            None,
            400,
            f"{_ONE_OF} 'binary_data_size' 'shared_memory_region'",
        ),
        (
            x({"shared_memory_offset": "0"}, data=[0] * 4),
            None,
            500,
            f"Unable to parse 'shared_memory_offset': {_UNSIGNED}",
        ),
        (x(place("in")), y(place("zz")), 404, "Unable to find shared memory region: 'zz'"),
        (
            x(place("in")),
            y(place("out", 15)),
            500,
            "shared memory size specified with the request for output 'OUTPUT0' (15 bytes) should be at least 16 bytes"
            " to hold the results",
        ),
        (
            x(place("in")),
            y({**place("out"), "classification": 0}),
            400,
            "Output can't set both 'shared_memory_region' and 'classification'",
        ),
        (
            x(place("in")),
            y({**place("out"), "binary_data": True}),
            400,
            "Output can't set both 'shared_memory_region' and 'binary_data'",
        ),
        (
            x(place("in")),
            y({**place("out"), "binary_data": 1}),
            500,
            "Unable to set 'binary_data': attempt to access JSON non-boolean as boolean",
        ),
    ],
)
def test_http_refusals_leave_no_region_in_use(
    ports: Ports, regions: tuple[str, str], given: Any, wanted: Any, status: int, text: str
) -> None:
    outputs = None if wanted is None else [wanted]
    assert infer(ports.http, [given], outputs) == (status, {"error": text})
    ports.memory.unregister(RegionKind.SYSTEM, "")
    assert ports.memory.status(RegionKind.SYSTEM, "") == []


@pytest.mark.parametrize("model", ["refuse", "fail", "split", "unknown"])
def test_regions_are_free_after_every_kind_of_end(ports: Ports, regions: tuple[str, str], model: str) -> None:
    infer(ports.http, [x(place("in"))], [y(place("out"))], model)
    call_grpc(ports, message([place_of("in")], [place_of("out")], model=model))
    ports.memory.unregister(RegionKind.SYSTEM, "")
    assert ports.memory.status(RegionKind.SYSTEM, "") == []


def test_a_request_of_a_client_that_left_still_gives_its_regions_back(
    ports: Ports, regions: tuple[str, str], dataplane: Any, loop_thread: Any
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", ports.http, timeout=20)
    connection.request("POST", "/v2/models/hold/infer", json.dumps({"inputs": [x(place("in"))]}))
    (request,) = dataplane.wait_for(1)
    assert post(ports.http, "/v2/systemsharedmemory/region/in/unregister") == (200, None)
    assert [fact.name for fact in ports.memory.status(RegionKind.SYSTEM, "")] == ["in", "out"]
    connection.close()
    loop_thread.call(lambda: dataplane.answer(request))
    assert [fact.name for fact in ports.memory.status(RegionKind.SYSTEM, "")] == ["out"]


# -- gRPC


def place_of(region: Any, size: Any = 16, offset: Any = None, **more: Any) -> dict[str, Any]:
    found = {"shared_memory_region": region, "shared_memory_byte_size": size, "shared_memory_offset": offset, **more}
    return {key: value for key, value in found.items() if value is not None}


def message(
    inputs: list[dict[str, Any]],
    outputs: list[dict[str, Any]] | None = None,
    raw: tuple[bytes, ...] = (),
    model: str = "echo",
) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name=model, raw_input_contents=raw)
    for kind, tensors in (("INPUT", inputs), ("OUTPUT", outputs or [])):
        for number, parameters in enumerate(tensors):
            tensor: Any = (request.inputs if kind == "INPUT" else request.outputs).add(name=f"{kind}{number}")
            if kind == "INPUT":
                tensor.datatype = "FP32"
                tensor.shape.append(4)
            for key, value in parameters.items():
                field = "string_param" if isinstance(value, str) else "int64_param"
                if isinstance(value, np.uint64):
                    field = "uint64_param"
                setattr(tensor.parameters[key], field, value)
    return request


def call_grpc(ports: Ports, request: pb.ModelInferRequest) -> pb.ModelInferResponse | tuple[str, str]:
    """Return the response, or the name of the status with its details."""
    with grpc.insecure_channel(f"127.0.0.1:{ports.grpc}") as channel:
        call = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelInferResponse.FromString,
        )
        try:
            response: pb.ModelInferResponse = call(request, timeout=20)
        except grpc.RpcError as error:
            return error.code().name, error.details()
        return response


def test_grpc_raw_contents_belong_to_the_inputs_outside_regions(ports: Ports, regions: tuple[str, str]) -> None:
    other = struct.pack("<4f", 4, 5, 6, 7)
    for tensors, expected in (
        ([place_of("in"), {}], [FOUR.tobytes(), other]),
        ([{}, place_of("in")], [other, FOUR.tobytes()]),
    ):
        response = call_grpc(ports, message(tensors, raw=(other,)))
        assert isinstance(response, pb.ModelInferResponse)
        assert list(response.raw_output_contents) == expected
    assert call_grpc(ports, message([place_of("in"), {}])) == (
        "INVALID_ARGUMENT",
        "unable to find data for input tensor 'INPUT1' for model 'echo' in request.",
    )


def test_grpc_outputs_in_regions_have_an_empty_slot(ports: Ports, regions: tuple[str, str]) -> None:
    response = call_grpc(ports, message([place_of("in"), place_of("in")], [{}, place_of("out", 32, 16)]))
    assert isinstance(response, pb.ModelInferResponse)
    assert list(response.raw_output_contents) == [FOUR.tobytes(), b""]
    assert [list(output.shape) for output in response.outputs] == [[4], [4]]
    assert not response.outputs[1].parameters
    assert content(regions[1], 32) == bytes(16) + FOUR.tobytes()


_WITHOUT = "can not be specified without 'shared_memory_region' parameter for tensor"
_WRONG = "parameter for tensor 'INPUT0', expected"


@pytest.mark.parametrize(
    ("given", "wanted", "status", "text"),
    [
        (place_of("zz"), None, "NOT_FOUND", "Unable to find shared memory region: 'zz'"),
        (place_of("in"), place_of("zz"), "NOT_FOUND", "Unable to find shared memory region: 'zz'"),
        (
            place_of("in", None),
            None,
            "INVALID_ARGUMENT",
            "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor"
            " 'INPUT0'",
        ),
        (place_of(None), None, "INVALID_ARGUMENT", f"'shared_memory_byte_size' {_WITHOUT} 'INPUT0'"),
        (place_of(None, None, 3), None, "INVALID_ARGUMENT", f"'shared_memory_offset' {_WITHOUT} 'INPUT0'"),
        (place_of("in"), place_of(None), "INVALID_ARGUMENT", f"'shared_memory_byte_size' {_WITHOUT} 'OUTPUT0'"),
        (
            place_of(5),
            None,
            "INVALID_ARGUMENT",
            f"invalid value type for 'shared_memory_region' {_WRONG} string_param.",
        ),
        (
            place_of("in", np.uint64(16)),
            None,
            "INVALID_ARGUMENT",
            f"invalid value type for 'shared_memory_byte_size' {_WRONG} int64_param.",
        ),
        (
            place_of("in", 16, "0"),
            None,
            "INVALID_ARGUMENT",
            f"invalid value type for 'shared_memory_offset' {_WRONG} int64_param.",
        ),
        (place_of("in", 16, -1), None, "INVALID_ARGUMENT", "Invalid offset for shared memory region: 'in'"),
        (place_of("in", -1), None, "INVALID_ARGUMENT", "Invalid offset + byte size for shared memory region: 'in'"),
        (
            place_of("in"),
            place_of("out", 15),
            "INTERNAL",
            "shared memory size specified with the request for output 'OUTPUT0' (15 bytes) should be at least 16 bytes"
            " to hold the results",
        ),
        (
            place_of("in"),
            place_of("out", classification=2),
            "INVALID_ARGUMENT",
            "output can't set both 'shared_memory_region' and 'classification'",
        ),
    ],
)
def test_grpc_refusals_leave_no_region_in_use(
    ports: Ports, regions: tuple[str, str], given: Any, wanted: Any, status: str, text: str
) -> None:
    outputs = None if wanted is None else [wanted]
    assert call_grpc(ports, message([given], outputs)) == (status, text)
    ports.memory.unregister(RegionKind.SYSTEM, "")
    assert ports.memory.status(RegionKind.SYSTEM, "") == []


def test_grpc_contents_beside_a_region_are_refused(ports: Ports, regions: tuple[str, str]) -> None:
    request = message([place_of("in")])
    for size in (4, 400_000):  # the large one is converted in another process
        request.inputs[0].contents.fp32_contents[:] = [0.0] * size
        assert call_grpc(ports, request) == (
            "INVALID_ARGUMENT",
            "unexpected 'content' provided when using shared memory for input tensor 'INPUT0' for model 'echo'",
        )


def test_a_stream_reads_and_writes_regions(ports: Ports, regions: tuple[str, str]) -> None:
    def requests() -> Iterator[pb.ModelInferRequest]:
        for model, target in (("echo", "out"), ("echo", "zz"), ("refuse", "out"), ("echo", "out")):
            yield message([place_of("in")], [place_of(target)], model=model)

    with grpc.insecure_channel(f"127.0.0.1:{ports.grpc}") as channel:
        call = channel.stream_stream(
            "/inference.GRPCInferenceService/ModelStreamInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelStreamInferResponse.FromString,
        )
        answers = list(call(requests(), timeout=20))
    texts = [answer.error_message.splitlines()[:1] for answer in answers]
    assert texts == [[], ["Unable to find shared memory region: 'zz'"], ["refused: 100% “bad”"], []]
    assert list(answers[0].infer_response.raw_output_contents) == [b""]
    assert content(regions[1], 16) == FOUR.tobytes()
    ports.memory.unregister(RegionKind.SYSTEM, "")
    assert ports.memory.status(RegionKind.SYSTEM, "") == []


# -- who may


@pytest.mark.parametrize(
    ("memory", "status", "code", "text"),
    [
        (SharedMemory.disabled(), 501, "UNIMPLEMENTED", "Client shared memory is disabled."),
        (SharedMemory(InferenceError(ErrorCode.UNAVAILABLE, "managed")), 503, "UNAVAILABLE", "managed"),
    ],
)
def test_nodes_that_share_no_memory_still_tell_the_status(
    dataplane: Any, loop_thread: Any, memory: SharedMemory, status: int, code: str, text: str
) -> None:
    for ports in serve(dataplane, loop_thread, memory):
        for path in ("region/r/register", "region/r/unregister", "unregister"):
            for kind in ("system", "cuda"):
                answer = post(ports.http, f"/v2/{kind}sharedmemory/{path}")
                assert answer[0] == status
                assert text in answer[1]["error"]
        with triton_grpc.InferenceServerClient(f"127.0.0.1:{ports.grpc}") as client:
            for change in (
                lambda: client.register_system_shared_memory("r", "/k", 4),
                lambda: client.register_cuda_shared_memory("r", b"aGFuZGxl", 0, 4),
                lambda: client.unregister_system_shared_memory(),
                lambda: client.unregister_cuda_shared_memory("r"),
            ):
                with pytest.raises(InferenceServerException, match=text) as caught:
                    change()
                assert code in str(caught.value)
            assert not client.get_system_shared_memory_status().regions


def test_nothing_of_a_request_keeps_its_region_mapped(ports: Ports, regions: tuple[str, str], dataplane: Any) -> None:
    gc.collect()
    gc.disable()
    try:
        for model in ("echo", "fail", "refuse", "split"):
            infer(ports.http, [x(place("in"))], [y(place("out"))], model)
            call_grpc(ports, message([place_of("in")], [place_of("out")], model=model))
        infer(ports.http, [x(place("in")), x(place("zz"))])
        dataplane.requests.clear()
        ports.memory.unregister(RegionKind.SYSTEM, "")
        maps = Path("/proc/self/maps").read_text()
    finally:
        gc.enable()
    assert [key for key in regions if key.lstrip("/") in maps] == []
