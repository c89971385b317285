"""The ONNX Runtime backend: sessions, signature, execution of batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from serving_node.backends.arrays import ArrayInstance
from serving_node.backends.onnx_file import check_onnx_file
from serving_node.backends.onnxruntime import bfloat16
from serving_node.backends.onnxruntime.failures import load_sentence, run_sentence
from serving_node.backends.onnxruntime.providers import providers
from serving_node.backends.onnxruntime.settings import (
    SessionSettings,
    global_threads,
    prepare_environment,
    session_settings,
)
from serving_node.contract.errors import ErrorCode
from serving_node.contract.signature import ModelSignature, TensorSignature
from serving_node.core.backend import Device, DeviceKind, ModelSource
from serving_node.core.errors import InferenceError
from serving_node.core.inner_calls import InnerCalls
from serving_node.core.rows import Array

prepare_environment()
import onnxruntime as ort  # noqa: E402

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig

_DATATYPES = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(bfloat16)": "BF16",
    "tensor(string)": "BYTES",
}
# errors come back as exceptions; a client must not be able to fill the log with bad requests
_ONLY_FATAL = 4
# files of ONNX Runtime's own format, whose structure it verifies itself
_OWN_FORMAT = ".ort"
_GRAPH_LEVELS = {-1: "ORT_ENABLE_BASIC", 0: "ORT_ENABLE_ALL", 1: "ORT_ENABLE_EXTENDED", 2: "ORT_DISABLE_ALL"}


class OnnxInstance(ArrayInstance):
    """Runs batches on a session. Several instances may share one: sessions are safe to run concurrently."""

    def __init__(self, session: Any, config: ModelConfig, settings: SessionSettings) -> None:
        signature = signature_of(session)
        super().__init__(config, {tensor.name: tensor.datatype for tensor in signature.outputs})
        self._session = session
        self._raw_inputs = frozenset(tensor.name for tensor in signature.inputs if tensor.datatype == "BF16")
        self._has_bfloat16 = bool(self._raw_inputs) or "BF16" in self._datatypes.values()
        self._options = None
        if settings.shrink_arena:
            self._options = ort.RunOptions()
            self._options.add_run_config_entry("memory.enable_memory_arena_shrinkage", settings.shrink_arena)

    def close(self) -> None:
        """Let go of the session."""
        self._session = None

    def _run(self, names: list[str], feed: dict[str, Array]) -> Sequence[Array]:
        try:
            if self._has_bfloat16:
                return bfloat16.run(self._session, names, feed, self._raw_inputs, self._options)
            # binding memory of ours to the outputs was measured: no faster on a CPU, where nothing is copied either way
            arrays: Sequence[Array] = self._session.run(names, feed, self._options)
            return arrays
        except Exception as error:
            raise InferenceError(ErrorCode.INTERNAL, run_sentence(str(error))) from error


class GpuInstance(OnnxInstance):
    """Runs batches on a GPU: each input is copied to it once, each output back once."""

    def __init__(self, session: Any, config: ModelConfig, settings: SessionSettings, device: tuple[str, int]) -> None:
        super().__init__(session, config, settings)
        self._device = device
        self._texts = frozenset(tensor.name for tensor in signature_of(session).inputs if tensor.datatype == "BYTES")

    def _run(self, names: list[str], feed: dict[str, Array]) -> Sequence[Array]:
        try:
            binding = self._session.io_binding()
            for name, array in feed.items():
                if name in self._texts:
                    binding.bind_cpu_input(name, array)
                else:
                    value = ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), *self._device)
                    binding.bind_ortvalue_input(name, value)
            for name in names:
                binding.bind_output(name, "cpu")
            self._session.run_with_iobinding(binding, self._options)
            return [value.numpy() for value in binding.get_outputs()]
        except Exception as error:
            raise InferenceError(ErrorCode.INTERNAL, run_sentence(str(error))) from error


class OnnxModel:
    """An opened file. Instances on the CPU share one session, and so the weights; each GPU instance has its own."""

    def __init__(self, source: ModelSource, path: Path, *, own_threads: bool) -> None:
        self._source = source
        self._path = path
        self._own_threads = own_threads
        self._external = () if path.suffix == _OWN_FORMAT else check_onnx_file(path, source.directory)
        self._sessions: dict[Device, Any] = {}
        first = source.devices[0]
        session = self._open(first, source.config)
        self._signature = signature_of(session)
        datatypes = {tensor.datatype for tensor in (*self._signature.inputs, *self._signature.outputs)}
        if "BF16" in datatypes and first.kind is DeviceKind.GPU:
            raise InferenceError(ErrorCode.UNSUPPORTED, "models with BF16 inputs or outputs are served on the CPU only")
        self._sessions[first] = session

    def signature(self) -> ModelSignature:
        """Return the file's inputs and outputs."""
        return self._signature

    def create_instance(self, device: Device, config: ModelConfig, name: str) -> OnnxInstance:
        """Return an executor on ``device``."""
        settings = self._settings(device, config)
        on_gpu = device.kind is DeviceKind.GPU
        shares = not on_gpu if settings.shares_session is None else settings.shares_session
        session = self._sessions.get(device) if shares else self._sessions.pop(device, None)
        if session is None:
            session = self._open(device, config)
            if shares:
                self._sessions[device] = session
        if on_gpu:
            return GpuInstance(session, config, settings, ("cuda", device.index))
        return OnnxInstance(session, config, settings)

    def memory_bytes(self) -> int:
        """Return an estimate: the files' size, once for each place that holds the weights."""
        files = [self._path, *self._external]
        return sum(file.stat().st_size for file in files) * max(1, len(set(self._source.devices)))

    def close(self) -> None:
        """Let go of the shared sessions."""
        self._sessions.clear()

    def _settings(self, device: Device, config: ModelConfig) -> SessionSettings:
        instances = sum(other == device for other in self._source.devices)
        return session_settings(config, instances, own_threads=self._own_threads)

    def _open(self, device: Device, config: ModelConfig) -> Any:
        in_worker = self._source.in_worker
        wanted = providers(config, device, ort.get_available_providers(), allow_code=in_worker)
        if device.kind is DeviceKind.GPU and hasattr(ort, "preload_dlls"):
            ort.preload_dlls()
        try:
            options = _session_options(self._settings(device, config))
            for library in _operator_libraries(self._source, config):
                options.register_custom_ops_library(str(library))
            # without: another provider would take over, unseen, when the first fails
            session = ort.InferenceSession(str(self._path), options, providers=wanted, enable_fallback=0)
        except InferenceError:
            raise
        except Exception as error:
            sentence = load_sentence(str(error), self._path.name, ort.__version__)
            raise InferenceError(ErrorCode.INVALID_ARG, sentence) from error
        missing = [name for name, _ in wanted if name not in session.get_providers()]
        if missing:
            place = f"GPU {device.index}" if device.kind is DeviceKind.GPU else "the CPU"
            raise InferenceError(
                ErrorCode.UNAVAILABLE, f"ONNX Runtime could not start {missing[0]} on {place} of this node"
            )
        return session


class OnnxRuntimeBackend:
    """Opens ONNX files, and files in ONNX Runtime's own format."""

    name = "onnxruntime"

    def __init__(self, options: Mapping[str, str]) -> None:
        threads = global_threads(options)
        self._own_threads = threads is None
        if threads is not None:
            # counts only before the first session of the process
            ort.set_global_thread_pool_sizes(threads.intra_op_threads, threads.inter_op_threads)

    def open_model(self, source: ModelSource) -> OnnxModel:
        """Open a version's file; blocks while the graph is optimised.

        Raises:
            InferenceError: INVALID_ARG with the reason in one sentence.
        """
        return OnnxModel(source, _model_path(source), own_threads=self._own_threads)


def backend(options: Mapping[str, str], calls: InnerCalls) -> OnnxRuntimeBackend:
    """Return the backend."""
    ort.set_default_logger_severity(_ONLY_FATAL)
    return OnnxRuntimeBackend(options)


def _model_path(source: ModelSource) -> Path:
    filename = source.config.default_model_filename or "model.onnx"
    path = (source.directory / filename).resolve()
    if not path.is_relative_to(source.directory.resolve()):
        raise InferenceError(ErrorCode.INVALID_ARG, f"model file '{filename}' lies outside the version's folder")
    if path.is_dir():
        path = path / "model.onnx"  # a folder with the graph and its external data
    if not path.is_file():
        raise InferenceError(ErrorCode.INVALID_ARG, f"unable to find '{filename}' for model '{source.name}'")
    if path.stat().st_size == 0:
        raise InferenceError(ErrorCode.INVALID_ARG, f"'{filename}' is empty")
    return path


def _operator_libraries(source: ModelSource, config: ModelConfig) -> list[Path]:
    """Return the libraries of custom operators, which are relative to the version's folder or to the model's."""
    names = config.model_operations.op_library_filename
    if names and not source.in_worker:
        raise InferenceError(
            ErrorCode.UNSUPPORTED, "custom operator libraries are code and cannot be loaded into the node's process"
        )
    return [_operator_library(source, name) for name in names]


def _operator_library(source: ModelSource, name: str) -> Path:
    folder = source.directory.resolve().parent
    for base in (source.directory, source.directory.parent):
        path = (base / name).resolve()
        if not path.is_relative_to(folder):
            raise InferenceError(ErrorCode.INVALID_ARG, f"operator library '{name}' lies outside the model's folder")
        if path.is_file():
            return path
    raise InferenceError(ErrorCode.INVALID_ARG, f"unable to find operator library '{name}' for model '{source.name}'")


def _session_options(settings: SessionSettings) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = _ONLY_FATAL
    options.intra_op_num_threads = settings.intra_op_threads
    options.inter_op_num_threads = settings.inter_op_threads
    options.use_per_session_threads = settings.own_threads
    options.execution_mode = (
        ort.ExecutionMode.ORT_PARALLEL if settings.parallel_execution else ort.ExecutionMode.ORT_SEQUENTIAL
    )
    level = _GRAPH_LEVELS.get(settings.graph_level, "ORT_ENABLE_ALL")
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.enable_cpu_mem_arena = settings.memory_arena
    options.enable_mem_pattern = settings.memory_pattern
    # threads that spin while they wait take the cores from the event loop and from other models
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    for name, value in settings.session_entries.items():
        options.add_session_config_entry(name, value)
    return options


def signature_of(session: Any) -> ModelSignature:
    """Return the inputs and outputs of a session."""
    return ModelSignature(
        tuple(_tensor_signature(node) for node in session.get_inputs()),
        tuple(_tensor_signature(node) for node in session.get_outputs()),
        optional_inputs=tuple(_tensor_signature(node) for node in session.get_overridable_initializers()),
    )


def _tensor_signature(node: Any) -> TensorSignature:
    if node.type not in _DATATYPES:
        raise InferenceError(
            ErrorCode.UNSUPPORTED, f"tensor '{node.name}' is of ONNX type {node.type}, only plain tensors are served"
        )
    shape = tuple(dim if isinstance(dim, int) and dim >= 0 else -1 for dim in node.shape or ())
    return TensorSignature(node.name, _DATATYPES[node.type], shape)
