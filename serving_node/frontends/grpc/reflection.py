"""The reflection service: what a client needs to call this port without having our .proto files.

Source: gRPC's reflection.proto, versions v1 and v1alpha, which differ in their package only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

from serving_node.contract.proto import grpc_service_pb2, health_pb2, model_config_pb2, reflection_pb2
from serving_node.contract.proto.pool import POOL
from serving_node.frontends.grpc.routing import Method
from serving_node.frontends.restricted_access import ApiCategory
from serving_node.wire.grpc import UNPARSABLE, GrpcCall, GrpcError, GrpcStatus, MessageHandler

_V1, _V1ALPHA = "grpc.reflection.v1", "grpc.reflection.v1alpha"
_SERVICE = "ServerReflection"
SERVICES = (
    "grpc.health.v1.Health",
    f"{_V1}.{_SERVICE}",
    f"{_V1ALPHA}.{_SERVICE}",
    "inference.GRPCInferenceService",
)
_FOLDER = "serving_node/contract/proto/"
_ALPHA_FILE = f"{_FOLDER}reflection_v1alpha.proto"
# A client that does not read: its answers may grow to this.
_MAX_QUEUED_BYTES = 4 * 1024 * 1024


class Reflection:
    """Answers reflection requests from the private descriptor pool."""

    def __init__(self) -> None:
        # nothing but what belongs to the services: the pool may hold other files
        modules = (grpc_service_pb2, health_pb2, model_config_pb2, reflection_pb2)
        self._files: dict[str, bytes] = {}
        for module in modules:
            self._add(module.DESCRIPTOR)
        self._files[_ALPHA_FILE] = _as_alpha(reflection_pb2.DESCRIPTOR)

    def methods(self) -> dict[bytes, Method]:
        """Return the methods by path."""
        method = Method(open_stream=self._open, category=ApiCategory.METADATA)
        return {f"/{package}.{_SERVICE}/ServerReflectionInfo".encode(): method for package in (_V1, _V1ALPHA)}

    def answer(self, request: reflection_pb2.ServerReflectionRequest) -> reflection_pb2.ServerReflectionResponse:
        """Return the answer to one request."""
        response = reflection_pb2.ServerReflectionResponse(valid_host=request.host, original_request=request)
        kind = request.WhichOneof("message_request")
        if kind == "list_services":
            for name in SERVICES:
                response.list_services_response.service.add(name=name)
        elif kind == "file_by_filename":
            self._give(response, request.file_by_filename)
        elif kind == "file_containing_symbol":
            self._give(response, _file_of(request.file_containing_symbol))
        elif kind == "all_extension_numbers_of_type" and _is_message(request.all_extension_numbers_of_type):
            response.all_extension_numbers_response.base_type_name = request.all_extension_numbers_of_type
        elif kind is None:
            _fail(response, GrpcStatus.INVALID_ARGUMENT, "the request asks for nothing")
        else:
            _fail(response, GrpcStatus.NOT_FOUND, "not found")
        return response

    def _add(self, file: FileDescriptor) -> None:
        if file.name not in self._files:
            self._files[file.name] = file.serialized_pb
            for dependency in file.dependencies:
                self._add(dependency)

    def _give(self, response: reflection_pb2.ServerReflectionResponse, name: str) -> None:
        name = name if name in self._files else _FOLDER + name
        if name not in self._files:
            _fail(response, GrpcStatus.NOT_FOUND, "not found")
            return
        needed = [name]
        for file in needed:  # grows while it is read
            needed += [other for other in _imports(self._files[file]) if other not in needed]
        response.file_descriptor_response.file_descriptor_proto.extend(self._files[file] for file in needed)

    def _open(self, call: GrpcCall) -> MessageHandler:
        call.on_half_close = lambda: call.finish(GrpcStatus.OK)
        return self._take

    def _take(self, call: GrpcCall, message: bytes | memoryview) -> None:
        try:
            request = reflection_pb2.ServerReflectionRequest.FromString(bytes(message))
        except DecodeError as error:
            raise GrpcError(GrpcStatus.INTERNAL, UNPARSABLE) from error
        raw = self.answer(request).SerializeToString()
        call.send([raw], len(raw))
        if call.queued_bytes > _MAX_QUEUED_BYTES:
            raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, "the client does not read the responses")


def _file_of(symbol: str) -> str:
    """Return the name of the file that defines a symbol, empty when none does."""
    if symbol.startswith(f"{_V1ALPHA}."):
        known = _file_of(_V1 + symbol.removeprefix(_V1ALPHA))
        return _ALPHA_FILE if known else ""
    for find in (POOL.FindFileContainingSymbol, lambda name: POOL.FindMethodByName(name).containing_service.file):
        with contextlib.suppress(KeyError):
            return str(find(symbol).name)
    return ""


def _is_message(name: str) -> bool:
    try:
        POOL.FindMessageTypeByName(name.replace(_V1ALPHA, _V1))
    except KeyError:
        return False
    return True


def _imports(raw: bytes) -> Iterable[str]:
    return FileDescriptorProto.FromString(raw).dependency


def _as_alpha(file: FileDescriptor) -> bytes:
    """Return version 1's file with the package of v1alpha."""
    proto = FileDescriptorProto.FromString(file.serialized_pb)
    proto.name, proto.package = _ALPHA_FILE, _V1ALPHA
    for message in proto.message_type:
        for item in message.field:
            if item.type_name:
                item.type_name = item.type_name.replace(f".{_V1}.", f".{_V1ALPHA}.")
    for method in proto.service[0].method:
        method.input_type = method.input_type.replace(f".{_V1}.", f".{_V1ALPHA}.")
        method.output_type = method.output_type.replace(f".{_V1}.", f".{_V1ALPHA}.")
    return proto.SerializeToString()


def _fail(response: reflection_pb2.ServerReflectionResponse, status: GrpcStatus, text: str) -> None:
    response.error_response.error_code = status
    response.error_response.error_message = text
