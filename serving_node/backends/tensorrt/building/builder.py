"""One build, through TensorRT's own Python interface. Runs in the worker's process.

Source: the Python API of TensorRT 11. The module ``tensorrt`` is passed in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serving_node.backends.tensorrt.building.planning import NetworkInput, complete_profiles
from serving_node.backends.tensorrt.building.progress import BuildProgress
from serving_node.backends.tensorrt.engine import make_logger
from serving_node.contract.engine_builds import BuildPlan, BuildProfile
from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError

Told = Callable[[float, str], None]
Cancelled = Callable[[], bool]

CANCELLED_SENTENCE = "the build was cancelled"


def build_engine(trt: Any, model: Path, plan: BuildPlan, cache: Path, told: Told, cancelled: Cancelled) -> bytes:
    """Return the engine of an ONNX file for the current GPU. Blocks for minutes.

    ``cache``: what was measured in earlier builds, read and written. ``told`` gets every progress, on any thread.

    Raises:
        InferenceError: INVALID_ARG, the file or the plan cannot be used; CANCELLED; INTERNAL, TensorRT failed.
    """
    logger = make_logger(trt)
    builder = trt.Builder(logger)
    # types are those of the file, which TensorRT 10 must be told
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(model)):
        reasons = [parser.get_error(index).desc() for index in range(parser.num_errors)]
        reason = reasons[0].strip().split("\n", 1)[0].rstrip(".") if reasons else "no reason given"
        raise InferenceError(ErrorCode.INVALID_ARG, f"TensorRT {trt.__version__} cannot read '{model.name}': {reason}")
    inputs = [_input(network.get_input(index)) for index in range(network.num_inputs)]
    config = builder.create_builder_config()
    for profile in complete_profiles(inputs, plan):
        _add_profile(builder, config, profile)
    config.builder_optimization_level = plan.optimization_level
    if plan.workspace_bytes:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, plan.workspace_bytes)
    if plan.version_compatible:
        config.set_flag(trt.BuilderFlag.VERSION_COMPATIBLE)
    timing = config.create_timing_cache(cache.read_bytes() if cache.is_file() else b"")
    config.set_timing_cache(timing, True)  # what was measured elsewhere is still better than nothing
    monitor = make_monitor(trt, told, cancelled)
    config.progress_monitor = monitor
    engine = builder.build_serialized_network(network, config)
    if engine is None:
        if cancelled():
            raise InferenceError(ErrorCode.CANCELLED, CANCELLED_SENTENCE)
        reason = logger.last_error.strip().split("\n", 1)[0].rstrip(".") or "no reason given"
        raise InferenceError(ErrorCode.INTERNAL, f"TensorRT {trt.__version__} cannot build the engine: {reason}")
    _keep(cache, bytes(memoryview(config.get_timing_cache().serialize())))
    return bytes(memoryview(engine))


def make_monitor(trt: Any, told: Told, cancelled: Cancelled) -> Any:
    """Return what TensorRT tells its progress, from any of its threads, and asks whether to go on."""

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]  # the base is known at run time only
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self._lock = threading.Lock()
            self._progress = BuildProgress()

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            with self._lock:
                self._progress.start(phase_name, parent_phase or "", num_steps)
                told(self._progress.fraction, self._progress.phase)

        def step_complete(self, phase_name: str, step: int) -> bool:
            with self._lock:
                self._progress.step(phase_name, step)
                told(self._progress.fraction, self._progress.phase)
            return not cancelled()

        def phase_finish(self, phase_name: str) -> None:
            with self._lock:
                self._progress.finish(phase_name)
                told(self._progress.fraction, self._progress.phase)

    return Monitor()


def _input(tensor: Any) -> NetworkInput:
    return NetworkInput(tensor.name, tuple(int(dim) for dim in tensor.shape), bool(tensor.is_shape_tensor))


def _add_profile(builder: Any, config: Any, profile: BuildProfile) -> None:
    made = builder.create_optimization_profile()
    for bounds in profile.inputs:
        add = made.set_shape_input if bounds.of_values else made.set_shape
        add(bounds.input, bounds.least, bounds.best, bounds.most)
    if config.add_optimization_profile(made) < 0:
        raise InferenceError(ErrorCode.INVALID_ARG, "TensorRT refuses a profile of the plan")


def _keep(cache: Path, content: bytes) -> None:
    part = cache.with_name(f"{cache.name}.part")
    part.write_bytes(content)
    part.rename(cache)
