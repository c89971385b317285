"""Building a TensorRT engine from ONNX on a node: what is ordered, and how far it is.

The types of the computation are those of the ONNX file: TensorRT 11 has no switches for FP16 or INT8, so a model that
should compute in FP16 is converted before.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from serving_node.contract.control import FileRef
from serving_node.contract.errors import ContractError
from serving_node.contract.messages import Message
from serving_node.contract.proto.model_config_pb2 import ModelConfig

DEADLINE_SECONDS = 3600.0
_LARGEST_DIMENSION = 2**31 - 1


@dataclass(frozen=True, slots=True)
class InputBounds(Message):
    """What a profile allows for an input: its whole shape, or with ``of_values`` the elements of a shape tensor.

    The engine is tuned for ``best``.
    """

    input: str
    least: tuple[int, ...]
    best: tuple[int, ...]
    most: tuple[int, ...]
    of_values: bool = False


@dataclass(frozen=True, slots=True)
class BuildProfile(Message):
    """One optimisation profile. Inputs whose shape is fixed need no bounds."""

    inputs: tuple[InputBounds, ...]


@dataclass(frozen=True, slots=True)
class BuildPlan(Message):
    """How to build. Without ``profiles`` only first dimensions may be dynamic, from 1 to ``max_batch_size``.

    ``best_batch_size``: what it is then tuned for, 0 for the largest. ``workspace_bytes`` 0: as much as the GPU has.
    ``optimization_level``: TensorRT's, 0 fastest build to 5 fastest engine. ``version_compatible``: also for later
    versions of TensorRT; such an engine brings code with it, and only nodes that allow it open it.
    """

    profiles: tuple[BuildProfile, ...] = ()
    max_batch_size: int = 0
    best_batch_size: int = 0
    workspace_bytes: int = 0
    optimization_level: int = 3
    version_compatible: bool = False


@dataclass(frozen=True, slots=True)
class BuildOrder(Message):
    """An engine that is wanted. ``files``: the ONNX file first, then those with its weights; all blobs of the node."""

    files: tuple[FileRef, ...]
    plan: BuildPlan = BuildPlan()
    gpu: int = 0
    deadline_seconds: float = DEADLINE_SECONDS


class BuildState(StrEnum):
    """How far an engine is."""

    WAITING = "waiting"
    BUILDING = "building"
    READY = "ready"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether nothing will change any more."""
        return self in (BuildState.READY, BuildState.FAILED, BuildState.CANCELLED)


@dataclass(frozen=True, slots=True)
class BuildStatus(Message):
    """One build. ``key`` is equal for equal files, plan, TensorRT and kind of GPU, and names the engine in the cache.

    ``sequence`` grows with every change. ``progress`` is from 0 to 1 and never falls; ``phase`` is TensorRT's word for
    what it does. ``reason``: one sentence why there is no engine. ``engine``: the result, a blob of the node.
    """

    id: str
    key: str
    state: BuildState
    sequence: int
    progress: float = 0.0
    phase: str = ""
    reason: str = ""
    engine: FileRef | None = None
    seconds: float = 0.0
    was_cached: bool = False
    tensorrt_version: str = ""
    gpu_name: str = ""


def check_order(order: BuildOrder) -> None:
    """Refuse an order that can never be carried out. Raises ContractError with the field."""
    if not order.files:
        raise ContractError("an engine is built from an ONNX file, and none is given", field="files")
    if not 0 < order.deadline_seconds <= 24 * 3600:
        raise ContractError("the deadline must be between 0 and 86400 seconds", field="deadline_seconds")
    if order.gpu < 0:
        raise ContractError("a GPU has a number from 0 on", field="gpu")
    check_plan(order.plan)


def check_plan(plan: BuildPlan) -> None:
    """Refuse a plan that no engine can have. Raises ContractError with the field."""
    for name, limit in (("max_batch_size", _LARGEST_DIMENSION), ("workspace_bytes", 2**60), ("optimization_level", 5)):
        if not 0 <= getattr(plan, name) <= limit:
            raise ContractError(f"'{name}' must be between 0 and {limit}", field=f"plan.{name}")
    if not 0 <= plan.best_batch_size <= plan.max_batch_size:
        raise ContractError("'best_batch_size' must be between 0 and 'max_batch_size'", field="plan.best_batch_size")
    for number, profile in enumerate(plan.profiles):
        for place, bounds in enumerate(profile.inputs):
            _check_bounds(bounds, f"plan.profiles[{number}].inputs[{place}]")


def _check_bounds(bounds: InputBounds, field: str) -> None:
    if not len(bounds.least) == len(bounds.best) == len(bounds.most):
        raise ContractError(f"bounds of input '{bounds.input}' have different numbers of dimensions", field=field)
    lowest = -_LARGEST_DIMENSION if bounds.of_values else 0
    for low, best, high in zip(bounds.least, bounds.best, bounds.most, strict=True):
        if not lowest <= low <= best <= high <= _LARGEST_DIMENSION:
            raise ContractError(
                f"bounds of input '{bounds.input}' must rise from least over best to most, got {low}, {best}, {high}",
                field=field,
            )


def plan_for(config: ModelConfig) -> BuildPlan:
    """Return the plan that follows from a model's config: batches up to its largest, tuned for the preferred ones.

    Its dimensions -1 are left to the person who orders: a config does not say how large they get.
    """
    size: int = config.max_batch_size
    preferred = config.dynamic_batching.preferred_batch_size or config.sequence_batching.oldest.preferred_batch_size
    return BuildPlan(max_batch_size=size, best_batch_size=min(max(preferred, default=size), size))
