"""The door by which models call models: steps of an ensemble, and requests that a model's own code makes."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig
    from serving_node.core.metadata import OutputClasses

# Whether a load is asked for by a model that is being loaded itself, and waits for it.
from_a_load: ContextVar[bool] = ContextVar("from_a_load", default=False)


class ModelCalls(Protocol):
    """What a model may ask of its node. All methods are called on the event loop."""

    def infer(self, request: InferenceRequest) -> None:
        """Submit a request; routes, limits and statistics apply as to any other. Raises InferenceError."""

    def model_ready(self, name: str, version: str) -> bool:
        """Return whether requests for the model would be answered. Raises InferenceError INVALID_ARG."""

    def model_config(self, name: str, version: str) -> ModelConfig:
        """Return the completed config of a model. Raises InferenceError NOT_FOUND or UNAVAILABLE."""

    def output_classes(self, name: str, version: str) -> OutputClasses:
        """Return how outputs of a model are classified. Raises InferenceError NOT_FOUND or UNAVAILABLE."""

    def origin(self, name: str, version: str) -> bytes | None:
        """Return bytes that are equal as long as the model gives equal answers; None when that cannot be said."""

    async def load(self, name: str, config_json: str | None, files: dict[str, bytes]) -> None:
        """Load or reload a model. Raises InferenceError."""

    async def unload(self, name: str, unload_dependents: bool) -> None:
        """Unload a model. Raises InferenceError."""


class InnerCalls:
    """``ModelCalls`` that exist before what answers them: the server opens the door when the dataplane stands."""

    def __init__(self) -> None:
        self._target: ModelCalls | None = None
        self._call_soon: Callable[[Callable[[], None]], object] | None = None

    def open(self, target: ModelCalls, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """Answer calls with ``target`` from now on; ``call_soon`` calls something on the loop, on any thread."""
        self._target, self._call_soon = target, call_soon

    def on_loop(self, callback: Callable[[], None]) -> None:
        """Call something on the loop, from another thread. Raises InferenceError UNAVAILABLE, there is none now."""
        self._opened()
        try:
            if self._call_soon is not None:
                self._call_soon(callback)
        except RuntimeError as error:
            raise InferenceError(ErrorCode.UNAVAILABLE, "the node has stopped") from error

    def infer(self, request: InferenceRequest) -> None:
        """See ``ModelCalls``; before the door is open, UNAVAILABLE."""
        self._opened().infer(request)

    def model_ready(self, name: str, version: str) -> bool:
        """See ``ModelCalls``; before the door is open, UNAVAILABLE."""
        return self._opened().model_ready(name, version)

    def model_config(self, name: str, version: str) -> ModelConfig:
        """See ``ModelCalls``; before the door is open, UNAVAILABLE."""
        return self._opened().model_config(name, version)

    def output_classes(self, name: str, version: str) -> OutputClasses:
        """See ``ModelCalls``; before the door is open, UNAVAILABLE."""
        return self._opened().output_classes(name, version)

    def origin(self, name: str, version: str) -> bytes | None:
        """See ``ModelCalls``; before the door is open, UNAVAILABLE."""
        return self._opened().origin(name, version)

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
