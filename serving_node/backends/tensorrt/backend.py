"""The TensorRT backend: engines from .plan files, shared by the instances of a GPU."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serving_node.backends.tensorrt.cuda import Cuda, CudaError, cudart
from serving_node.backends.tensorrt.engine import Runtime, read_facts
from serving_node.backends.tensorrt.facts import check_served, signature
from serving_node.backends.tensorrt.instance import EngineInstance
from serving_node.backends.tensorrt.profiles import group_of, instance_profiles, largest_batch
from serving_node.backends.tensorrt.settings import backend_settings, instance_settings
from serving_node.contract.errors import ErrorCode
from serving_node.contract.signature import ModelSignature
from serving_node.core.backend import Device, DeviceKind, ModelSource
from serving_node.core.errors import InferenceError
from serving_node.core.inner_calls import InnerCalls

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig


class TensorRtModel:
    """An opened plan: one engine for each GPU, with its weights, whatever the number of instances there.

    TensorRT lets contexts of one engine use the same profile at the same time since version 10.
    """

    def __init__(self, trt: Any, cuda: Cuda, runtime: Runtime, source: ModelSource) -> None:
        self._trt = trt
        self._cuda = cuda
        self._runtime = runtime
        self._source = source
        self._lock = threading.Lock()
        self._engines: dict[int, Any] = {}
        first = source.devices[0]
        if first.kind is not DeviceKind.GPU:
            raise _only_gpus(source.name)
        self._facts = read_facts(trt, self._engine(first.index))
        check_served(self._facts, source.name)
        self._signature = signature(self._facts, largest_batch(self._facts, source.config))

    def signature(self) -> ModelSignature:
        """Return the engine's inputs and outputs, and how large batches can be in the profiles of the config."""
        return self._signature

    def create_instance(self, device: Device, config: ModelConfig, name: str) -> EngineInstance:
        """Return an executor on a GPU. Takes the memory of its largest batch, and records its graphs."""
        if device.kind is not DeviceKind.GPU:
            raise _only_gpus(self._source.name)
        profiles = instance_profiles(self._facts, group_of(config, name).profile, name)
        return EngineInstance(
            self._trt,
            self._cuda,
            self._engine(device.index),
            self._facts,
            device=device.index,
            profiles=profiles,
            config=config,
            settings=instance_settings(config),
            name=name,
        )

    def shares_process(self) -> bool:
        """Return True: hosted in workers, the instances of a GPU still have one engine."""
        return True

    def memory_bytes(self) -> int:
        """Return an estimate: the weights, once for each GPU."""
        gpus = {device.index for device in self._source.devices}
        return self._facts.weight_bytes * max(1, len(gpus))

    def close(self) -> None:
        """Let go of the engines. Idempotent."""
        with self._lock:
            for device in list(self._engines):
                self._cuda.set_device(device)
                del self._engines[device]

    def _engine(self, device: int) -> Any:
        with self._lock:
            if device not in self._engines:
                try:
                    self._cuda.set_device(device)
                    path = _plan_path(self._source, self._cuda.capability(device))
                except CudaError as error:
                    raise InferenceError(
                        ErrorCode.UNAVAILABLE, f"GPU {device} of this node cannot be used: {error}"
                    ) from error
                self._engines[device] = self._runtime.open(path)
            return self._engines[device]


class TensorRtBackend:
    """Opens plans."""

    name = "tensorrt"

    def __init__(self, trt: Any, cuda: Cuda, options: Mapping[str, str]) -> None:
        self._trt = trt
        self._cuda = cuda
        self._runtime = Runtime(trt, allows_host_code=backend_settings(options).allows_host_code)

    def open_model(self, source: ModelSource) -> TensorRtModel:
        """Open a version's plan on its first GPU.

        Raises:
            InferenceError: INVALID_ARG with the reason in one sentence; UNSUPPORTED, what this backend does not do.
        """
        instance_settings(source.config)
        return TensorRtModel(self._trt, self._cuda, self._runtime, source)


def backend(options: Mapping[str, str], calls: InnerCalls) -> TensorRtBackend:
    """Return the backend. Imports TensorRT.

    Raises:
        InferenceError: UNSUPPORTED, TensorRT or CUDA is not installed.
    """
    try:
        import tensorrt

        cuda = cudart()
    except (ImportError, CudaError) as error:
        raise InferenceError(
            ErrorCode.UNSUPPORTED, f"backend 'tensorrt' is not installed on this node: {error}"
        ) from error
    return TensorRtBackend(tensorrt, cuda, options)


def _only_gpus(model: str) -> InferenceError:
    return InferenceError(
        ErrorCode.INVALID_ARG, f"unable to load model '{model}', TensorRT backend supports only GPU device"
    )


def _plan_path(source: ModelSource, capability: str) -> Path:
    """Return the plan for a GPU: the one for its compute capability, else the default one."""
    config = source.config
    filename = config.cc_model_filenames.get(capability) or config.default_model_filename or "model.plan"
    path = (source.directory / filename).resolve()
    if not path.is_relative_to(source.directory.resolve()):
        raise InferenceError(ErrorCode.INVALID_ARG, f"model file '{filename}' lies outside the version's folder")
    if not path.is_file():
        raise InferenceError(ErrorCode.UNAVAILABLE, f"unable to find '{filename}' for model instance '{source.name}'")
    if not path.stat().st_size:
        raise InferenceError(ErrorCode.INVALID_ARG, f"'{filename}' is empty")
    return path
