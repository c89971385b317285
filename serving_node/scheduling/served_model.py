"""One ready version of a model: its config, its scheduler, its counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from serving_node.core.metadata import ModelMetadata, OutputClasses
from serving_node.core.request import InferenceRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from serving_node.contract.proto import model_config_pb2
    from serving_node.contract.signature import ModelSignature
    from serving_node.observability.statistics import ModelStatistics
    from serving_node.scheduling.io_rules import IoRules


_UNLABELLED = OutputClasses(has_rows=False)


def _unknown_origin() -> bytes | None:
    return None


class RequestScheduler(Protocol):
    """What a served model needs of a scheduler."""

    def submit(self, request: InferenceRequest) -> None:
        """Queue a validated request.

        Ownership: the scheduler owns the request until it has called ``on_response`` with ``final``.

        Raises:
            InferenceError: UNAVAILABLE when the queue is full or the scheduler is stopping.
        """

    def ready(self) -> bool:
        """Return whether requests would be answered: what runs the model lives, and the model says that it can."""

    def pending_count(self) -> int:
        """Return how many requests wait for execution."""

    def inflight_count(self) -> int:
        """Return how many requests wait or run."""

    async def drain(self, timeout_seconds: float) -> bool:
        """Take no new requests and wait for those inside. Returns False when the time ran out."""

    async def close(self, timeout_seconds: float = 10.0) -> None:
        """Stop now: answer what is queued with UNAVAILABLE, let running batches end, free the instances."""


@dataclass(slots=True)
class ServedModel:
    """One version that answers requests.

    ``unit`` is the control plane's id of the version under its config, empty on a stand-alone node.
    ``config`` is completed and normalised; ``signature`` is what the model file says, if it says anything.
    ``decoupled``: a request may have any number of responses. ``classes``: how its outputs are classified.
    ``namespace``: the repository that it is from where names may stand in several, else empty.
    ``resize`` brings the instances to those of another config that differs in nothing else, while requests flow; the
    config is as of the repository. It raises InferenceError and then has changed nothing.
    ``origin`` returns bytes that are equal as long as equal requests have equal answers, None when that is not known;
    see ``cache_scope``.
    """

    name: str
    version: int
    unit: str
    config: model_config_pb2.ModelConfig
    signature: ModelSignature | None
    metadata: ModelMetadata
    rules: IoRules
    scheduler: RequestScheduler
    statistics: ModelStatistics
    max_batch_size: int
    load_seconds: float
    memory_bytes: int
    decoupled: bool = False
    classes: OutputClasses = _UNLABELLED
    namespace: str = ""
    resize: Callable[[model_config_pb2.ModelConfig], Awaitable[None]] | None = None
    origin: Callable[[], bytes | None] = _unknown_origin

    def submit(self, request: InferenceRequest) -> None:
        """Queue a request whose tensors were checked against ``rules``. See ``RequestScheduler.submit``."""
        self.scheduler.submit(request)

    def ready(self) -> bool:
        """Return whether requests would be answered; False while the process of an instance is being replaced."""
        return self.scheduler.ready()

    async def drain(self, timeout_seconds: float) -> bool:
        """Take no new requests and wait for those inside. Returns False when the time ran out."""
        return await self.scheduler.drain(timeout_seconds)

    async def close(self, timeout_seconds: float = 10.0) -> None:
        """Stop, answer what is queued, free the engine. Idempotent."""
        await self.scheduler.close(timeout_seconds)
