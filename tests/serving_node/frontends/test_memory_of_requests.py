"""Requests and their tensors are freed as soon as they are answered, not when the cycle collector runs."""

from __future__ import annotations

import asyncio
import gc
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from serving_node.contract.proto import grpc_service_pb2 as pb
from serving_node.core.request import InferenceRequest
from serving_node.core.tensor import Tensor
from serving_node.frontends.grpc import GrpcFrontend
from serving_node.frontends.http import HttpFrontend
from serving_node.wire.http2 import encode_headers
from serving_node.wire.http2.frames import PREFACE

_before: list[Any] = []  # what other tests of this process keep; held, so that no id is given twice


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        _before[:] = living()
        yield
    finally:
        _before.clear()
        gc.enable()


def living() -> list[Any]:
    known = {id(thing) for thing in _before}
    # by type and not isinstance, which asks weak proxies of other tests for a class that is gone
    return [thing for thing in gc.get_objects() if type(thing) in (InferenceRequest, Tensor) and id(thing) not in known]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def grpc_bytes(models: list[str], method: str) -> bytes:
    head = encode_headers(
        [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", f"/inference.GRPCInferenceService/{method}".encode()),
            (b"content-type", b"application/grpc"),
        ]
    )
    messages = b""
    for model in models:
        request = pb.ModelInferRequest(model_name=model)
        request.inputs.add(name="INPUT0", datatype="UINT8", shape=[5000])
        request.raw_input_contents.append(bytes(5000))
        raw = request.SerializeToString()
        messages += struct.pack(">BI", 0, len(raw)) + raw
    return PREFACE + frame(4, 0, 0) + frame(1, 4, 1, head) + frame(0, 1, 1, messages)


def http_bytes(model: str) -> bytes:
    body = b'{"inputs":[{"name":"INPUT0","datatype":"UINT8","shape":[3],"data":[1,2,3]}]}'
    return b"POST /v2/models/%s/infer HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (model.encode(), len(body)) + body


async def talk(frontend: Any, data: bytes, marker: bytes) -> None:
    """Send ``data`` and wait until ``marker`` is in the answer; the connection stays open meanwhile."""
    server = await frontend.serve("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
    writer.write(data)
    await asyncio.wait_for(reader.readuntil(marker), 20)
    assert living() == []
    writer.close()
    await frontend.stop(1)


@pytest.mark.parametrize("model", ["echo", "fail", "refuse", "split", "twice"])
async def test_http_requests(dataplane: Any, model: str) -> None:
    dataplane.requests = Forgetful()
    marker = b"outputs" if model in ("echo", "split") else b"error"
    await talk(HttpFrontend(dataplane), http_bytes(model), marker)


@pytest.mark.parametrize("model", ["echo", "fail", "refuse", "split", "twice"])
async def test_grpc_calls(dataplane: Any, model: str) -> None:
    dataplane.requests = Forgetful()
    await talk(GrpcFrontend(dataplane), grpc_bytes([model], "ModelInfer"), b"grpc-status")


async def test_grpc_streams(dataplane: Any) -> None:
    dataplane.requests = Forgetful()
    models = ["echo", "fail", "refuse", "split", "twice"]
    await talk(GrpcFrontend(dataplane), grpc_bytes(models, "ModelStreamInfer"), b"grpc-status")


class Forgetful(list[Any]):
    """Keeps no requests."""

    def append(self, item: Any) -> None:
        pass
