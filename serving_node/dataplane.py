"""The one door to the models, under every protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.metadata import IndexEntry, ModelMetadata, ServerMetadata, TensorMetadata
from serving_node.core.request import InferenceRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from serving_node.contract.proto import grpc_service_pb2, model_config_pb2
    from serving_node.scheduling.served_model import ServedModel

__all__ = [
    "EXTENSIONS",
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


class DataPlane:
    """Validates, resolves and submits requests; answers questions about models. All methods run on the loop."""

    def __init__(self, repository: Repository, *, server_name: str = "triton", joined: bool = False) -> None:
        self._repository = repository
        self._server_name = server_name
        self._joined = joined

    def infer(self, request: InferenceRequest) -> None:
        """Submit a request; it is answered through ``request.on_response``.

        Ownership: after this returns, the scheduler owns the request until its final response.

        Raises:
            InferenceError: the request is not acceptable; ``on_response`` will not be called.
        """
        raise InferenceError(ErrorCode.UNAVAILABLE, "Server not ready")

    def server_live(self) -> bool:
        """Return whether the process works."""
        raise NotImplementedError

    def server_ready(self) -> bool:
        """Return whether everything that should serve does."""
        raise NotImplementedError

    def model_ready(self, name: str, version: str) -> bool:
        """Return whether requests for the model would be taken; unknown models are not ready."""
        raise NotImplementedError

    def server_metadata(self) -> ServerMetadata:
        """Return name, version and extensions."""
        raise NotImplementedError

    def model_metadata(self, name: str, version: str) -> ModelMetadata:
        """Return a model's inputs and outputs. Raises InferenceError NOT_FOUND or UNAVAILABLE."""
        raise NotImplementedError

    def model_config(self, name: str, version: str) -> model_config_pb2.ModelConfig:
        """Return the completed config. Raises InferenceError NOT_FOUND or UNAVAILABLE."""
        raise NotImplementedError

    def statistics(self, name: str, version: str) -> list[grpc_service_pb2.ModelStatistics]:
        """Return statistics of the ready versions; empty strings mean all. Raises InferenceError INVALID_ARG."""
        raise NotImplementedError

    def repository_index(self, ready_only: bool) -> list[IndexEntry]:
        """Return the repository index."""
        raise NotImplementedError

    async def load(self, name: str, config_json: str | None, files: dict[str, bytes]) -> None:
        """Load or reload a model. Raises InferenceError; UNAVAILABLE on a joined node."""
        raise NotImplementedError

    async def unload(self, name: str, unload_dependents: bool) -> None:
        """Unload a model. Raises InferenceError; UNAVAILABLE on a joined node."""
        raise NotImplementedError

    def log_settings(self) -> dict[str, Any]:
        """Return the log settings as the logging extension names them."""
        raise NotImplementedError

    def update_log_settings(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Change log settings and return all. Raises InferenceError."""
        raise NotImplementedError
