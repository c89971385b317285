"""The door by which models call models: steps of an ensemble, and requests that a model's own code makes."""

from __future__ import annotations

from typing import Protocol

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest


class ModelCalls(Protocol):
    """What a model may ask of its node. All methods are called on the event loop."""

    def infer(self, request: InferenceRequest) -> None:
        """Submit a request; routes, limits and statistics apply as to any other. Raises InferenceError."""

    def model_ready(self, name: str, version: str) -> bool:
        """Return whether requests for the model would be answered. Raises InferenceError INVALID_ARG."""

    async def load(self, name: str, config_json: str | None, files: dict[str, bytes]) -> None:
        """Load or reload a model. Raises InferenceError."""

    async def unload(self, name: str, unload_dependents: bool) -> None:
        """Unload a model. Raises InferenceError."""


class InnerCalls:
    """``ModelCalls`` that exist before what answers them: the server opens the door when the dataplane stands."""

    def __init__(self) -> None:
        self._target: ModelCalls | None = None

    def open(self, target: ModelCalls) -> None:
        """Answer calls with ``target`` from now on."""
        self._target = target

    def infer(self, request: InferenceRequest) -> None:
        """See ``ModelCalls``; before the door is open, UNAVAILABLE."""
        self._opened().infer(request)

    def model_ready(self, name: str, version: str) -> bool:
        """See ``ModelCalls``; before the door is open, UNAVAILABLE."""
        return self._opened().model_ready(name, version)

    async def load(self, name: str, config_json: str | None, files: dict[str, bytes]) -> None:
        """See ``ModelCalls``; before the door is open, UNAVAILABLE."""
        await self._opened().load(name, config_json, files)

    async def unload(self, name: str, unload_dependents: bool) -> None:
        """See ``ModelCalls``; before the door is open, UNAVAILABLE."""
        await self._opened().unload(name, unload_dependents)

    def _opened(self) -> ModelCalls:
        if self._target is None:
            raise InferenceError(ErrorCode.UNAVAILABLE, "the node is starting: models cannot call each other yet")
        return self._target
