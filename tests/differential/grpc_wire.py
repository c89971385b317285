"""gRPC without a client library's opinions: the request's bytes, and code, details and message of the answer."""

from __future__ import annotations

import json
from typing import Any

import grpc
from google.protobuf import json_format
from tritonclient.grpc import service_pb2 as pb

from tests.differential.steps import Answer, Grpc, Stream

_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
)
_SERVICE = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"]
_STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


def channel(port: int) -> Any:
    """Return a channel to a server on loopback."""
    return grpc.insecure_channel(f"127.0.0.1:{port}", options=_OPTIONS)


def call(connection: Any, request: Grpc) -> Answer:
    """Make a unary call and return its answer."""
    method = connection.unary_unary(f"/{request.service}/{request.method}", _serialize, bytes)
    try:
        body = method(
            request.message if request.message is not None else b"",
            timeout=request.timeout,
            metadata=request.metadata,
            compression=grpc.Compression.Gzip if request.compressed else None,
        )
    except grpc.RpcError as error:
        return _error(error)
    if request.service != "inference.GRPCInferenceService":
        return {"code": "OK", "bytes": body.hex()}
    response = getattr(pb, _SERVICE.methods_by_name[request.method].output_type.name)()
    response.ParseFromString(body)
    return {"code": "OK", "message": as_json(response)}


def call_stream(connection: Any, request: Stream) -> Answer:
    """Send all messages, close this side and return everything that came."""
    method = connection.stream_stream(_STREAM, _serialize, pb.ModelStreamInferResponse.FromString)
    responses: list[Answer] = []
    call_ = method(iter(request.messages), timeout=request.timeout, metadata=request.metadata)
    try:
        for response in call_:
            responses.append(as_json(response))
    except grpc.RpcError as error:
        return {**_error(error), "responses": _ordered(responses, request.sort)}
    return {"code": "OK", "responses": _ordered(responses, request.sort)}


def _ordered(responses: list[Answer], sort: bool) -> list[Answer]:
    return sorted(responses, key=lambda r: json.dumps(r, sort_keys=True)) if sort else responses


def _serialize(message: Any) -> bytes:
    return message if isinstance(message, bytes) else bytes(message.SerializeToString())


def _error(error: Any) -> Answer:
    # this side's own words when time is up depend on where it was then
    own = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    return {"code": error.code().name, "details": "" if own else error.details()}


def as_json(message: Any) -> Answer:
    """Return a message as JSON with proto names and raw contents as hex."""
    document = json_format.MessageToDict(message, preserving_proto_field_name=True)
    if isinstance(message, pb.ModelInferResponse):
        if message.raw_output_contents:
            document["raw_output_contents"] = [raw.hex() for raw in message.raw_output_contents]
    elif isinstance(message, pb.ModelStreamInferResponse) and message.HasField("infer_response"):
        document["infer_response"] = as_json(message.infer_response)
    return document  # type: ignore[no-any-return]
