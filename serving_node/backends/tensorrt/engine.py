"""Engines through TensorRT's own Python interface: opening, and what they say about themselves.

Source: the Python API of TensorRT 11. The module ``tensorrt`` is passed in, so that importing this costs nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from serving_node.backends.tensorrt.facts import Bounds, EngineFacts, EngineTensor, Profile
from serving_node.backends.tensorrt.failures import HEAD_BYTES, plan_sentence
from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError


def make_logger(trt: Any) -> Any:
    """Return a logger for TensorRT that keeps its last error, for sentences: ``last_error``. Safe on any thread."""

    class Logger(trt.ILogger):  # type: ignore[misc]  # the base is known at run time only
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.last_error = ""

        def log(self, severity: Any, msg: str) -> None:
            if severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR):
                self.last_error = msg

    return Logger()


class Runtime:
    """TensorRT's runtime, shared by all engines of the node. Opening is one at a time: it is not safe otherwise."""

    def __init__(self, trt: Any, *, allows_host_code: bool) -> None:
        self._trt = trt
        self._logger = make_logger(trt)
        self._allows_host_code = allows_host_code
        self._lock = threading.Lock()
        self._runtime: Any = None

    @property
    def version(self) -> str:
        """TensorRT's version."""
        return str(self._trt.__version__)

    def last_error(self) -> str:
        """Return the last error that TensorRT told."""
        return str(self._logger.last_error)

    def open(self, path: Path) -> Any:
        """Return the engine in a file, on the current GPU. Blocks while weights are copied there.

        Raises:
            InferenceError: INVALID_ARG with the reason in one sentence.
        """
        plan = path.read_bytes()
        with self._lock:
            if self._runtime is None:
                self._runtime = self._trt.Runtime(self._logger)
                self._runtime.engine_host_code_allowed = self._allows_host_code
            self._logger.last_error = ""
            engine = self._runtime.deserialize_cuda_engine(plan)
            if engine is None:
                sentence = plan_sentence(
                    self.last_error(),
                    plan[:HEAD_BYTES],
                    path.name,
                    self.version,
                    allows_host_code=self._allows_host_code,
                )
                raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        return engine


def read_facts(trt: Any, engine: Any) -> EngineFacts:
    """Return what an engine says about itself."""
    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    tensors = tuple(_tensor(trt, engine, name) for name in names)
    profiles = tuple(_profile(engine, tensors, index) for index in range(engine.num_optimization_profiles))
    weights = int(engine.get_engine_stat(trt.EngineStat.TOTAL_WEIGHTS_SIZE))
    return EngineFacts(tensors, profiles, max(weights, 0))


def _tensor(trt: Any, engine: Any, name: str) -> EngineTensor:
    layout = engine.get_tensor_format(name)
    return EngineTensor(
        name=name,
        type_name=engine.get_tensor_dtype(name).name,
        shape=tuple(engine.get_tensor_shape(name)),
        is_input=engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT,
        is_shape=bool(engine.is_shape_inference_io(name)),
        on_host=engine.get_tensor_location(name) == trt.TensorLocation.HOST,
        layout="" if layout == trt.TensorFormat.LINEAR else layout.name,
    )


def _profile(engine: Any, tensors: tuple[EngineTensor, ...], index: int) -> Profile:
    shapes: dict[str, Bounds] = {}
    values: dict[str, Bounds] = {}
    for tensor in tensors:
        if not tensor.is_input:
            continue
        is_fixed = -1 not in tensor.shape
        shape = [tensor.shape] * 3 if is_fixed else engine.get_tensor_profile_shape(tensor.name, index)
        shapes[tensor.name] = _bounds(shape)
        given = _values(engine, tensor, index) if tensor.is_shape else ()
        if given:
            values[tensor.name] = _bounds(given)
    return Profile(index, shapes, values)


def _values(engine: Any, tensor: EngineTensor, index: int) -> Sequence[Any]:
    """Return what a profile allows for the elements of a shape tensor; empty where it says nothing."""
    try:
        # the binding takes the number first here, unlike for shapes
        three: Sequence[Any] = engine.get_tensor_profile_values(index, tensor.name)
    except RuntimeError:  # a tensor whose length is dynamic
        return ()
    return three


def _bounds(three: Sequence[Any]) -> Bounds:
    least, best, most = (tuple(int(dim) for dim in one) for one in three)
    return Bounds(least, best, most)
