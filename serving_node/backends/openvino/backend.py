"""The OpenVINO backend: reads IR, ONNX and the other formats of OpenVINO, and runs batches on a processor."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from serving_node.backends.arrays import ArrayInstance
from serving_node.backends.onnx_file import check_onnx_file
from serving_node.backends.openvino.failures import openvino_sentence
from serving_node.backends.openvino.settings import OpenVinoSettings, openvino_settings
from serving_node.contract.errors import ErrorCode
from serving_node.core.backend import Device, DeviceKind, ModelSource
from serving_node.core.errors import InferenceError
from serving_node.core.inner_calls import InnerCalls
from serving_node.core.rows import Array
from serving_node.core.tensor import NUMPY_DTYPES
from serving_node.core.threads import default_threads

# without it the import would report itself to the maker; OpenVINO is made to do without this package
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
import openvino as ov  # noqa: E402

from serving_node.backends.openvino.model import TYPES, adapt, signature  # noqa: E402

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig
    from serving_node.contract.signature import ModelSignature


_DYNAMIC_THREADS = 2


class OpenVinoInstance(ArrayInstance):
    """Runs batches through a request of its own on the compiled model that all instances share."""

    def __init__(self, model: OpenVinoModel, config: ModelConfig, settings: OpenVinoSettings) -> None:
        known = model.signature()
        super().__init__(config, {tensor.name: tensor.datatype for tensor in known.outputs})
        self._model = model
        self._compiled = model.compiled()
        self._request = self._compiled.create_infer_request()
        self._types = {tensor.name: TYPES[tensor.datatype] for tensor in known.inputs}
        # 0: any number of rows
        self._fixed_rows = config.max_batch_size if settings.fixed_batch else 0
        self._pads = settings.pads

    def close(self) -> None:
        """Let go of the request."""
        self._request = self._compiled = None

    def _run(self, names: list[str], feed: dict[str, Array]) -> Sequence[Array]:
        rows = None
        if self._fixed_rows:
            rows = len(next(iter(feed.values())))
            feed = {name: self._filled(array) for name, array in feed.items()}
        # tensors on the memory of the arrays, which the request lets go when it gets the next ones
        tensors = {name: ov.Tensor(array, ov.Shape(array.shape), self._types[name]) for name, array in feed.items()}
        while not self._infer(tensors):
            self._compiled = self._model.compiled()
            self._request = self._compiled.create_infer_request()
        # the request keeps its own memory for the next batch
        return [self._output(name)[:rows].copy() if rows else self._output(name).copy() for name in names]

    def _infer(self, tensors: dict[str, Any]) -> bool:
        """Run a batch; False when the compiled model has been replaced and the answers must not be trusted."""
        if not self._model.is_current(self._compiled):
            return False
        try:
            self._request.infer(tensors, share_inputs=True, share_outputs=True)
        except RuntimeError as error:
            if not self._model.discard(self._compiled):
                return False
            raise InferenceError(
                ErrorCode.INTERNAL, f"openvino error in running inference : {openvino_sentence(str(error))}"
            ) from error
        return self._model.is_current(self._compiled)

    def _output(self, name: str) -> Array:
        data: Array = self._request.get_tensor(name).data
        # BF16 comes as FP16 with the same bits
        return data.view(NUMPY_DTYPES[self._datatypes[name]])

    def _filled(self, array: Array) -> Array:
        missing = self._fixed_rows - len(array)
        if not missing:
            return array
        if not self._pads:
            raise InferenceError(
                ErrorCode.INTERNAL,
                f"expected requests with batch size '{self._fixed_rows}', got '{len(array)}'... this error can be"
                " avoided by setting 'ENABLE_BATCH_PADDING' parameter in model configuration to 'YES' at a performance"
                " cost.",
            )
        return np.concatenate([array, np.zeros((missing, *array.shape[1:]), array.dtype)])


class OpenVinoModel:
    """An opened model, compiled once for all its instances. Safe on any thread.

    Measured with 2026.4: after an error of a model with dynamic shapes the compiled model mixes shapes of the failed
    batch into the next ones, so it is replaced; and with a single thread such errors are not even reported, so there
    are two at least.
    """

    def __init__(self, source: ModelSource, core: Any, path: Path, settings: OpenVinoSettings) -> None:
        self._name = source.name
        self._path = path
        self._core = core
        self._settings = settings
        try:
            self._model = adapt(core.read_model(str(path)), source.config, settings)
            self._signature = signature(self._model, free_rows=settings.fixed_batch)
        except InferenceError:
            raise
        except Exception as error:
            raise _load_failure(path, error) from error
        self._lock = threading.Lock()
        self._compiled: Any = None

    def signature(self) -> ModelSignature:
        """Return the inputs and outputs, the first dimension free where there are batches."""
        return self._signature

    def create_instance(self, device: Device, config: ModelConfig, name: str) -> OpenVinoInstance:
        """Return an executor."""
        return OpenVinoInstance(self, config, self._settings)

    def compiled(self) -> Any:
        """Return the compiled model; blocks while it is compiled. Raises InferenceError."""
        compiled = self._compiled
        if compiled is None:
            with self._lock:
                compiled = self._compiled = self._compiled or self._compile()
        return compiled

    def is_current(self, compiled: Any) -> bool:
        """Return whether this is the compiled model of now."""
        return compiled is self._compiled

    def discard(self, compiled: Any) -> bool:
        """Compile again for the next batch if shapes are dynamic; False when that was asked for before."""
        with self._lock:
            if self._compiled is not compiled:
                return False
            if self._model.is_dynamic():
                self._compiled = None
            return True

    def memory_bytes(self) -> int:
        """Return an estimate: the size of the model's files."""
        files = self._path.rglob("*") if self._path.is_dir() else (self._path, self._path.with_suffix(".bin"))
        return sum(file.stat().st_size for file in files if file.is_file())

    def close(self) -> None:
        """Let go of the compiled model."""
        self._compiled = self._model = None

    def _compile(self) -> Any:
        properties = dict(self._settings.properties)
        if self._settings.device == "CPU" and self._model.is_dynamic():
            if len(os.sched_getaffinity(0)) < _DYNAMIC_THREADS:
                raise InferenceError(
                    ErrorCode.UNAVAILABLE,
                    f"model '{self._name}' has dynamic shapes, whose errors OpenVINO does not report on a single core",
                )
            threads = int(properties["INFERENCE_NUM_THREADS"])
            properties["INFERENCE_NUM_THREADS"] = str(max(_DYNAMIC_THREADS, threads))
        try:
            return self._core.compile_model(self._model, self._settings.device, properties)
        except Exception as error:
            raise _load_failure(self._path, error) from error


class OpenVinoBackend:
    """Opens what OpenVINO reads."""

    name = "openvino"

    def __init__(self) -> None:
        self._core = _core()

    def open_model(self, source: ModelSource) -> OpenVinoModel:
        """Read a version's files; blocks.

        Raises:
            InferenceError: INVALID_ARG with the reason in one sentence.
        """
        if any(device.kind is DeviceKind.GPU for device in source.devices):
            raise InferenceError(
                ErrorCode.INVALID_ARG,
                f"unable to load model '{source.name}', Triton OpenVINO backend supports only Kind CPU and AUTO",
            )
        settings = openvino_settings(source.config, threads=default_threads(1), instances=len(source.devices))
        core = self._core
        if settings.extension:
            core = _core()  # what a library adds stays with its model
            _add_extension(core, source, settings.extension)
        self._check_device(settings.device)
        path = _model_path(source)
        if path.suffix == ".onnx":
            check_onnx_file(path, source.directory)
        return OpenVinoModel(source, core, path, settings)

    def _check_device(self, device: str) -> None:
        devices = list(self._core.available_devices)
        # GPU.1 is one of them, AUTO:GPU,CPU chooses among them
        kind = device.partition(":")[0].partition(".")[0]
        if kind not in {known.partition(".")[0] for known in devices} | {"AUTO", "MULTI", "HETERO", "BATCH"}:
            raise InferenceError(
                ErrorCode.INVALID_ARG,
                f"OpenVINO finds no device {device} on this node, only {', '.join(devices)}",
            )


def backend(options: Mapping[str, str], calls: InnerCalls) -> OpenVinoBackend:
    """Return the backend."""
    return OpenVinoBackend()


def _core() -> Any:
    core = ov.Core()
    # a file that is cut while it is mapped would end the node
    core.set_property({"ENABLE_MMAP": False})
    return core


def _add_extension(core: Any, source: ModelSource, name: str) -> None:
    if not source.in_worker:
        raise InferenceError(
            ErrorCode.UNSUPPORTED, "CPU extensions are code and cannot be loaded into the node's process"
        )
    path = (source.directory / name).resolve()
    if not path.is_relative_to(source.directory.resolve().parent) or not path.is_file():
        raise InferenceError(ErrorCode.INVALID_ARG, f"unable to find CPU extension '{name}' for model '{source.name}'")
    try:
        core.add_extension(str(path))
    except RuntimeError as error:
        raise InferenceError(
            ErrorCode.INVALID_ARG,
            f"openvino error in  loading custom CPU extensions : {openvino_sentence(str(error))}",
        ) from error


def _model_path(source: ModelSource) -> Path:
    filename = source.config.default_model_filename or "model.xml"
    path = (source.directory / filename).resolve()
    if not path.is_relative_to(source.directory.resolve()):
        raise InferenceError(ErrorCode.INVALID_ARG, f"model file '{filename}' lies outside the version's folder")
    if not path.exists():
        raise InferenceError(ErrorCode.INVALID_ARG, f"unable to find '{filename}' for model '{source.name}'")
    return path


def _load_failure(path: Path, error: Exception) -> InferenceError:
    text = "a name in it is no UTF-8" if isinstance(error, UnicodeDecodeError) else openvino_sentence(str(error))
    if text.startswith("Unable to read the model"):
        text = "it is not a model, or of another format than its name says"
    return InferenceError(ErrorCode.INVALID_ARG, f"OpenVINO {_version()} cannot load '{path.name}': {text}")


def _version() -> str:
    return str(ov.__version__).partition("-")[0]
