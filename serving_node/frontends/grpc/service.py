"""Everything of inference.GRPCInferenceService and grpc.health.v1.Health except the infer methods."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.message import DecodeError, Message

from serving_node.contract.errors import ErrorCode
from serving_node.contract.proto import grpc_service_pb2 as pb
from serving_node.contract.proto import health_pb2
from serving_node.core.errors import InferenceError
from serving_node.dataplane import DataPlane
from serving_node.frontends.grpc.infer import InferService
from serving_node.frontends.grpc.reflection import Reflection
from serving_node.frontends.grpc.routing import Method
from serving_node.frontends.grpc.shared_memory import SharedMemoryMethods
from serving_node.frontends.grpc.status import STATUS_OF
from serving_node.frontends.grpc.stream import open_stream
from serving_node.frontends.load_parameters import LoadParameters
from serving_node.frontends.restricted_access import ApiCategory
from serving_node.frontends.shared_memory import SharedMemory
from serving_node.observability.log_settings import changes_from_parameters
from serving_node.observability.tracing.settings import changes_from_lists
from serving_node.wire.grpc import UNPARSABLE, GrpcCall, GrpcError, GrpcStatus

_log = logging.getLogger(__name__)
_PREFIX = "/inference.GRPCInferenceService/"


class Services:
    """The methods by path, for ``Routes``."""

    def __init__(self, dataplane: DataPlane, infer: InferService, memory: SharedMemory | None = None) -> None:
        self._dataplane = dataplane
        self._tasks: set[asyncio.Task[None]] = set()
        self.methods: dict[bytes, Method] = {}
        inference, repository = ApiCategory.INFERENCE, ApiCategory.MODEL_REPOSITORY
        health, metadata = ApiCategory.HEALTH, ApiCategory.METADATA
        self._add("ModelInfer", Method(unary=infer.infer, category=inference))
        self._add("ModelStreamInfer", Method(open_stream=lambda call: open_stream(infer, call), category=inference))
        for name, request, handler, category in (
            ("ServerLive", pb.ServerLiveRequest, self._server_live, health),
            ("ServerReady", pb.ServerReadyRequest, self._server_ready, health),
            ("ModelReady", pb.ModelReadyRequest, self._model_ready, health),
            ("ServerMetadata", pb.ServerMetadataRequest, self._server_metadata, metadata),
            ("ModelMetadata", pb.ModelMetadataRequest, self._model_metadata, metadata),
            ("ModelConfig", pb.ModelConfigRequest, self._model_config, ApiCategory.MODEL_CONFIG),
            ("ModelStatistics", pb.ModelStatisticsRequest, self._statistics, ApiCategory.STATISTICS),
            ("RepositoryIndex", pb.RepositoryIndexRequest, self._index, repository),
            ("TraceSetting", pb.TraceSettingRequest, self._trace_setting, ApiCategory.TRACE),
            ("LogSettings", pb.LogSettingsRequest, self._log_settings, ApiCategory.LOGGING),
        ):
            self._add(name, Method(unary=_unary(request, handler), category=category))
        for name, kind, method in SharedMemoryMethods(memory or SharedMemory.disabled()).table():
            self._add(name, Method(unary=_unary(kind, method), category=ApiCategory.SHARED_MEMORY))
        load = self._later(pb.RepositoryModelLoadRequest, self._load)
        unload = self._later(pb.RepositoryModelUnloadRequest, self._unload)
        self._add("RepositoryModelLoad", Method(unary=load, category=repository))
        self._add("RepositoryModelUnload", Method(unary=unload, category=repository))
        check = _unary(health_pb2.HealthCheckRequest, self._health)
        self.methods[b"/grpc.health.v1.Health/Check"] = Method(unary=check, category=health)
        self.methods |= Reflection().methods()

    def _add(self, name: str, method: Method) -> None:
        self.methods[(_PREFIX + name).encode()] = method

    def _later(
        self, request_type: type[Any], handler: Callable[[Any], Awaitable[Message]]
    ) -> Callable[[GrpcCall, bytes | memoryview], None]:
        """Return a unary handler that runs a coroutine. It runs to its end even when the client leaves."""

        async def run(call: GrpcCall, request: Message) -> None:
            try:
                _reply(call, await handler(request))
            except InferenceError as error:
                call.finish(STATUS_OF[error.code], error.message)
            except Exception:
                _log.exception("gRPC method failed")
                call.finish(GrpcStatus.INTERNAL, "internal error")

        def serve(call: GrpcCall, message: bytes | memoryview) -> None:
            task = asyncio.get_running_loop().create_task(run(call, _parse(request_type, message)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return serve

    # -- server

    def _server_live(self, request: pb.ServerLiveRequest) -> Message:
        return pb.ServerLiveResponse(live=self._dataplane.server_live())

    def _server_ready(self, request: pb.ServerReadyRequest) -> Message:
        return pb.ServerReadyResponse(ready=self._dataplane.server_ready())

    def _server_metadata(self, request: pb.ServerMetadataRequest) -> Message:
        server = self._dataplane.server_metadata()
        return pb.ServerMetadataResponse(name=server.name, version=server.version, extensions=server.extensions)

    def _health(self, request: health_pb2.HealthCheckRequest) -> Message:
        status = health_pb2.HealthCheckResponse
        return status(status=status.SERVING if self._dataplane.server_ready() else status.NOT_SERVING)

    def _trace_setting(self, request: pb.TraceSettingRequest) -> Message:
        changes = changes_from_lists({name: list(setting.value) for name, setting in request.settings.items()})
        settings = self._dataplane.update_trace_settings(request.model_name, changes)
        response = pb.TraceSettingResponse()
        for name, values in settings.items():
            response.settings[name].value.extend(values)
        return response

    def _log_settings(self, request: pb.LogSettingsRequest) -> Message:
        changes: dict[str, Any] = {}
        for name, setting in request.settings.items():
            choice = setting.WhichOneof("parameter_choice")
            changes[name] = getattr(setting, choice) if choice else None
        changes = changes_from_parameters(changes)
        settings = self._dataplane.update_log_settings(changes) if changes else self._dataplane.log_settings()
        response = pb.LogSettingsResponse()
        for name, value in settings.items():
            if isinstance(value, bool):
                response.settings[name].bool_param = value
            elif isinstance(value, int):
                response.settings[name].uint32_param = value
            else:
                response.settings[name].string_param = str(value)
        return response

    # -- models

    def _model_ready(self, request: pb.ModelReadyRequest) -> Message:
        return pb.ModelReadyResponse(ready=self._dataplane.model_ready(request.name, request.version))

    def _model_metadata(self, request: pb.ModelMetadataRequest) -> Message:
        model = self._dataplane.model_metadata(request.name, request.version)
        response = pb.ModelMetadataResponse(name=model.name, versions=model.versions, platform=model.platform)
        for tensor in model.inputs:
            response.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        for tensor in model.outputs:
            response.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        return response

    def _model_config(self, request: pb.ModelConfigRequest) -> Message:
        return pb.ModelConfigResponse(config=self._dataplane.model_config(request.name, request.version))

    def _statistics(self, request: pb.ModelStatisticsRequest) -> Message:
        return pb.ModelStatisticsResponse(model_stats=self._dataplane.statistics(request.name, request.version))

    # -- repository

    def _index(self, request: pb.RepositoryIndexRequest) -> Message:
        _refuse_repository(request.repository_name)
        response = pb.RepositoryIndexResponse()
        for entry in self._dataplane.repository_index(request.ready):
            state = entry.state.value if entry.state is not None else ""
            response.models.add(name=entry.name, version=entry.version, state=state, reason=entry.reason)
        return response

    async def _load(self, request: pb.RepositoryModelLoadRequest) -> Message:
        _refuse_repository(request.repository_name)
        parameters = LoadParameters()
        for name, value in request.parameters.items():
            choice = value.WhichOneof("parameter_choice")
            parameters.add(name, getattr(value, choice) if choice else None)
        await self._dataplane.load(request.model_name, parameters.config, parameters.files)
        return pb.RepositoryModelLoadResponse()

    async def _unload(self, request: pb.RepositoryModelUnloadRequest) -> Message:
        _refuse_repository(request.repository_name)
        dependents = False
        if "unload_dependents" in request.parameters:
            parameter = request.parameters["unload_dependents"]
            if parameter.WhichOneof("parameter_choice") != "bool_param":
                sentence = "invalid value type for 'unload_dependents' parameter, expected bool_param."
                raise InferenceError(ErrorCode.INVALID_ARG, sentence)
            dependents = parameter.bool_param
        await self._dataplane.unload(request.model_name, dependents)
        return pb.RepositoryModelUnloadResponse()


def _refuse_repository(name: str) -> None:
    if name:
        raise InferenceError(ErrorCode.UNSUPPORTED, "'repository_name' specification is not supported")


def _unary(
    request_type: type[Any], handler: Callable[[Any], Message]
) -> Callable[[GrpcCall, bytes | memoryview], None]:
    def serve(call: GrpcCall, message: bytes | memoryview) -> None:
        _reply(call, handler(_parse(request_type, message)))

    return serve


def _parse(request_type: type[Any], message: bytes | memoryview) -> Any:
    try:
        return request_type.FromString(bytes(message))
    except DecodeError as error:
        raise GrpcError(GrpcStatus.INTERNAL, UNPARSABLE) from error


def _reply(call: GrpcCall, response: Message) -> None:
    raw = response.SerializeToString()
    call.reply([raw], len(raw))
