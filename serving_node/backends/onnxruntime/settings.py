"""What must be in the environment before ONNX Runtime is imported, and how its sessions are set up."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig

# from here on a core is left to the event loop without being missed
_MANY_CORES = 5


def prepare_environment() -> None:
    """Switch telemetry off. Call before the first import of onnxruntime."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # noqa: TID251  # the library reads it while it is imported


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How a session computes. Source: parameters and ``optimization`` of Triton's ONNX Runtime backend.

    ``graph_level`` is Triton's: 0 all optimisations, -1 basic, 1 extended, 2 none.
    """

    intra_op_threads: int = 1
    inter_op_threads: int = 1
    parallel_execution: bool = False
    graph_level: int = 0
    memory_arena: bool = True
    memory_pattern: bool = True
    shrink_arena: str = ""
    shares_session: bool | None = None
    session_entries: dict[str, str] = field(default_factory=dict)


def session_settings(config: ModelConfig, instances: int) -> SessionSettings:
    """Return the settings of a model whose sessions serve ``instances`` instances on one device.

    Raises:
        InferenceError: INVALID_ARG when a parameter is not what it should be.
    """
    values = {name: parameter.string_value for name, parameter in config.parameters.items()}
    graph_level = 0
    if config.HasField("optimization") and config.optimization.HasField("graph"):
        graph_level = config.optimization.graph.level
    shares = values.get("share_session_between_instances")
    return SessionSettings(
        intra_op_threads=_integer(values, "intra_op_thread_count", 0) or default_threads(instances),
        inter_op_threads=_integer(values, "inter_op_thread_count", 1),
        parallel_execution=_integer(values, "execution_mode", 0) == 1,
        graph_level=graph_level,
        memory_arena=_integer(values, "enable_mem_arena", 1) != 0,
        memory_pattern=_integer(values, "enable_mem_pattern", 1) != 0,
        shrink_arena=values.get("memory.enable_memory_arena_shrinkage", ""),
        shares_session=None if shares is None else shares.lower() == "true",
    )


def default_threads(instances: int) -> int:
    """Return how many threads an execution uses so that all instances together do not fight over the cores.

    On small machines one core is left to the event loop: measured on two cores, a second thread made no model faster.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    usable = cores if cores >= _MANY_CORES else cores - 1
    return max(1, usable // max(1, instances))


def _integer(values: dict[str, str], name: str, default: int) -> int:
    text = values.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise InferenceError(ErrorCode.INVALID_ARG, f"parameter '{name}' must be an integer, got '{text}'") from None
