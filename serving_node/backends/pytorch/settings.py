"""The parameters of a PyTorch model, and what compiled code reads from the environment.

Source: the parameters of Triton's PyTorch backend and of its Python runtime; both names of one setting are taken.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.threads import default_threads

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig

_CHECK_INPUTS = "AOTI_RUNTIME_CHECK_INPUTS"
_TRUE = ("true", "on", "1")
_FALSE = ("false", "off", "0")


@contextlib.contextmanager
def checked_inputs() -> Iterator[None]:
    """Let code of AOTInductor that runs for the first time meanwhile compare its inputs with what it is for."""
    os.environ[_CHECK_INPUTS] = "1"  # noqa: TID251  # the compiled code itself looks there, and then never again
    try:
        yield
    finally:
        del os.environ[_CHECK_INPUTS]  # noqa: TID251


@dataclass(frozen=True, slots=True)
class TorchSettings:
    """How a model is loaded and computed.

    ``inter_op_threads`` 0 leaves PyTorch's own number. ``jit_executor``, ``jit_profiling`` and ``tensor_fuser`` are
    switches of TorchScript, None leaves them. ``compile_options`` are arguments of ``torch.compile``; None: not used.
    """

    intra_op_threads: int
    inter_op_threads: int = 0
    inference_mode: bool = True
    optimized: bool = True
    shares_weights: bool = False
    cleans_cache: bool = False
    cudnn: bool = True
    jit_executor: bool | None = None
    jit_profiling: bool | None = None
    tensor_fuser: bool | None = None
    compile_options: dict[str, Any] | None = None


def torch_settings(config: ModelConfig, instances: int) -> TorchSettings:
    """Return the settings of a model with ``instances`` instances in all.

    Raises:
        InferenceError: INVALID_ARG, a parameter is not what it should be.
    """
    values = {name: parameter.string_value for name, parameter in config.parameters.items()}
    return TorchSettings(
        intra_op_threads=_threads(values, "INTRA_OP_THREAD_COUNT", "NUM_THREADS") or default_threads(instances),
        inter_op_threads=_threads(values, "INTER_OP_THREAD_COUNT", "NUM_INTEROP_THREADS"),
        inference_mode=_switch(values, "INFERENCE_MODE") is not False,
        optimized=not _switch(values, "DISABLE_OPTIMIZED_EXECUTION"),
        shares_weights=bool(_switch(values, "ENABLE_WEIGHT_SHARING")),
        cleans_cache=bool(_switch(values, "ENABLE_CACHE_CLEANING", "CACHE_CLEANING_ENABLED")),
        cudnn=not _switch(values, "DISABLE_CUDNN"),
        jit_executor=_switch(values, "ENABLE_JIT_EXECUTOR"),
        jit_profiling=_switch(values, "ENABLE_JIT_PROFILING"),
        tensor_fuser=_switch(values, "ENABLE_TENSOR_FUSER"),
        compile_options=_compile_options(values),
    )


def graph_sizes(config: ModelConfig) -> tuple[int, ...]:
    """Return the batch sizes for which the config wants CUDA graphs, in order; 0 for a model without batches.

    Those of ``optimization.cuda.graph_spec``, else the preferred batch sizes; none when ``graphs`` is not set.
    """
    cuda = config.optimization.cuda
    if not cuda.graphs:
        return ()
    if config.max_batch_size < 1:
        return (0,)
    sizes = {spec.batch_size for spec in cuda.graph_spec} or set(config.dynamic_batching.preferred_batch_size)
    return tuple(sorted(size for size in sizes if 0 < size <= config.max_batch_size)) or (config.max_batch_size,)


def _switch(values: dict[str, str], *names: str) -> bool | None:
    """Return the first of the parameters that is there, None without."""
    name, text = _first(values, names)
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if not text:
        return None
    raise _refusal(name, f"failed to convert '{values[name]}' to boolean")


def _threads(values: dict[str, str], *names: str) -> int:
    """Return a number of threads, 0 when the parameter is left out or not positive: PyTorch's own choice."""
    name, text = _first(values, names)
    try:
        return max(0, int(text)) if text else 0
    except ValueError:
        raise _refusal(name, f"failed to convert '{values[name]}' to int number") from None


def _first(values: dict[str, str], names: tuple[str, ...]) -> tuple[str, str]:
    name = next((name for name in names if values.get(name)), names[0])
    return name, values.get(name, "").strip().lower()


def _compile_options(values: dict[str, str]) -> dict[str, Any] | None:
    name = "TORCH_COMPILE_OPTIONAL_PARAMETERS"
    if name not in values:
        return None
    try:
        options = json.loads(values[name] or "{}")
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise _refusal(name, "it must be a JSON object with arguments of torch.compile")
    if "model" in options:
        raise _refusal(name, "'model' is not an optional parameter for 'torch.compile'")
    return options


def _refusal(name: str, what: str) -> InferenceError:
    return InferenceError(ErrorCode.INVALID_ARG, f"parameter '{name}': {what}")
