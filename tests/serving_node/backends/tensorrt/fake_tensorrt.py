"""The part of TensorRT's Python API that the node uses, with ONNX Runtime instead of a GPU behind it.

Names, argument orders and results are those of TensorRT 11's bindings. A "plan" is TensorRT's head, then the ONNX
model and the profiles it was built with; dimensions whose names begin with ``told`` are known only from the data.
"""

from __future__ import annotations

import base64
import ctypes
import enum
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto

from tests.serving_node.backends.tensorrt.fake_cuda import FakeCuda

__version__ = "11.4.0.106"
CUDA = FakeCuda()


class ILogger:
    class Severity(enum.IntEnum):
        INTERNAL_ERROR = 0
        ERROR = 1
        WARNING = 2
        INFO = 3
        VERBOSE = 4

    def log(self, severity: Severity, msg: str) -> None: ...


class IOutputAllocator: ...


class IProgressMonitor: ...


DataType = enum.Enum("DataType", "FLOAT HALF BF16 INT8 INT32 INT64 BOOL UINT8 FP8 INT4")
TensorIOMode = enum.Enum("TensorIOMode", "NONE INPUT OUTPUT")
TensorLocation = enum.Enum("TensorLocation", "DEVICE HOST")
TensorFormat = enum.Enum("TensorFormat", "LINEAR CHW32")
EngineStat = enum.Enum("EngineStat", "TOTAL_WEIGHTS_SIZE STRIPPED_WEIGHTS_SIZE")


class NetworkDefinitionCreationFlag(enum.IntEnum):
    STRONGLY_TYPED = 1


MemoryPoolType = enum.Enum("MemoryPoolType", "WORKSPACE")
BuilderFlag = enum.Enum("BuilderFlag", "VERSION_COMPATIBLE TF32")
ExecutionContextAllocationStrategy = enum.Enum("ExecutionContextAllocationStrategy", "STATIC ON_PROFILE_CHANGE")

_TYPES = {
    TensorProto.FLOAT: (DataType.FLOAT, np.float32),
    TensorProto.FLOAT16: (DataType.HALF, np.float16),
    TensorProto.INT32: (DataType.INT32, np.int32),
    TensorProto.INT64: (DataType.INT64, np.int64),
    TensorProto.INT8: (DataType.INT8, np.int8),
    TensorProto.BOOL: (DataType.BOOL, np.bool_),
    TensorProto.UINT8: (DataType.UINT8, np.uint8),
    TensorProto.FLOAT8E4M3FN: (DataType.FP8, np.uint8),
}


def plan_head(version: str = __version__) -> bytes:
    parts = [int(part) for part in version.split(".")]
    return b"ftrt" + bytes(20) + bytes(parts)


def make_plan(
    model: onnx.ModelProto,
    profiles: Sequence[dict[str, Any]] = ({},),
    version: str = __version__,
    host_code: bool = False,
) -> bytes:
    """``profiles``: name of an input -> its least, best and largest shape; ``name=``: values of a shape tensor."""
    content = base64.b64encode(model.SerializeToString()).decode()
    document = {"onnx": content, "profiles": list(profiles), "host_code": host_code}
    return plan_head(version) + json.dumps(document).encode()


def _dims(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(d.dim_value if d.HasField("dim_value") else -1 for d in value.type.tensor_type.shape.dim)


class Runtime:
    def __init__(self, logger: ILogger) -> None:
        self._logger = logger
        self.engine_host_code_allowed = False

    def deserialize_cuda_engine(self, serialized_engine: bytes) -> ICudaEngine | None:
        if not serialized_engine.startswith(plan_head()):
            self._logger.log(ILogger.Severity.ERROR, "IRuntime::deserializeCudaEngine: Error Code 1: Serialization")
            return None
        try:
            document = json.loads(serialized_engine[28:])
        except ValueError:
            self._logger.log(ILogger.Severity.ERROR, "IRuntime::deserializeCudaEngine: Error Code 1: truncated")
            return None
        if document.get("host_code") and not self.engine_host_code_allowed:
            self._logger.log(ILogger.Severity.ERROR, "the engine has host code and engineHostCodeAllowed is not set")
            return None
        return ICudaEngine(onnx.ModelProto.FromString(base64.b64decode(document["onnx"])), document["profiles"])


class ICudaEngine:
    def __init__(self, model: onnx.ModelProto, profiles: list[dict[str, Any]]) -> None:
        self.model = model
        self.profiles = profiles
        graph = model.graph
        constants = {one.name for one in graph.initializer}
        self.inputs = {one.name: one for one in graph.input if one.name not in constants}
        self.outputs = {one.name: one for one in graph.output}
        self.values = {**self.inputs, **self.outputs}
        self.shape_io = {
            node.input[1]
            for node in graph.node
            if node.op_type in ("Reshape", "Expand") and node.input[1] in self.inputs
        } | {node.output[0] for node in graph.node if node.op_type == "Shape" and node.output[0] in self.outputs}
        self.session = None
        if not any(one.type.tensor_type.elem_type == TensorProto.FLOAT8E4M3FN for one in self.values.values()):
            self.session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        self.num_io_tensors = len(self.values)
        self.num_optimization_profiles = len(profiles)

    def get_tensor_name(self, index: int) -> str:
        return list(self.values)[index]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode.INPUT if name in self.inputs else TensorIOMode.OUTPUT

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return _dims(self.values[name])

    def get_tensor_dtype(self, name: str) -> DataType:
        return _TYPES[self.values[name].type.tensor_type.elem_type][0]

    def get_tensor_format(self, name: str) -> TensorFormat:
        return TensorFormat.CHW32 if name.startswith("vectorized") else TensorFormat.LINEAR

    def get_tensor_location(self, name: str) -> TensorLocation:
        return TensorLocation.HOST if name in self.shape_io else TensorLocation.DEVICE

    def is_shape_inference_io(self, name: str) -> bool:
        return name in self.shape_io

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[tuple[int, ...]]:
        return [tuple(shape) for shape in self.profiles[profile_index][name]]

    def get_tensor_profile_values(self, profile_index: int, name: str) -> list[list[int]]:
        assert isinstance(profile_index, int)  # the binding's order
        return self.profiles[profile_index].get(f"{name}=", [])

    def get_engine_stat(self, stat: EngineStat) -> int:
        return sum(len(one.raw_data) for one in self.model.graph.initializer)

    def create_execution_context(self, strategy: Any = ExecutionContextAllocationStrategy.STATIC) -> IExecutionContext:
        return IExecutionContext(self)


class IExecutionContext:
    def __init__(self, engine: ICudaEngine) -> None:
        self.engine = engine
        self.active_optimization_profile = 0
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._allocators: dict[str, Any] = {}
        self.executed = 0

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        assert stream_handle in CUDA.streams
        self.active_optimization_profile = profile_index
        self._shapes.clear()
        return 0 <= profile_index < self.engine.num_optimization_profiles

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        assert isinstance(shape, tuple)
        least, _, most = self.engine.get_tensor_profile_shape(name, self.active_optimization_profile)
        fits = len(shape) == len(most) and all(a <= b <= c for a, b, c in zip(least, shape, most, strict=True))
        if fits:
            self._shapes[name] = shape
        return fits

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        if name in self.engine.inputs:
            return self._shapes.get(name, self.engine.get_tensor_shape(name))
        return tuple(self._guess(name))

    def set_tensor_address(self, name: str, memory: int) -> bool:
        assert memory % 16 == 0
        assert (memory in CUDA.device_memory) == (name not in self.engine.shape_io)
        self._addresses[name] = memory
        return name in self.engine.values

    def set_output_allocator(self, name: str, output_allocator: Any) -> bool:
        self._allocators[name] = output_allocator
        return name in self.engine.outputs

    def infer_shapes(self) -> list[str]:
        return [
            name
            for name in self.engine.inputs
            if -1 in self.get_tensor_shape(name) or (name in self.engine.shape_io and name not in self._addresses)
        ]

    def execute_async_v3(self, stream_handle: int) -> bool:
        if self.infer_shapes():
            return False
        engine = self.engine
        shapes = {name: self.get_tensor_shape(name) for name in engine.inputs}
        addresses = dict(self._addresses)
        hosts = {name: self._on_host(name) for name in engine.inputs if name in engine.shape_io}
        told = dict(self._allocators)
        if told:  # TensorRT waits for the data itself where shapes depend on them
            CUDA.synchronize(stream_handle)
            results = self._compute(shapes, addresses, hosts)
            for name, allocator in told.items():
                size = max(results[name].nbytes, 1)
                addresses[name] = allocator.reallocate_output_async(
                    name, addresses.get(name, 0), size, 256, stream_handle
                )
                if not addresses[name]:
                    return False
                allocator.notify_shape(name, results[name].shape)
        self.executed += 1

        def run() -> None:
            for name, array in self._compute(shapes, addresses, hosts).items():
                if name in engine.shape_io:
                    ctypes.memmove(addresses[name], array.tobytes(), array.nbytes)
                else:
                    CUDA.write_device(addresses[name], array.tobytes())

        CUDA.put(stream_handle, run)
        return True

    def _compute(
        self, shapes: dict[str, tuple[int, ...]], addresses: dict[str, int], hosts: dict[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        feed = dict(hosts)
        for name in self.engine.inputs:
            if name not in hosts:
                dtype = np.dtype(_TYPES[self.engine.inputs[name].type.tensor_type.elem_type][1])
                size = int(np.prod(shapes[name])) * dtype.itemsize
                feed[name] = np.frombuffer(CUDA.device_bytes(addresses[name], size), dtype).reshape(shapes[name])
        names = list(self.engine.outputs)
        return dict(zip(names, self.engine.session.run(names, feed), strict=True))

    def _on_host(self, name: str) -> np.ndarray:
        dtype = np.dtype(_TYPES[self.engine.inputs[name].type.tensor_type.elem_type][1])
        shape = self.get_tensor_shape(name)
        data = ctypes.string_at(self._addresses[name], int(np.prod(shape)) * dtype.itemsize)
        return np.frombuffer(data, dtype).reshape(shape)

    def _guess(self, name: str) -> Sequence[int]:
        """What shape inference says: that of a run on zeros, -1 where it needs the data."""
        if self.infer_shapes():
            return self.engine.get_tensor_shape(name)
        feed = {}
        for one, value in self.engine.inputs.items():
            dtype = _TYPES[value.type.tensor_type.elem_type][1]
            feed[one] = (
                self._on_host(one) if one in self.engine.shape_io else np.zeros(self.get_tensor_shape(one), dtype)
            )
        (array,) = self.engine.session.run([name], feed)
        params = [dim.dim_param for dim in self.engine.outputs[name].type.tensor_type.shape.dim]
        return [-1 if param.startswith("told") else size for size, param in zip(array.shape, params, strict=True)]


class IHostMemory(bytes):
    @property
    def nbytes(self) -> int:
        return len(self)


class _Network:
    def __init__(self) -> None:
        self.model = onnx.ModelProto()
        self.inputs: list[Any] = []

    @property
    def num_inputs(self) -> int:
        return len(self.inputs)

    def get_input(self, index: int) -> Any:
        return self.inputs[index]


def _read_external(tensor: onnx.TensorProto, folder: Path) -> None:
    """Unlike onnx's own loader this one takes files that have a second name, as TensorRT's does."""
    if tensor.data_location == TensorProto.EXTERNAL:
        said = {entry.key: entry.value for entry in tensor.external_data}
        start, size = int(said.get("offset", 0)), int(said["length"])
        tensor.raw_data = (folder / said["location"]).read_bytes()[start : start + size]
        tensor.data_location = TensorProto.DEFAULT
        del tensor.external_data[:]


class _Input:
    def __init__(self, engine: ICudaEngine, name: str) -> None:
        self.name = name
        self.shape = engine.get_tensor_shape(name)
        self.is_shape_tensor = name in engine.shape_io


class _ParserError:
    def __init__(self, text: str) -> None:
        self._text = text

    def desc(self) -> str:
        return self._text


class OnnxParser:
    def __init__(self, network: _Network, logger: ILogger) -> None:
        self._network = network
        self._errors: list[_ParserError] = []

    def parse_from_file(self, model: str) -> bool:
        try:
            self._network.model = onnx.load(model, load_external_data=False)
            for one in self._network.model.graph.initializer:
                _read_external(one, Path(model).parent)
        except Exception:
            self._errors.append(_ParserError("Failed to parse the ONNX model."))
            return False
        unsupported = [node.op_type for node in self._network.model.graph.node if node.op_type == "Unheard"]
        if unsupported:
            self._errors.append(_ParserError("No importer registered for op: Unheard"))
            return False
        engine = ICudaEngine(self._network.model, [{}])
        self._network.inputs = [_Input(engine, name) for name in engine.inputs]
        return True

    @property
    def num_errors(self) -> int:
        return len(self._errors)

    def get_error(self, index: int) -> _ParserError:
        return self._errors[index]


class IOptimizationProfile:
    def __init__(self) -> None:
        self.bounds: dict[str, Any] = {}

    def set_shape(self, input: str, min: Any, opt: Any, max: Any) -> None:
        self.bounds[input] = [list(min), list(opt), list(max)]

    def set_shape_input(self, input: str, min: Any, opt: Any, max: Any) -> None:
        self.bounds[f"{input}="] = [list(min), list(opt), list(max)]

    def __bool__(self) -> bool:
        return all(
            a <= b <= c for least, best, most in self.bounds.values() for a, b, c in zip(least, best, most, strict=True)
        )


class _TimingCache:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def serialize(self) -> IHostMemory:
        return IHostMemory(self.data + b"timed")


class IBuilderConfig:
    def __init__(self) -> None:
        self.profiles: list[IOptimizationProfile] = []
        self.flags: set[BuilderFlag] = set()
        self.limits: dict[Any, int] = {}
        self.progress_monitor: Any = None
        self.builder_optimization_level = 3
        self._cache: Any = None

    def set_flag(self, flag: BuilderFlag) -> None:
        self.flags.add(flag)

    def set_memory_pool_limit(self, pool: Any, pool_size: int) -> None:
        self.limits[pool] = pool_size

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int:
        if not profile:
            return -1
        self.profiles.append(profile)
        return len(self.profiles) - 1

    def create_timing_cache(self, serialized_timing_cache: bytes) -> _TimingCache:
        return _TimingCache(bytes(serialized_timing_cache))

    def set_timing_cache(self, cache: _TimingCache, ignore_mismatch: bool) -> bool:
        self._cache = cache
        return True

    def get_timing_cache(self) -> _TimingCache:
        return self._cache


class Builder:
    def __init__(self, logger: ILogger) -> None:
        self._logger = logger

    def create_network(self, flags: int = 0) -> _Network:
        return _Network()

    def create_builder_config(self) -> IBuilderConfig:
        return IBuilderConfig()

    def create_optimization_profile(self) -> IOptimizationProfile:
        return IOptimizationProfile()

    def build_serialized_network(self, network: _Network, config: IBuilderConfig) -> IHostMemory | None:
        dynamic = [one.name for one in network.inputs if -1 in one.shape]
        for profile in config.profiles:
            if any(name not in profile.bounds for name in dynamic):
                self._logger.log(ILogger.Severity.ERROR, "IBuilder::buildSerializedNetwork: Error Code 4: no profile")
                return None
        monitor = config.progress_monitor
        print("[I] chatter on standard output", flush=True)
        phases = (("Building Engine", None, 2), ("Timing", "Building Engine", 4))
        for (phase, parent, steps), _ in itertools.product(phases, range(1)):
            monitor.phase_start(phase, parent, steps)
            for step in range(steps):
                if not monitor.step_complete(phase, step):
                    monitor.phase_finish(phase)
                    return None
        for phase, _, _ in reversed(phases):
            monitor.phase_finish(phase)
        profiles = [profile.bounds for profile in config.profiles] or [{}]
        return IHostMemory(make_plan(network.model, profiles, host_code=BuilderFlag.VERSION_COMPATIBLE in config.flags))


def save_plan(path: Path, model: onnx.ModelProto, *profiles: dict[str, Any], version: str = __version__) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(make_plan(model, profiles or ({},), version))
    return path
