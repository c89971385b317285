"""The one door to the models, under every protocol."""

from __future__ import annotations

import time
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol

from serving_node.contract.errors import ErrorCode
from serving_node.contract.states import ModelState
from serving_node.core.errors import InferenceError
from serving_node.core.metadata import IndexEntry, ModelMetadata, OutputClasses, ServerMetadata, TensorMetadata
from serving_node.core.request import InferenceRequest
from serving_node.observability.logging import LogControl
from serving_node.observability.metrics import ModelSeries, metric_tags, only_gpu
from serving_node.observability.request_log import LoggedAnswers, log_refusal
from serving_node.observability.tracing.tracer import Tracer
from serving_node.repository.serving_table import parse_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from serving_node.contract.proto import grpc_service_pb2, model_config_pb2
    from serving_node.observability.tracing.settings import TraceChanges
    from serving_node.scheduling.served_model import ServedModel

__all__ = [
    "EXTENSIONS",
    "MANAGED",
    "DataPlane",
    "IndexEntry",
    "ModelMetadata",
    "Repository",
    "ServerMetadata",
    "TensorMetadata",
]

# Source: Triton's GET /v2, in its order.
EXTENSIONS = (
    "classification",
    "sequence",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "cuda_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
)


class Repository(Protocol):
    """What the dataplane needs of the model repository."""

    def resolve(self, name: str, version: str, request: InferenceRequest | None) -> ServedModel:
        """Return the version that serves. With a request, routes and weights choose; without, the version policy.

        Raises:
            InferenceError: NOT_FOUND or UNAVAILABLE with Triton's texts.
        """

    def sole(self, name: str, version: str) -> ServedModel | None:
        """Return the version that serves whatever the request is, None when there is none or routes choose."""

    def models(self) -> Iterable[ServedModel]:
        """Return every ready version."""

    def ready(self) -> bool:
        """Return whether everything that should serve does."""

    def index(self) -> list[IndexEntry]:
        """Return one entry for each known version."""

    async def load(self, name: str, config_json: str | None, files: dict[str, bytes]) -> None:
        """Load or reload a model. Returns when it serves."""

    async def unload(self, name: str, unload_dependents: bool) -> None:
        """Stop serving a model."""


class Absent(Protocol):
    """What the dataplane needs of whoever loads models on their first request."""

    def take(self, request: InferenceRequest, submit: Callable[[InferenceRequest], None]) -> bool:
        """Keep a request until its model serves, then submit it; False when it is not kept."""

    def wait(self, name: str, then: Callable[[InferenceError | None], None]) -> Callable[[], None] | None:
        """Call ``then`` when a model serves, or with why it does not; None when waiting would not help.

        Returns what ends the waiting.
        """

    async def settle(self, name: str) -> None:
        """Make room after a model was loaded by an order."""

    def close(self) -> None:
        """Load nothing any more; who waits is told so."""


# What a client is told who wants to change a node that a control plane owns.
MANAGED = "this node is managed by a control plane, which alone changes its models and settings"


# How long the series of an unloaded version stay: until the control plane has scraped what it counted last.
_FAREWELL_SECONDS = 30.0


class DataPlane:
    """Validates, resolves and submits requests; answers questions about models. All methods run on the loop."""

    def __init__(
        self,
        repository: Repository,
        *,
        server_name: str = "triton",
        server_version: str = "",
        joined: bool = False,
        logs: LogControl | None = None,
        tracer: Tracer | None = None,
        absent: Absent | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._repository = repository
        self._metadata = ServerMetadata(server_name, server_version or _installed_version(), EXTENSIONS)
        self._joined = joined
        self._logs = logs or LogControl()
        self._tracer = tracer or Tracer()
        # For frontends: what begins a request's trace, None while nothing is traced.
        self.tracing: Tracer | None = self._tracer if self._tracer.enabled else None
        self._absent = absent
        self._stopping = False
        self._clock = clock
        # (model, version): its series when it was scraped last, and until when they are shown
        self._shown: dict[tuple[str, str], tuple[ModelSeries, float]] = {}

    def stop(self) -> None:
        """Report the server as not ready from now on; requests are still taken until the frontends stop."""
        self._stopping = True
        if self._absent is not None:
            self._absent.close()

    def infer(self, request: InferenceRequest) -> None:
        """Submit a request; it is answered through ``request.on_response``.

        Ownership: after this returns, the scheduler owns the request until its final response.

        Raises:
            InferenceError: the request is not acceptable; ``on_response`` will not be called.
        """
        if not request.arrival_ns:
            request.arrival_ns = time.monotonic_ns()
        if self._logs.verbose and type(request.on_response) is not LoggedAnswers:
            self._infer_logged(request)
            return
        try:
            model = self._repository.resolve(request.model_name, request.model_version, request)
        except InferenceError:
            if self._absent is not None and self._absent.take(request, self.infer):
                return
            raise
        if model.decoupled:
            if request.refuse_decoupled:
                raise InferenceError(ErrorCode.UNSUPPORTED, request.refuse_decoupled)
            request.decoupled = True
        model.rules.check(request)
        if request.trace is not None:
            self._submit_traced(model, request)
            return
        model.scheduler.submit(request)

    def await_model(self, name: str, then: Callable[[InferenceError | None], None]) -> Callable[[], None] | None:
        """Load a model that does not serve and call ``then``; None when that would not help.

        Returns what ends the waiting.
        """
        return None if self._absent is None else self._absent.wait(name, then)

    def server_live(self) -> bool:
        """Return whether the process works; also while it ends what it began."""
        return True

    def server_ready(self) -> bool:
        """Return whether everything that should serve does."""
        return not self._stopping and self._repository.ready()

    def model_ready(self, name: str, version: str) -> bool:
        """Return whether requests for the model would be answered; not those of unknown models, nor while the process
        of an instance is being replaced.

        Raises:
            InferenceError: INVALID_ARG, the version is not a number.
        """
        if version:
            parse_version(version)
        try:
            return self._repository.resolve(name, version, None).ready()
        except InferenceError:
            return False

    def origin(self, name: str, version: str) -> bytes | None:
        """Return what the answers of a model depend on besides the request. See ``ServedModel.origin``."""
        model = self._repository.sole(name, version)
        return None if model is None else model.origin()

    def server_metadata(self) -> ServerMetadata:
        """Return name, version and extensions."""
        return self._metadata

    def output_classes(self, name: str, version: str) -> OutputClasses:
        """Return how outputs of a model are classified. Raises InferenceError NOT_FOUND or UNAVAILABLE."""
        return self._repository.resolve(name, version, None).classes

    def model_metadata(self, name: str, version: str) -> ModelMetadata:
        """Return a model's inputs and outputs. Raises InferenceError NOT_FOUND or UNAVAILABLE."""
        model = self._repository.resolve(name, version, None)
        if version:
            versions = {model.version}
        else:
            versions = {other.version for other in self._repository.models() if other.name == name}
        return replace(model.metadata, name=name, versions=tuple(str(number) for number in sorted(versions)))

    def model_config(self, name: str, version: str) -> model_config_pb2.ModelConfig:
        """Return the completed config. Raises InferenceError NOT_FOUND or UNAVAILABLE."""
        return self._repository.resolve(name, version, None).config

    def statistics(self, name: str, version: str) -> list[grpc_service_pb2.ModelStatistics]:
        """Return statistics of the ready versions; empty strings mean all. Raises InferenceError INVALID_ARG."""
        number = parse_version(version) if version else None
        models = [model for model in self._repository.models() if not name or model.name == name]
        if name and not models:
            raise InferenceError(ErrorCode.INVALID_ARG, f"requested model '{name}' is not available")
        if name and number is not None:
            models = [model for model in models if model.version == number]
            if not models:
                sentence = f"requested model version is not available for model '{name}'"
                raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        models = list({id(model.statistics): model for model in models}.values())
        models.sort(key=lambda model: (model.name, model.version))
        return [model.statistics.to_proto(model.name, model.version, model.memory_bytes) for model in models]

    def repository_index(self, ready_only: bool) -> list[IndexEntry]:
        """Return the repository index."""
        entries = self._repository.index()
        return [entry for entry in entries if entry.state is ModelState.READY] if ready_only else entries

    async def load(self, name: str, config_json: str | None, files: dict[str, bytes]) -> None:
        """Load or reload a model. Raises InferenceError; UNAVAILABLE on a joined node."""
        self._refuse_when_joined()
        await self._repository.load(name, config_json, files)
        if self._absent is not None:
            await self._absent.settle(name)

    async def unload(self, name: str, unload_dependents: bool) -> None:
        """Unload a model. Raises InferenceError; UNAVAILABLE on a joined node."""
        self._refuse_when_joined()
        await self._repository.unload(name, unload_dependents)

    def log_settings(self) -> dict[str, Any]:
        """Return the log settings as the logging extension names them."""
        return self._logs.settings()

    def update_log_settings(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Change log settings and return all.

        Raises:
            InferenceError: UNAVAILABLE on a joined node; UNSUPPORTED for the log file; INVALID_ARG for bad values.
        """
        self._refuse_when_joined()
        return self._logs.update(settings)

    def trace_settings(self, model: str) -> dict[str, list[str]]:
        """Return the trace settings of a model, or of the server for an empty name.

        Raises:
            InferenceError: INVALID_ARG, no such model is ready.
        """
        self._check_traceable(model)
        return self._tracer.settings(model)

    def update_trace_settings(self, model: str, changes: TraceChanges) -> dict[str, list[str]]:
        """Change trace settings and return all. See ``tracing.settings`` for ``changes``.

        Raises:
            InferenceError: UNAVAILABLE on a joined node; INVALID_ARG, no such model is ready or the values are wrong.
        """
        self._check_traceable(model)
        if changes:
            self._refuse_when_joined()
            self._tracer.update(model, changes)
            self.tracing = self._tracer if self._tracer.enabled else None
        return self._tracer.settings(model)

    def _check_traceable(self, model: str) -> None:
        if model and not self.model_ready(model, ""):
            raise InferenceError(ErrorCode.INVALID_ARG, f"Request for unknown model : {model}")

    def _infer_logged(self, request: InferenceRequest) -> None:
        request.on_response = LoggedAnswers(request)
        try:
            self.infer(request)
        except InferenceError as error:
            log_refusal(request, error)
            raise

    @staticmethod
    def _submit_traced(model: ServedModel, request: InferenceRequest) -> None:
        trace = request.trace
        assert trace is not None
        trace.begin(model.name, str(model.version), request.id, time.monotonic_ns())
        try:
            model.scheduler.submit(request)
        except InferenceError:
            trace.end(time.monotonic_ns())
            raise

    def model_series(self) -> list[ModelSeries]:
        """Return what the metrics need, one entry for each ready version; units of one version share theirs.

        On a joined node a version that was unloaded since the last call is there for another 30 s.
        """
        series: dict[int, ModelSeries] = {}
        for model in self._repository.models():
            pending = model.scheduler.pending_count()
            known = series.get(id(model.statistics))
            if known is not None:
                series[id(model.statistics)] = replace(known, pending_count=known.pending_count + pending)
            else:
                series[id(model.statistics)] = ModelSeries(
                    model.name,
                    str(model.version),
                    model.statistics,
                    pending,
                    model.load_seconds,
                    tags=metric_tags(model.config),
                    namespace=model.namespace,
                    gpu=only_gpu(model.config),
                )
        ready = list(series.values())
        return [*ready, *self._departed(ready)] if self._joined else ready

    def _departed(self, ready: list[ModelSeries]) -> list[ModelSeries]:
        """Return the series of versions that were ready lately and are not any more, and remember those that are."""
        now = self._clock()
        for known in ready:
            self._shown[known.model, known.version] = (replace(known, pending_count=0), now + _FAREWELL_SECONDS)
        self._shown = {key: shown for key, shown in self._shown.items() if shown[1] > now}
        present = {(known.model, known.version) for known in ready}
        return [known for key, (known, _until) in self._shown.items() if key not in present]

    def _refuse_when_joined(self) -> None:
        if self._joined:
            raise InferenceError(ErrorCode.UNAVAILABLE, MANAGED)


def _installed_version() -> str:
    try:
        return metadata.version("flotilla")
    except metadata.PackageNotFoundError:
        return "0"  # run from a source tree
