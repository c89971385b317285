"""How engines are opened and run: what of the config and of ``--backend-config=tensorrt,...`` this backend reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from serving_node.contract.errors import ErrorCode
from serving_node.contract.proto.model_config_pb2 import ModelConfig, ModelOptimizationPolicy
from serving_node.core.errors import InferenceError

_TRUE, _FALSE = ("true", "on", "1"), ("false", "off", "0")


class Allocation(StrEnum):
    """When a context takes its working memory: for its largest profile at once, or for each profile anew."""

    STATIC = "STATIC"
    ON_PROFILE_CHANGE = "ON_PROFILE_CHANGE"


class Priority(StrEnum):
    """Priority of an instance's stream among those of the GPU."""

    DEFAULT = "DEFAULT"
    MAX = "MAX"
    MIN = "MIN"


@dataclass(frozen=True, slots=True)
class BackendSettings:
    """Options of the backend. ``allows_host_code``: engines that bring a runtime with them may be opened."""

    allows_host_code: bool = False


@dataclass(frozen=True, slots=True)
class InstanceSettings:
    """How one instance runs. Source: ``optimization`` of Triton's ModelConfig.

    ``busy_wait``: wait for the GPU without sleeping. ``output_stream``: copy outputs on a stream of their own.
    """

    priority: Priority = Priority.DEFAULT
    busy_wait: bool = False
    output_stream: bool = False
    pinned_inputs: bool = True
    pinned_outputs: bool = True
    allocation: Allocation = Allocation.STATIC


def backend_settings(options: Mapping[str, str]) -> BackendSettings:
    """Return the options of the backend.

    ``coalesce-request-input`` is read and changes nothing: the requests of a batch are always joined in one buffer
    and copied at once.

    Raises:
        InferenceError: INVALID_ARG, a value is neither true nor false; UNSUPPORTED, plugin libraries are asked for.
    """
    if options.get("plugins"):
        raise InferenceError(
            ErrorCode.UNSUPPORTED, "plugin libraries are code and cannot be loaded into the node's process"
        )
    _switch(options, "coalesce-request-input")
    return BackendSettings(allows_host_code=_switch(options, "version-compatible"))


def instance_settings(config: ModelConfig) -> InstanceSettings:
    """Return how instances of a model run.

    Raises:
        InferenceError: INVALID_ARG with Triton's sentence; UNSUPPORTED, what this backend does not do.
    """
    parameters = {name: value.string_value for name, value in config.parameters.items()}
    if parameters.get("enable_multi_device", "").lower() in ("true", "1"):
        raise InferenceError(ErrorCode.UNSUPPORTED, "engines that span several GPUs are not served")
    if any(group.secondary_devices for group in config.instance_group):
        raise InferenceError(ErrorCode.UNSUPPORTED, "secondary devices (NVDLA) are not served")
    allocation = parameters.get("execution_context_allocation_strategy", Allocation.STATIC)
    if allocation not in (Allocation.STATIC, Allocation.ON_PROFILE_CHANGE):
        raise InferenceError(
            ErrorCode.INVALID_ARG,
            f"Invalid value for 'execution_context_allocation_strategy': '{allocation}' for model instance"
            f" '{config.name}'. Supported values are 'STATIC' and 'ON_PROFILE_CHANGE'.",
        )
    optimization = config.optimization
    priority = ModelOptimizationPolicy.ModelPriority.Name(optimization.priority).removeprefix("PRIORITY_")
    return InstanceSettings(
        priority=Priority(priority),
        busy_wait=optimization.cuda.busy_wait_events,
        output_stream=optimization.cuda.output_copy_stream,
        pinned_inputs=not optimization.HasField("input_pinned_memory") or optimization.input_pinned_memory.enable,
        pinned_outputs=not optimization.HasField("output_pinned_memory") or optimization.output_pinned_memory.enable,
        allocation=Allocation(allocation),
    )


def _switch(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in (*_TRUE, *_FALSE):
        raise InferenceError(
            ErrorCode.INVALID_ARG, f"--backend-config=tensorrt,{name} must be true or false, got '{text}'"
        )
    return text in _TRUE
