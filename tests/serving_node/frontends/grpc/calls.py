"""Calls that the tests of the gRPC frontend make, and a frontend to make them to."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from serving_node.contract.proto import grpc_service_pb2 as pb
from serving_node.frontends.grpc import GrpcFrontend

SERVICE = "/inference.GRPCInferenceService/"


@contextmanager
def serving(dataplane: Any, loop_thread: Any, *, tls: Any = None, **options: Any) -> Iterator[int]:
    """Serve gRPC with these options of the frontend and yield the port."""
    frontend = loop_thread.call(lambda: GrpcFrontend(dataplane, **options))
    server = loop_thread.run(frontend.serve("localhost", 0, tls=tls))
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop_thread.run(frontend.stop(1.0))


def method(channel: grpc.Channel, name: str, request_type: Any, response_type: Any) -> Any:
    return channel.unary_unary(
        SERVICE + name,
        request_serializer=request_type.SerializeToString,
        response_deserializer=response_type.FromString,
    )


def infer_method(channel: grpc.Channel) -> Any:
    return method(channel, "ModelInfer", pb.ModelInferRequest, pb.ModelInferResponse)


def stream_method(channel: grpc.Channel) -> Any:
    return channel.stream_stream(
        SERVICE + "ModelStreamInfer",
        request_serializer=pb.ModelInferRequest.SerializeToString,
        response_deserializer=pb.ModelStreamInferResponse.FromString,
    )


def raw_request(data: bytes, model: str = "echo", request_id: str = "") -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name=model, id=request_id)
    request.inputs.add(name="INPUT0", datatype="UINT8", shape=[1, len(data)])
    request.raw_input_contents.append(data)
    return request


class Feed:
    """An iterator of requests that the test fills."""

    def __init__(self) -> None:
        self._queue: queue.Queue[pb.ModelInferRequest | None] = queue.Queue()

    def put(self, request: pb.ModelInferRequest | None) -> None:
        self._queue.put(request)

    def __iter__(self) -> Iterator[pb.ModelInferRequest]:
        return iter(self._queue.get, None)
