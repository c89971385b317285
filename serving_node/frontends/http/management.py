"""Everything of the v2 HTTP protocol except infer: health, metadata, config, statistics, repository, settings."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Coroutine
from typing import Any

from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config import to_json
from serving_node.contract.proto import grpc_service_pb2
from serving_node.core.errors import InferenceError
from serving_node.core.metadata import TensorMetadata
from serving_node.dataplane import DataPlane
from serving_node.frontends.codec_pool import CodecPool
from serving_node.frontends.http.answers import JSON_HEADERS, TEXT_HEADERS, respond_error, respond_failure, respond_json
from serving_node.frontends.http.json_data import as_object, parse_object, parse_small
from serving_node.frontends.http.routes import RouteTable
from serving_node.frontends.load_parameters import LoadParameters
from serving_node.frontends.restricted_access import ApiCategory
from serving_node.observability.log_settings import changes_from_json as log_changes
from serving_node.observability.tracing.settings import changes_from_json as trace_changes
from serving_node.wire.exchange import HttpExchange

_log = logging.getLogger(__name__)

_LARGE_BODY_BYTES = 256 * 1024


class ManagementHandlers:
    """The handlers; ``add_routes`` puts them into a route table."""

    def __init__(self, dataplane: DataPlane, pool: CodecPool) -> None:
        self._dataplane = dataplane
        self._pool = pool
        self._tasks: set[asyncio.Task[None]] = set()

    def add_routes(self, table: RouteTable) -> None:
        """Add all routes, those with fixed words before those with names."""
        table.add("/v2", ApiCategory.METADATA, GET=self._server_metadata)
        table.add("/v2/health/live", ApiCategory.HEALTH, GET=self._live)
        table.add("/v2/health/ready", ApiCategory.HEALTH, GET=self._ready)
        table.add("/v2/models/stats", ApiCategory.STATISTICS, GET=self._statistics)
        table.add("/v2/models/{m}{v}/stats", ApiCategory.STATISTICS, GET=self._statistics)
        table.add("/v2/models/{m}{v}/ready", ApiCategory.HEALTH, GET=self._model_ready)
        table.add("/v2/models/{m}{v}/config", ApiCategory.MODEL_CONFIG, GET=self._model_config)
        table.add("/v2/models/{m}/trace/setting", ApiCategory.TRACE, GET=self._trace, POST=self._update_trace)
        table.add("/v2/trace/setting", ApiCategory.TRACE, GET=self._trace, POST=self._update_trace)
        table.add("/v2/logging", ApiCategory.LOGGING, GET=self._log_settings, POST=self._update_log_settings)
        repository = ApiCategory.MODEL_REPOSITORY
        table.add("/v2/repository{repo}/index", repository, POST=self._index)
        table.add("/v2/repository/models/{m}/load", repository, POST=self._load)
        table.add("/v2/repository/models/{m}/unload", repository, POST=self._unload)
        table.add("/v2/repository/[^/]+/models/{m}/(?:load|unload)", repository, POST=self._refuse_repository)
        table.add("/v2/models/{m}{v}", ApiCategory.METADATA, GET=self._model_metadata)

    # -- server

    def _server_metadata(self, exchange: HttpExchange, name: str, version: str) -> None:
        server = self._dataplane.server_metadata()
        respond_json(exchange, {"name": server.name, "version": server.version, "extensions": server.extensions})

    def _live(self, exchange: HttpExchange, name: str, version: str) -> None:
        exchange.respond(200 if self._dataplane.server_live() else 400, TEXT_HEADERS)

    def _ready(self, exchange: HttpExchange, name: str, version: str) -> None:
        exchange.respond(200 if self._dataplane.server_ready() else 400, TEXT_HEADERS)

    def _trace(self, exchange: HttpExchange, name: str, version: str) -> None:
        _respond_trace(exchange, self._dataplane.trace_settings(name))

    def _update_trace(self, exchange: HttpExchange, name: str, version: str) -> None:
        _respond_trace(exchange, self._dataplane.update_trace_settings(name, trace_changes(_body(exchange))))

    def _log_settings(self, exchange: HttpExchange, name: str, version: str) -> None:
        respond_json(exchange, self._dataplane.log_settings())

    def _update_log_settings(self, exchange: HttpExchange, name: str, version: str) -> None:
        respond_json(exchange, self._dataplane.update_log_settings(log_changes(_body(exchange))))

    # -- models

    def _model_ready(self, exchange: HttpExchange, name: str, version: str) -> None:
        if self._dataplane.model_ready(name, version):
            exchange.respond(200, TEXT_HEADERS)
        else:
            respond_error(exchange, 400, "Model version not ready")

    def _model_metadata(self, exchange: HttpExchange, name: str, version: str) -> None:
        model = self._dataplane.model_metadata(name, version)
        document = {
            "name": model.name,
            "versions": model.versions,
            "platform": model.platform,
            "inputs": [_tensor(tensor) for tensor in model.inputs],
            "outputs": [_tensor(tensor) for tensor in model.outputs],
        }
        respond_json(exchange, document)

    def _model_config(self, exchange: HttpExchange, name: str, version: str) -> None:
        respond_json(exchange, to_json(self._dataplane.model_config(name, version)))

    def _statistics(self, exchange: HttpExchange, name: str, version: str) -> None:
        statistics = self._dataplane.statistics(name, version)
        respond_json(exchange, {"model_stats": [_model_statistics(model) for model in statistics]})

    # -- repository

    def _index(self, exchange: HttpExchange, name: str, version: str) -> None:
        ready = _body(exchange).get("ready", False)
        if not isinstance(ready, bool):
            raise InferenceError(ErrorCode.INVALID_ARG, "Invalid value for 'ready': expected a boolean")
        rows = []
        for entry in self._dataplane.repository_index(ready):
            row = {"name": entry.name, "version": entry.version, "reason": entry.reason}
            if entry.state is not None:
                row["state"] = entry.state.value
            rows.append({key: row[key] for key in ("name", "version", "state", "reason") if row.get(key)})
        respond_json(exchange, rows)

    def _load(self, exchange: HttpExchange, name: str, version: str) -> None:
        if len(exchange.body) <= _LARGE_BODY_BYTES:
            self._start_load(exchange, name, parse_load(exchange.body), None)
        else:
            self._pool.submit(
                parse_load,
                exchange.body,
                lambda parameters, error: self._start_load(exchange, name, parameters, error),
            )

    def _start_load(
        self, exchange: HttpExchange, name: str, parameters: LoadParameters | None, error: Exception | None
    ) -> None:
        if isinstance(error, InferenceError):
            respond_failure(exchange, error)
        elif parameters is None:
            respond_error(exchange, 500, "internal error")
        else:
            self._run(exchange, self._dataplane.load(name, parameters.config, parameters.files))

    def _unload(self, exchange: HttpExchange, name: str, version: str) -> None:
        parameters = _body(exchange).get("parameters", {})
        dependents = parameters.get("unload_dependents", False) if isinstance(parameters, dict) else None
        if not isinstance(dependents, bool):
            sentence = "Unable to parse 'unload_dependents': attempt to access JSON non-boolean as boolean"
            raise InferenceError(ErrorCode.INTERNAL, sentence)
        self._run(exchange, self._dataplane.unload(name, dependents))

    def _refuse_repository(self, exchange: HttpExchange, name: str, version: str) -> None:
        raise InferenceError(ErrorCode.UNSUPPORTED, "'repository_name' specification is not supported")

    def _run(self, exchange: HttpExchange, change: Coroutine[Any, Any, None]) -> None:
        """Answer when a change of the repository is done. It goes on when the client leaves."""
        task = asyncio.get_running_loop().create_task(self._answer(exchange, change))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @staticmethod
    async def _answer(exchange: HttpExchange, change: Coroutine[Any, Any, None]) -> None:
        try:
            await change
        except InferenceError as error:
            if not exchange.disconnected:
                respond_failure(exchange, error)
        except Exception:
            _log.exception("change of the repository failed")
            if not exchange.disconnected:
                respond_error(exchange, 500, "internal error")
        else:
            if not exchange.disconnected:
                exchange.respond(200, JSON_HEADERS)


def parse_load(body: bytes | memoryview) -> LoadParameters:
    """Return the parameters of a load request. Raises InferenceError. Also run in another process."""
    parameters = LoadParameters()
    given = parse_object(body).get("parameters", {}) if len(body) else {}
    if not isinstance(given, dict):
        raise InferenceError(ErrorCode.INTERNAL, "attempt to get members for non-object")
    for name, value in given.items():
        is_file = name.startswith("file:")
        if (is_file or name == "config") and not isinstance(value, str):
            raise InferenceError(ErrorCode.INTERNAL, "attempt to access JSON non-string as string")
        if is_file:
            try:
                value = base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError) as error:
                sentence = f"failed to decode the base64 content of '{name}': {error}"
                raise InferenceError(ErrorCode.INVALID_ARG, sentence) from error
        parameters.add(name, value)
    return parameters


def _body(exchange: HttpExchange) -> dict[str, Any]:
    return as_object(parse_small(exchange.body)) if len(exchange.body) else {}


def _respond_trace(exchange: HttpExchange, settings: dict[str, list[str]]) -> None:
    respond_json(exchange, {name: texts if name == "trace_level" else texts[0] for name, texts in settings.items()})


def _tensor(tensor: TensorMetadata) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}


def _duration(duration: grpc_service_pb2.StatisticDuration) -> dict[str, int]:
    return {"count": duration.count, "ns": duration.ns}


def _durations(message: Any) -> dict[str, dict[str, int]]:
    """Return every StatisticDuration of a message by its name."""
    fields = message.DESCRIPTOR.fields
    return {field.name: _duration(getattr(message, field.name)) for field in fields if field.message_type is not None}


def _model_statistics(model: grpc_service_pb2.ModelStatistics) -> dict[str, Any]:
    return {
        "name": model.name,
        "version": model.version,
        "last_inference": model.last_inference,
        "inference_count": model.inference_count,
        "execution_count": model.execution_count,
        "inference_stats": _durations(model.inference_stats),
        "response_stats": {key: _durations(model.response_stats[key]) for key in model.response_stats},
        "batch_stats": [{"batch_size": batch.batch_size, **_durations(batch)} for batch in model.batch_stats],
        "memory_usage": [
            {"type": usage.type, "id": usage.id, "byte_size": usage.byte_size} for usage in model.memory_usage
        ],
    }
