"""The seam between scheduling and the engines: how a model is opened, and how a batch runs.

All methods block and are called off the event loop. They raise ``InferenceError`` with one sentence for the caller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest
from serving_node.core.tensor import Tensor

if TYPE_CHECKING:
    from serving_node.contract.proto import model_config_pb2
    from serving_node.contract.signature import ModelSignature


class DeviceKind(StrEnum):
    """Where an instance computes. Source: Triton's instance group kinds, AUTO resolved."""

    CPU = "CPU"
    GPU = "GPU"


@dataclass(frozen=True, slots=True)
class Device:
    """One place where an instance computes; ``index`` is the GPU's number, 0 for the CPU."""

    kind: DeviceKind = DeviceKind.CPU
    index: int = 0


@dataclass(frozen=True, slots=True)
class ModelSource:
    """What a backend opens. ``directory`` is the version's folder; ``config`` may not yet be completed."""

    name: str
    version: int
    directory: Path
    config: model_config_pb2.ModelConfig
    devices: tuple[Device, ...] = (Device(),)


@dataclass(slots=True)
class Execution:
    """One batch on its way through an instance.

    Ownership: the instance fills ``results`` with one entry for each request, in order: its tensors or its error.
    Shapes: input tensors are (rows of the request, *dims); ``rows`` is the sum over requests, 1 each without batching.
    Units: monotonic nanoseconds. The instance sets ``inputs_ready_ns`` and ``computed_ns``; the scheduler the others.
    """

    requests: list[InferenceRequest]
    rows: int
    results: list[list[Tensor] | InferenceError] = field(default_factory=list)
    started_ns: int = 0
    inputs_ready_ns: int = 0
    computed_ns: int = 0
    finished_ns: int = 0


class BackendInstance(Protocol):
    """One executor. Used by one thread at a time."""

    def execute(self, execution: Execution) -> None:
        """Run the batch and fill ``execution.results``. An exception fails the whole batch with INTERNAL."""

    def close(self) -> None:
        """Free what the instance holds. Idempotent."""


class BackendModel(Protocol):
    """An opened model version from which instances are made."""

    def signature(self) -> ModelSignature | None:
        """Return the inputs and outputs as the model file has them, None when the format does not say."""

    def create_instance(self, device: Device, config: model_config_pb2.ModelConfig) -> BackendInstance:
        """Return a new executor on ``device``; ``config`` is completed and normalised."""

    def memory_bytes(self) -> int:
        """Return an estimate of the memory that the opened model holds."""

    def close(self) -> None:
        """Free what is shared between instances, after they are closed. Idempotent."""


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

    def get(self, name: str) -> Backend:
        """Return the backend, importing its engine when it is first asked for.

        Raises:
            InferenceError: UNSUPPORTED when the name is unknown or its engine is not installed.
        """
