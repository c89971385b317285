"""What must be in the environment before ONNX Runtime is imported, and how its sessions are set up."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from serving_node.backends.onnxruntime.providers import integer, switch
from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.threads import default_threads

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig

# parameters of a model that are entries of the session's own config
_SESSION_ENTRIES = ("session.use_device_allocator_for_initializers",)


def prepare_environment() -> None:
    """Switch telemetry off. Call before the first import of onnxruntime."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # noqa: TID251  # the library reads it while it is imported


@dataclass(frozen=True, slots=True)
class GlobalThreads:
    """The thread pools that all sessions share; 0 leaves the number to ONNX Runtime, which takes all cores."""

    intra_op_threads: int = 0
    inter_op_threads: int = 0


def global_threads(options: Mapping[str, str]) -> GlobalThreads | None:
    """Return the shared thread pools that ``--backend-config=onnxruntime,...`` asks for, None without.

    Raises:
        InferenceError: INVALID_ARG when an option is not what it should be.
    """
    if not switch("enable-global-threadpool", options.get("enable-global-threadpool", "0")):
        return None
    return GlobalThreads(
        _count("intra_op_thread_count", options.get("intra_op_thread_count", "0")),
        _count("inter_op_thread_count", options.get("inter_op_thread_count", "0")),
    )


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How a session computes. Source: parameters and ``optimization`` of Triton's ONNX Runtime backend.

    ``graph_level`` is Triton's: 0 all optimisations, -1 basic, 1 extended, 2 none. ``own_threads``: the session does
    not use the pools that all share.
    """

    intra_op_threads: int = 1
    inter_op_threads: int = 1
    own_threads: bool = True
    parallel_execution: bool = False
    graph_level: int = 0
    memory_arena: bool = True
    memory_pattern: bool = True
    shrink_arena: str = ""
    shares_session: bool | None = None
    session_entries: dict[str, str] = field(default_factory=dict)


def session_settings(config: ModelConfig, instances: int, *, own_threads: bool = True) -> SessionSettings:
    """Return the settings of a model whose sessions serve ``instances`` instances on one device.

    Raises:
        InferenceError: INVALID_ARG when a parameter is not what it should be.
    """
    values = {name: parameter.string_value for name, parameter in config.parameters.items()}
    mode = integer("execution_mode", values.get("execution_mode") or "0")
    if mode not in (0, 1):
        # two spaces, as Triton
        raise InferenceError(
            ErrorCode.INVALID_ARG,
            f"Invalid configuration value provided. Expected values for  execution_mode are 0 or 1 but got {mode} .",
        )
    intra = _count("intra_op_thread_count", values.get("intra_op_thread_count") or "0")
    inter = _count("inter_op_thread_count", values.get("inter_op_thread_count") or "0")
    shares = values.get("share_session_between_instances")
    return SessionSettings(
        intra_op_threads=intra or default_threads(instances),
        inter_op_threads=inter or 1,
        own_threads=own_threads,
        parallel_execution=mode == 1,
        graph_level=config.optimization.graph.level,
        memory_arena=switch("enable_mem_arena", values.get("enable_mem_arena") or "1"),
        memory_pattern=switch("enable_mem_pattern", values.get("enable_mem_pattern") or "1"),
        shrink_arena=values.get("memory.enable_memory_arena_shrinkage", ""),
        shares_session=None if shares is None else shares.lower() == "true",
        session_entries={name: values[name] for name in _SESSION_ENTRIES if name in values},
    )


def _count(name: str, text: str) -> int:
    count = integer(name, text)
    if not 0 <= count <= 1024:
        raise InferenceError(ErrorCode.INVALID_ARG, f"parameter '{name}' must be between 0 and 1024, got {count}")
    return count
