"""The ONNX Runtime backend: sessions, signature, execution of batches."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from serving_node.backends.onnxruntime import bfloat16
from serving_node.backends.onnxruntime.failures import load_sentence, run_sentence
from serving_node.backends.onnxruntime.settings import SessionSettings, prepare_environment, session_settings
from serving_node.contract.errors import ErrorCode
from serving_node.contract.signature import ModelSignature, TensorSignature
from serving_node.core.backend import Device, DeviceKind, Execution, ModelSource
from serving_node.core.errors import InferenceError
from serving_node.core.inner_calls import InnerCalls
from serving_node.core.ragged import RaggedRules, batch_input_arrays, join_flat, ragged_rules, scatter
from serving_node.core.request import InferenceRequest
from serving_node.core.rows import Array, join_rows, split_rows
from serving_node.core.tensor import Tensor

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
_GRAPH_LEVELS = {-1: "ORT_ENABLE_BASIC", 0: "ORT_ENABLE_ALL", 1: "ORT_ENABLE_EXTENDED", 2: "ORT_DISABLE_ALL"}


class OnnxInstance:
    """Runs batches on a session. Several instances may share one: sessions are safe to run concurrently."""

    # name of an output -> the input by whose shapes it is cut
    _scattered: Mapping[str, str] = {}

    def __init__(self, session: Any, config: ModelConfig, settings: SessionSettings) -> None:
        self._session = session
        self._has_rows = config.max_batch_size > 0
        signature = _signature(session)
        self._datatypes = {tensor.name: tensor.datatype for tensor in signature.outputs}
        self._raw_inputs = frozenset(tensor.name for tensor in signature.inputs if tensor.datatype == "BF16")
        self._has_bfloat16 = bool(self._raw_inputs) or "BF16" in self._datatypes.values()
        self._outputs = [output.name for output in config.output]
        states = [state.output_name for state in config.sequence_batching.state]
        self._outputs += [name for name in states if name not in self._outputs]
        self._options = None
        if settings.shrink_arena:
            self._options = ort.RunOptions()
            self._options.add_run_config_entry("memory.enable_memory_arena_shrinkage", settings.shrink_arena)

    def execute(self, execution: Execution) -> None:
        """Run the batch. Requests with malformed strings fail alone; an error of the engine fails all."""
        requests = execution.requests
        try:
            feed = self._feed(requests)
        except InferenceError:
            self._execute_without_malformed(execution)
            return
        names = self._wanted(requests)
        execution.inputs_ready_ns = time.monotonic_ns()
        try:
            if self._has_bfloat16:
                arrays = bfloat16.run(self._session, names, feed, self._raw_inputs, self._options)
            else:
                arrays = self._session.run(names, feed, self._options)
        except Exception as error:
            raise InferenceError(ErrorCode.INTERNAL, run_sentence(str(error))) from error
        execution.computed_ns = time.monotonic_ns()
        execution.results.extend(self._results(requests, names, arrays))

    def close(self) -> None:
        """Let go of the session."""
        self._session = None

    def _feed(self, requests: Sequence[InferenceRequest]) -> dict[str, Array]:
        feed: dict[str, Array] = {}
        # requests of a batch have the same inputs in the same order (batch_key, IoRules.check)
        for position, first in enumerate(requests[0].inputs):
            array = join_rows([request.inputs[position] for request in requests])
            feed[first.name] = _texts(array, first.name) if first.datatype == "BYTES" else array
        return feed

    def _wanted(self, requests: Sequence[InferenceRequest]) -> list[str]:
        """Return the outputs that at least one request asks for, in the config's order."""
        wanted: set[str] = set()
        for request in requests:
            if not request.outputs:
                return self._outputs
            wanted.update([output.name for output in request.outputs])
        return [name for name in self._outputs if name in wanted]

    def _results(
        self, requests: Sequence[InferenceRequest], names: list[str], arrays: Sequence[Array]
    ) -> list[list[Tensor]]:
        columns: list[list[Tensor]] = []
        rows = [request.inputs[0].shape[0] if request.inputs else 1 for request in requests] if self._has_rows else []
        for name, array in zip(names, arrays, strict=True):
            if name in self._scattered:
                columns.append(scatter(name, self._datatypes[name], array, self._scattered[name], requests))
            elif self._has_rows:
                columns.append(split_rows(name, self._datatypes[name], array, rows))
            else:
                columns.append([Tensor.from_numpy(name, array, self._datatypes[name])])
        results = [list(tensors) for tensors in zip(*columns, strict=True)]
        if names is not self._outputs:
            for position, request in enumerate(requests):
                if request.outputs:
                    wanted = [output.name for output in request.outputs]
                    results[position] = [tensor for tensor in results[position] if tensor.name in wanted]
        return results

    def _execute_without_malformed(self, execution: Execution) -> None:
        results: list[list[Tensor] | InferenceError | None] = []
        good: list[InferenceRequest] = []
        for request in execution.requests:
            try:
                self._feed([request])
                good.append(request)
                results.append([])
            except InferenceError as error:
                results.append(error)
        if good:
            rest = Execution(good, sum(request.batch_size for request in good))
            self.execute(rest)
            execution.inputs_ready_ns, execution.computed_ns = rest.inputs_ready_ns, rest.computed_ns
            answers = iter(rest.results)
            results = [result if isinstance(result, InferenceError) else next(answers) for result in results]
        execution.results.extend(results)


class RaggedOnnxInstance(OnnxInstance):
    """Runs batches of requests whose shapes differ, and feeds the model what it must know about the batch."""

    def __init__(self, session: Any, config: ModelConfig, settings: SessionSettings, rules: RaggedRules) -> None:
        super().__init__(session, config, settings)
        self._rules = rules
        self._scattered = rules.scattered

    def _feed(self, requests: Sequence[InferenceRequest]) -> dict[str, Array]:
        feed: dict[str, Array] = {}
        for position, first in enumerate(requests[0].inputs):
            join = join_flat if first.name in self._rules.inputs else join_rows
            array = join([request.inputs[position] for request in requests])
            feed[first.name] = _texts(array, first.name) if first.datatype == "BYTES" else array
        return feed | batch_input_arrays(self._rules.batch_inputs, requests)


class OnnxModel:
    """An opened file. Instances on the CPU share one session, and so the weights; each GPU instance has its own."""

    def __init__(self, source: ModelSource, path: Path) -> None:
        self._name = source.name
        self._path = path
        self._devices = source.devices
        self._sessions: dict[Device, Any] = {}
        first = source.devices[0]
        session = self._open(first, source.config)
        self._signature = _signature(session)
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
        shares = settings.shares_session
        if shares is None:
            shares = device.kind is not DeviceKind.GPU
        session = self._sessions.get(device) if shares else self._sessions.pop(device, None)
        if session is None:
            session = self._open(device, config)
            if shares:
                self._sessions[device] = session
        ragged = ragged_rules(config)
        if ragged is not None:
            return RaggedOnnxInstance(session, config, settings, ragged)
        return OnnxInstance(session, config, settings)

    def memory_bytes(self) -> int:
        """Return an estimate: the files' size, once for each place that holds the weights."""
        files = [self._path, *self._path.parent.glob(f"{self._path.name}*data*")]
        return sum(file.stat().st_size for file in files if file.is_file()) * max(1, len(set(self._devices)))

    def close(self) -> None:
        """Let go of the shared sessions."""
        self._sessions.clear()

    def _settings(self, device: Device, config: ModelConfig) -> SessionSettings:
        return session_settings(config, sum(other == device for other in self._devices))

    def _open(self, device: Device, config: ModelConfig) -> Any:
        providers = _providers(device, self._name)
        options = _session_options(self._settings(device, config))
        try:
            session = ort.InferenceSession(str(self._path), options, providers=providers)
        except Exception as error:
            sentence = load_sentence(str(error), self._path.name, ort.__version__)
            raise InferenceError(ErrorCode.INVALID_ARG, sentence) from error
        wanted = providers[0][0] if isinstance(providers[0], tuple) else providers[0]
        if session.get_providers()[0] != wanted:
            raise InferenceError(
                ErrorCode.UNAVAILABLE, f"ONNX Runtime could not start {wanted} on GPU {device.index} of this node"
            )
        return session


class OnnxRuntimeBackend:
    """Opens ONNX files."""

    name = "onnxruntime"

    def open_model(self, source: ModelSource) -> OnnxModel:
        """Open a version's file; blocks while the graph is optimised.

        Raises:
            InferenceError: INVALID_ARG with the reason in one sentence.
        """
        return OnnxModel(source, _model_path(source))


def backend(options: Mapping[str, str], calls: InnerCalls) -> OnnxRuntimeBackend:
    """Return the backend."""
    ort.set_default_logger_severity(_ONLY_FATAL)
    return OnnxRuntimeBackend()


def _model_path(source: ModelSource) -> Path:
    filename = source.config.default_model_filename or "model.onnx"
    if len(source.config.model_operations.op_library_filename):
        raise InferenceError(
            ErrorCode.UNSUPPORTED, "custom operator libraries are code and cannot be loaded into the node's process"
        )
    path = (source.directory / filename).resolve()
    if not path.is_relative_to(source.directory.resolve()):
        raise InferenceError(ErrorCode.INVALID_ARG, f"model file '{filename}' lies outside the version's folder")
    if path.is_dir():
        path = path / filename  # a folder with the graph and its external data
    if not path.is_file():
        raise InferenceError(ErrorCode.INVALID_ARG, f"unable to find '{filename}' for model '{source.name}'")
    if path.stat().st_size == 0:
        raise InferenceError(ErrorCode.INVALID_ARG, f"'{filename}' is empty")
    return path


def _providers(device: Device, model: str) -> list[Any]:
    if device.kind is not DeviceKind.GPU:
        return ["CPUExecutionProvider"]
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        raise InferenceError(
            ErrorCode.INVALID_ARG,
            f"model '{model}' asks for KIND_GPU, but the ONNX Runtime of this node has no CUDA provider",
        )
    if hasattr(ort, "preload_dlls"):
        ort.preload_dlls()
    return [("CUDAExecutionProvider", {"device_id": device.index}), "CPUExecutionProvider"]


def _session_options(settings: SessionSettings) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = _ONLY_FATAL
    options.intra_op_num_threads = settings.intra_op_threads
    options.inter_op_num_threads = settings.inter_op_threads
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


def _signature(session: Any) -> ModelSignature:
    return ModelSignature(
        tuple(_tensor_signature(node) for node in session.get_inputs()),
        tuple(_tensor_signature(node) for node in session.get_outputs()),
    )


def _tensor_signature(node: Any) -> TensorSignature:
    if node.type not in _DATATYPES:
        raise InferenceError(
            ErrorCode.UNSUPPORTED, f"tensor '{node.name}' is of ONNX type {node.type}, only plain tensors are served"
        )
    shape = tuple(dim if isinstance(dim, int) and dim >= 0 else -1 for dim in node.shape or ())
    return TensorSignature(node.name, _DATATYPES[node.type], shape)


def _texts(array: Array, name: str) -> Array:
    """Return the elements as str: ONNX strings are UTF-8 and the Python binding takes nothing else."""
    texts = np.empty(array.size, dtype=np.object_)
    try:
        texts[:] = [str(element, "utf-8") for element in array.reshape(-1).tolist()]
    except UnicodeDecodeError:
        raise InferenceError(ErrorCode.INVALID_ARG, f"a string of input '{name}' is not valid UTF-8") from None
    return texts.reshape(array.shape)
