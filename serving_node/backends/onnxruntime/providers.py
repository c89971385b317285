"""Which execution providers run a session, and with which options. Pure.

Source: ``execution_accelerators`` and the CUDA parameters of Triton's ONNX Runtime backend, the options of ONNX
Runtime's providers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING

from serving_node.contract.errors import ErrorCode
from serving_node.core.backend import Device, DeviceKind
from serving_node.core.errors import InferenceError

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
TENSORRT, OPENVINO = "TensorrtExecutionProvider", "OpenVINOExecutionProvider"

Provider = tuple[str, dict[str, str]]


class _Kind(Enum):
    SWITCH = auto()
    INTEGER = auto()
    TEXT = auto()
    # a file or folder that the provider reads or writes; it may hold an engine or a library, so it is code
    PATH = auto()


# key in the config -> (ONNX Runtime's option, what its text is)
_TENSORRT = {
    "max_workspace_size_bytes": ("trt_max_workspace_size", _Kind.INTEGER),
    "int8_calibration_table_name": ("trt_int8_calibration_table_name", _Kind.PATH),
    "int8_use_native_calibration_table": ("trt_int8_use_native_calibration_table", _Kind.SWITCH),
    "trt_max_partition_iterations": ("trt_max_partition_iterations", _Kind.INTEGER),
    "trt_min_subgraph_size": ("trt_min_subgraph_size", _Kind.INTEGER),
    "trt_dla_enable": ("trt_dla_enable", _Kind.SWITCH),
    "trt_dla_core": ("trt_dla_core", _Kind.INTEGER),
    "trt_engine_cache_enable": ("trt_engine_cache_enable", _Kind.SWITCH),
    "trt_engine_cache_path": ("trt_engine_cache_path", _Kind.PATH),
    "trt_engine_cache_prefix": ("trt_engine_cache_prefix", _Kind.PATH),
    "trt_dump_subgraphs": ("trt_dump_subgraphs", _Kind.SWITCH),
    "trt_force_sequential_engine_build": ("trt_force_sequential_engine_build", _Kind.SWITCH),
    "trt_context_memory_sharing_enable": ("trt_context_memory_sharing_enable", _Kind.SWITCH),
    "trt_layer_norm_fp32_fallback": ("trt_layer_norm_fp32_fallback", _Kind.SWITCH),
    "trt_timing_cache_enable": ("trt_timing_cache_enable", _Kind.SWITCH),
    "trt_timing_cache_path": ("trt_timing_cache_path", _Kind.PATH),
    "trt_force_timing_cache": ("trt_force_timing_cache", _Kind.SWITCH),
    "trt_detailed_build_log": ("trt_detailed_build_log", _Kind.SWITCH),
    "trt_build_heuristics_enable": ("trt_build_heuristics_enable", _Kind.SWITCH),
    "trt_sparsity_enable": ("trt_sparsity_enable", _Kind.SWITCH),
    "trt_builder_optimization_level": ("trt_builder_optimization_level", _Kind.INTEGER),
    "trt_auxiliary_streams": ("trt_auxiliary_streams", _Kind.INTEGER),
    "trt_tactic_sources": ("trt_tactic_sources", _Kind.TEXT),
    "trt_extra_plugin_lib_paths": ("trt_extra_plugin_lib_paths", _Kind.PATH),
    "trt_profile_min_shapes": ("trt_profile_min_shapes", _Kind.TEXT),
    "trt_profile_max_shapes": ("trt_profile_max_shapes", _Kind.TEXT),
    "trt_profile_opt_shapes": ("trt_profile_opt_shapes", _Kind.TEXT),
    "trt_cuda_graph_enable": ("trt_cuda_graph_enable", _Kind.SWITCH),
    "trt_dump_ep_context_model": ("trt_dump_ep_context_model", _Kind.SWITCH),
    "trt_ep_context_file_path": ("trt_ep_context_file_path", _Kind.PATH),
    "trt_ep_context_embed_mode": ("trt_ep_context_embed_mode", _Kind.INTEGER),
}
_PRECISIONS = {"FP32": "", "FP16": "trt_fp16_enable", "BF16": "trt_bf16_enable", "INT8": "trt_int8_enable"}
# Those that take an address in memory are left out: a config must not name one. CUDA graphs need buffers that stay.
_CUDA = {
    "arena_extend_strategy": _Kind.TEXT,
    "gpu_mem_limit": _Kind.INTEGER,
    "cudnn_conv_algo_search": _Kind.TEXT,
    "cudnn_conv_use_max_workspace": _Kind.SWITCH,
    "cudnn_conv1d_pad_to_nc1d": _Kind.SWITCH,
    "do_copy_in_default_stream": _Kind.SWITCH,
    "use_ep_level_unified_stream": _Kind.SWITCH,
    "enable_skip_layer_norm_strict_mode": _Kind.SWITCH,
    "fuse_conv_bias": _Kind.SWITCH,
    "prefer_nhwc": _Kind.SWITCH,
    "sdpa_kernel": _Kind.INTEGER,
    "tunable_op_enable": _Kind.SWITCH,
    "tunable_op_tuning_enable": _Kind.SWITCH,
    "tunable_op_max_tuning_duration_ms": _Kind.INTEGER,
    "use_tf32": _Kind.SWITCH,
}
_OPENVINO = {
    "device_type": _Kind.TEXT,
    "precision": _Kind.TEXT,
    "num_of_threads": _Kind.INTEGER,
    "num_streams": _Kind.INTEGER,
    "disable_dynamic_shapes": _Kind.SWITCH,
}
# parameter of the model, Triton's older form -> its number in words for ONNX Runtime
_CUDA_CHOICES = {
    "cudnn_conv_algo_search": ("EXHAUSTIVE", "HEURISTIC", "DEFAULT"),
    "arena_extend_strategy": ("kNextPowerOfTwo", "kSameAsRequested"),
}


def providers(
    config: ModelConfig, device: Device, available: Collection[str], *, allow_code: bool = False
) -> list[Provider]:
    """Return the providers of a session on ``device``, the preferred first, each with its options.

    ``available`` are those that the installed ONNX Runtime offers. ``allow_code``: the session is in a process where
    code of models may run.

    Raises:
        InferenceError: INVALID_ARG: an accelerator or an option is unknown, or the provider is not there.
    """
    accelerators = config.optimization.execution_accelerators
    chosen: list[Provider] = []
    if device.kind is DeviceKind.GPU:
        if CUDA not in available:
            raise InferenceError(
                ErrorCode.INVALID_ARG,
                f"model '{config.name}' asks for KIND_GPU, but the ONNX Runtime of this node has no CUDA provider",
            )
        cuda: dict[str, str] = {}
        for accelerator in accelerators.gpu_execution_accelerator:
            if accelerator.name == "tensorrt":
                options = _tensorrt(accelerator.parameters, allow_code)
                chosen.append((TENSORRT, options | {"device_id": str(device.index)}))
            elif accelerator.name == "cuda":
                cuda |= _checked(accelerator.parameters, _CUDA, "CUDA")
            else:
                raise _unknown(accelerator.name)
        chosen.append((CUDA, cuda | _older_cuda(config) | {"device_id": str(device.index)}))
    for accelerator in accelerators.cpu_execution_accelerator:
        if accelerator.name != "openvino":
            raise _unknown(accelerator.name)
        chosen.append((OPENVINO, {"device_type": "CPU"} | _checked(accelerator.parameters, _OPENVINO, "OpenVINO")))
    for name, _ in chosen:
        if name not in available:
            raise InferenceError(
                ErrorCode.INVALID_ARG,
                f"model '{config.name}' asks for {name}, which the ONNX Runtime of this node does not have",
            )
    return [*chosen, (CPU, {})]


def _tensorrt(parameters: Mapping[str, str], allow_code: bool) -> dict[str, str]:
    options: dict[str, str] = {}
    for key, text in parameters.items():
        if key == "precision_mode":
            if text not in _PRECISIONS:
                raise InferenceError(ErrorCode.INVALID_ARG, f"unsupported precision mode '{text}' is requested")
            if text != "FP32":
                options[_PRECISIONS[text]] = "1"
            continue
        if key not in _TENSORRT:
            raise _unknown_option(key, "TensorRT")
        name, kind = _TENSORRT[key]
        if kind is _Kind.PATH and not allow_code:
            raise InferenceError(
                ErrorCode.UNSUPPORTED,
                f"parameter '{key}' names files outside the version, which are code: set 'flotilla.host' to 'process'",
            )
        if text:
            options[name] = _value(key, text, kind)
    return options


def _checked(parameters: Mapping[str, str], known: Mapping[str, _Kind], provider: str) -> dict[str, str]:
    for key in parameters:
        if key not in known:
            raise _unknown_option(key, provider)
    return {key: _value(key, text, known[key]) for key, text in parameters.items() if text}


def _older_cuda(config: ModelConfig) -> dict[str, str]:
    """Return the CUDA options that stand among the parameters of the model."""
    options: dict[str, str] = {}
    for key, words in _CUDA_CHOICES.items():
        if key in config.parameters:
            text = config.parameters[key].string_value
            number = int(_value(key, text, _Kind.INTEGER))
            if not 0 <= number < len(words):
                raise InferenceError(ErrorCode.INVALID_ARG, f"unsupported {key} value '{number}' is requested")
            options[key] = words[number]
    for key in ("gpu_mem_limit", "do_copy_in_default_stream"):
        if key in config.parameters:
            options[key] = _value(key, config.parameters[key].string_value, _CUDA[key])
    return options


def _value(key: str, text: str, kind: _Kind) -> str:
    if kind is _Kind.SWITCH:
        return "1" if switch(key, text) else "0"
    if kind is _Kind.INTEGER:
        return str(integer(key, text))
    return text


def switch(name: str, text: str) -> bool:
    """Return what a parameter says: true, on and 1, or false, off and 0. Raises InferenceError."""
    if text.lower() in ("true", "on", "1"):
        return True
    if text.lower() in ("false", "off", "0"):
        return False
    raise InferenceError(ErrorCode.INVALID_ARG, f"parameter '{name}' must be true or false, got '{text}'")


def integer(name: str, text: str) -> int:
    """Return the number that a parameter says. Raises InferenceError."""
    try:
        return int(text)
    except ValueError:
        raise InferenceError(ErrorCode.INVALID_ARG, f"parameter '{name}' must be an integer, got '{text}'") from None


def _unknown(name: str) -> InferenceError:
    return InferenceError(ErrorCode.INVALID_ARG, f"unknown Execution Accelerator '{name}' is requested")


def _unknown_option(key: str, provider: str) -> InferenceError:
    return InferenceError(
        ErrorCode.INVALID_ARG, f"unknown parameter '{key}' is provided for {provider} Execution Accelerator"
    )
