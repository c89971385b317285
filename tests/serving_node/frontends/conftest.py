"""A dataplane without models behind it, and servers that run on a loop of their own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop

from serving_node.contract.errors import ErrorCode
from serving_node.contract.proto import grpc_service_pb2, model_config_pb2
from serving_node.contract.states import ModelState
from serving_node.core.errors import InferenceError
from serving_node.core.metadata import IndexEntry, ModelMetadata, OutputClasses, ServerMetadata, TensorMetadata
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.core.tensor import Tensor
from serving_node.observability.tracing.settings import TraceChanges
from serving_node.observability.tracing.tracer import Tracer


class FakeDataPlane:
    """Model ``echo`` answers at once with its inputs, renamed to OUTPUT...; others do what their name says.

    ``hold``: answers when the test calls ``answer``. ``fail``: answers with an error. ``twice``: two responses and a
    flag-only final one. ``split``: one response and a flag-only final one. ``refuse``: raises. ``crash``: a bug.
    """

    def __init__(self) -> None:
        self.requests: list[InferenceRequest] = []
        self.arrived = threading.Condition()
        self.calls: list[tuple[object, ...]] = []
        self.is_ready = True
        self.managed = False
        self.tracer = Tracer()
        self.tracing: Any = None
        self.config = model_config_pb2.ModelConfig(name="echo", max_batch_size=8)

    def infer(self, request: InferenceRequest) -> None:
        with self.arrived:
            self.requests.append(request)
            self.arrived.notify_all()
        name = request.model_name
        if name == "refuse":
            raise InferenceError(ErrorCode.INVALID_ARG, "refused: 100% “bad”\n")
        if name == "crash":
            raise ValueError("a bug")
        if name not in ("echo", "hold", "fail", "twice", "split"):
            raise InferenceError(ErrorCode.NOT_FOUND, f"Request for unknown model: '{name}' is not found")
        if name == "hold":
            return
        self.answer(request)

    def answer(self, request: InferenceRequest) -> None:
        if request.cancelled:
            error = InferenceError(ErrorCode.CANCELLED, "")
            request.on_response(InferenceResponse(request.model_name, "1", request.id, error=error))
            return
        if request.model_name == "fail":
            error = InferenceError(ErrorCode.UNAVAILABLE, "Exceeds maximum queue size")
            request.on_response(InferenceResponse(request.model_name, "1", request.id, error=error))
            return
        outputs = [
            Tensor(tensor.name.replace("INPUT", "OUTPUT"), tensor.datatype, tensor.shape, tensor.data)
            for tensor in request.inputs
        ]
        parameters = dict(request.parameters)
        response = InferenceResponse(request.model_name, "1", request.id, outputs, parameters)
        if request.model_name in ("twice", "split"):
            for _ in range(2 if request.model_name == "twice" else 1):
                part = InferenceResponse(request.model_name, "1", request.id, outputs, dict(parameters), final=False)
                request.on_response(part)
            response = InferenceResponse(request.model_name, "1", request.id, flag_only=True)
        request.on_response(response)

    def wait_for(self, count: int) -> list[InferenceRequest]:
        """Return all requests once there are ``count``. Called from the test's thread."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.requests) >= count, 20)
            return list(self.requests)

    def server_live(self) -> bool:
        return True

    def server_ready(self) -> bool:
        return self.is_ready

    def model_ready(self, name: str, version: str) -> bool:
        return name == "echo" and version in ("", "1")

    def server_metadata(self) -> ServerMetadata:
        return ServerMetadata("triton", "1.2", ("classification", "sequence"))

    def model_metadata(self, name: str, version: str) -> ModelMetadata:
        self._known(name)
        return ModelMetadata(
            name,
            ("1",),
            "identity",
            (TensorMetadata("INPUT0", "FP32", (-1, 4)),),
            (TensorMetadata("OUTPUT0", "FP32", (-1, 4)),),
        )

    def output_classes(self, name: str, version: str) -> OutputClasses:
        self._known(name)
        return OutputClasses(has_rows=True)

    def model_config(self, name: str, version: str) -> model_config_pb2.ModelConfig:
        self._known(name)
        return self.config

    def await_model(self, name: str, then: object) -> None:
        """Models are not loaded on request here."""

    def statistics(self, name: str, version: str) -> list[grpc_service_pb2.ModelStatistics]:
        if name and name != "echo":
            raise InferenceError(ErrorCode.INVALID_ARG, f"requested model '{name}' is not available")
        statistics = grpc_service_pb2.ModelStatistics(name="echo", version="1", inference_count=5)
        statistics.inference_stats.success.count = 5
        statistics.batch_stats.add(batch_size=2)
        return [statistics]

    def repository_index(self, ready_only: bool) -> list[IndexEntry]:
        entries = [
            IndexEntry("echo", "1", ModelState.READY),
            IndexEntry("broken", "2", ModelState.UNAVAILABLE, "no file"),
            IndexEntry("never"),
        ]
        return entries[:1] if ready_only else entries

    async def load(self, name: str, config_json: str | None, files: dict[str, bytes]) -> None:
        self._refuse_when_managed()
        self.calls.append(("load", name, config_json, files))
        if name == "unknown":
            sentence = "failed to load 'unknown', failed to poll from model repository"
            raise InferenceError(ErrorCode.INTERNAL, sentence)

    async def unload(self, name: str, unload_dependents: bool) -> None:
        self._refuse_when_managed()
        self.calls.append(("unload", name, unload_dependents))

    def log_settings(self) -> dict[str, Any]:
        return {"log_file": "", "log_info": True, "log_verbose_level": 0, "log_format": "default"}

    def update_log_settings(self, settings: dict[str, Any]) -> dict[str, Any]:
        self._refuse_when_managed()
        return {**self.log_settings(), **settings}

    def trace_settings(self, model: str) -> dict[str, list[str]]:
        return self.tracer.settings(model)

    def update_trace_settings(self, model: str, changes: TraceChanges) -> dict[str, list[str]]:
        self.tracer.update(model, changes)
        return self.tracer.settings(model)

    def _known(self, name: str) -> None:
        if name not in ("echo", "hold", "fail", "twice", "split", "refuse", "crash"):
            raise InferenceError(ErrorCode.NOT_FOUND, f"Request for unknown model: '{name}' is not found")

    def _refuse_when_managed(self) -> None:
        if self.managed:
            raise InferenceError(ErrorCode.UNAVAILABLE, "this node is managed by a control plane")


class LoopThread:
    """An event loop on its own thread."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)

    def call(self, function: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return function()

        return self.run(run())

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(30)
        self.loop.close()


@pytest.fixture
def dataplane() -> FakeDataPlane:
    return FakeDataPlane()


@pytest.fixture
def loop_thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()
