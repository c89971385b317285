"""The seam between scheduling and the engines: how a model is opened, and how a batch runs.

Methods block and are called off the event loop, but for those of ``LoopInstance`` that say otherwise. They raise
``InferenceError`` with one sentence for the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from serving_node.core.errors import InferenceError
from serving_node.core.execution import Execution
from serving_node.core.host_policy import ANYWHERE, HostPolicy
from serving_node.core.request import InferenceRequest, InferenceResponse

if TYPE_CHECKING:
    from serving_node.contract.proto import model_config_pb2
    from serving_node.contract.signature import ModelSignature


class DeviceKind(StrEnum):
    """Where an instance computes; MODEL: the model knows. Source: Triton's instance group kinds, AUTO resolved."""

    CPU = "CPU"
    GPU = "GPU"
    MODEL = "MODEL"


class Host(StrEnum):
    """What runs a backend: threads of the node's own process, or worker processes."""

    THREAD = "thread"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class Device:
    """One place where an instance computes; ``index`` is the GPU's number, 0 for the CPU.

    ``host`` is applied to the thread that makes the instance, and to that which runs it; an instance that starts
    processes or threads at other times does so itself.
    """

    kind: DeviceKind = DeviceKind.CPU
    index: int = 0
    host: HostPolicy = ANYWHERE


@dataclass(frozen=True, slots=True)
class ModelSource:
    """What a backend opens. ``directory`` is the version's folder; ``config`` may not yet be completed.

    ``in_worker``: this is a worker process, where code of the model's may be loaded; in the node's own it never may.
    """

    name: str
    version: int
    directory: Path
    config: model_config_pb2.ModelConfig
    devices: tuple[Device, ...] = (Device(),)
    in_worker: bool = False


class BackendInstance(Protocol):
    """One executor. Used by one thread at a time."""

    def execute(self, execution: Execution) -> None:
        """Run the batch and fill ``execution.results``. An exception fails the whole batch with INTERNAL."""

    def close(self) -> None:
        """Free what the instance holds. Idempotent."""


@dataclass(slots=True)
class InstanceEvents:
    """What a ``LoopInstance`` tells its scheduler. All are called on the event loop's thread.

    ``done``: the batch that was begun is over. ``responded``: one response of a request whose result was None, or
    will be; name, version and id of the response are filled by the scheduler. ``changed``: ``usable`` is another.
    """

    done: Callable[[Execution], None]
    responded: Callable[[InferenceRequest, InferenceResponse], None]
    changed: Callable[[], None]


@runtime_checkable
class LoopInstance(Protocol):
    """An executor that the event loop drives: no thread of its own, no wake-up between threads.

    ``execute`` is for warm-up, before ``attach``; afterwards batches run through ``begin``, one after the other.
    """

    def execute(self, execution: Execution) -> None:
        """Run the batch and fill ``execution.results``. Blocks; responses apart from the batch are waited for."""

    def attach(self, events: InstanceEvents) -> None:
        """Let the running event loop drive the instance from now on. On the loop."""

    def begin(self, executions: Sequence[Execution]) -> None:
        """Start batches, which run in this order after those begun before. On the loop.

        ``events.done`` follows exactly once for each, in order, never before this returns.
        """

    def depth(self) -> int:
        """Return how many batches may be begun at once so that the instance never waits for the loop.

        More than 1 only while batches are so short that nobody notices that they cannot be taken back.
        """

    def usable(self) -> bool:
        """Return whether batches can be given now; False while what runs the model is being replaced."""

    def busy(self) -> bool:
        """Return whether a request that was begun has not had its final response."""

    def gone(self) -> InferenceError | None:
        """Return why nothing can run for a while, None when the instance is usable or will be soon."""

    def ready(self) -> bool:
        """Return whether the model says that it can answer."""

    def detach(self) -> None:
        """End what runs: an execution that was begun fails. ``close`` follows off the loop. On the loop."""

    def close(self) -> None:
        """Free what the instance holds. Blocks, for some seconds at most. Idempotent."""


class BackendModel(Protocol):
    """An opened model version from which instances are made."""

    def signature(self) -> ModelSignature | None:
        """Return the inputs and outputs as the model file has them, None when the format does not say."""

    def create_instance(
        self, device: Device, config: model_config_pb2.ModelConfig, name: str
    ) -> BackendInstance | LoopInstance:
        """Return a new executor on ``device``; ``config`` is completed and normalised, ``name`` is unique in it."""

    def memory_bytes(self) -> int:
        """Return an estimate of the memory that the opened model holds."""

    def close(self) -> None:
        """Free what is shared between instances, after they are closed. Idempotent."""


@runtime_checkable
class SelfDescribing(Protocol):
    """A model that completes its config with code of its own."""

    def describe(self, config: model_config_pb2.ModelConfig) -> Mapping[str, Any] | None:
        """Return the config as the model's own code wants it, None when it has no such code.

        Raises:
            InferenceError: the code failed.
        """


@runtime_checkable
class StartsProcesses(Protocol):
    """A model whose instances run in processes of their own; ``starts_at_once`` may be made at the same time."""

    starts_at_once: int


@runtime_checkable
class SharesProcess(Protocol):
    """A model that may want all its instances on one device in one worker process, where it is hosted in workers."""

    def shares_process(self) -> bool:
        """Return whether it does, as its instances hold their weights in common. Asked once, after opening."""


class Backend(Protocol):
    """An engine that can open models."""

    name: str

    def open_model(self, source: ModelSource) -> BackendModel:
        """Open a version's files.

        Raises:
            InferenceError: INVALID_ARG with the reason in one sentence.
        """


class BackendRegistry(Protocol):
    """Backends by name."""

    def get(self, name: str, host: Host | None = None) -> Backend:
        """Return the backend, importing its engine when it is first asked for; ``host`` None: the backend's own choice.

        Raises:
            InferenceError: the name is unknown, its engine is not installed, or the host is not for it.
        """

    def options(self, name: str) -> Mapping[str, str]:
        """Return what ``--backend-config`` says for a backend, and for all of them."""
