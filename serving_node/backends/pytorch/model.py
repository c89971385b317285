"""An opened version: its program on each device, and the instances that are made from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import torch

from serving_node.backends.pytorch.failures import load_sentence
from serving_node.backends.pytorch.formats import Format
from serving_node.backends.pytorch.instance import TorchInstance
from serving_node.backends.pytorch.program import Program
from serving_node.backends.pytorch.settings import TorchSettings, torch_settings
from serving_node.contract.errors import ErrorCode
from serving_node.core.backend import Device, DeviceKind, ModelSource
from serving_node.core.errors import InferenceError

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig
    from serving_node.contract.signature import ModelSignature

log = structlog.get_logger(__name__)


class TorchModel:
    """One version. Each instance has a program of its own, or those on one device share one when the config says so."""

    def __init__(self, source: ModelSource, path: Path, kind: Format) -> None:
        self._name = source.name
        self._config = source.config
        self._devices = source.devices
        self._path = path
        self._format = kind
        self._settings = torch_settings(source.config, len(source.devices))
        _set_threads(self._settings, source.name)
        if kind is Format.TORCHSCRIPT:
            log.warning(
                "pytorch.torchscript_is_deprecated",
                model=source.name,
                reason="PyTorch has deprecated TorchScript, save the model with torch.export.save instead",
            )
        # loaded and not yet taken by an instance; with shared weights, all of them
        self._programs: dict[Device, Program] = {}
        first = source.devices[0]
        self._programs[first] = program = self._load(first, source.config)
        self._signature = program.signature(source.config)
        self._program_bytes = _memory(program) or path.stat().st_size

    def signature(self) -> ModelSignature | None:
        """Return the inputs and outputs of an exported program; None, the other formats do not say."""
        return self._signature

    def shares_process(self) -> bool:
        """Return whether instances on one device belong into one process."""
        return self._settings.shares_weights

    def create_instance(self, device: Device, config: ModelConfig, name: str) -> TorchInstance:
        """Return an executor on ``device``.

        Raises:
            InferenceError: the config does not fit the model, or there is no such device.
        """
        for side, tensors in (("input", config.input), ("output", config.output)):
            if not tensors:
                raise InferenceError(
                    ErrorCode.INTERNAL, f"model configuration must contain at least one {side}, none were specified."
                )
        shares = self._settings.shares_weights
        program = self._programs.get(device) if shares else self._programs.pop(device, None)
        if program is None:
            program = self._load(device, config)
            if shares:
                self._programs[device] = program
        if program.device.type == "cuda":
            from serving_node.backends.pytorch.cuda import CudaInstance

            return CudaInstance(program, config, self._settings)
        return TorchInstance(program, config, self._settings)

    def memory_bytes(self) -> int:
        """Return the size of the weights, once for each program."""
        places = set(self._devices) if self._settings.shares_weights else self._devices
        return self._program_bytes * max(1, len(places))

    def close(self) -> None:
        """Let go of what is shared."""
        self._programs.clear()

    def _load(self, device: Device, config: ModelConfig) -> Program:
        place = _place(device, self._name)
        try:
            # tensors that are made outside of inference mode are slower inside of it
            with torch.inference_mode(self._settings.inference_mode and self._format is Format.TORCHSCRIPT):
                return self._loaded(place, config)
        except InferenceError:
            raise
        except Exception as error:
            raise InferenceError(ErrorCode.INVALID_ARG, load_sentence(error, self._path.name, self._name)) from error

    def _loaded(self, place: torch.device | None, config: ModelConfig) -> Program:
        """Load the file, importing what its format needs."""
        options = self._settings.compile_options
        if self._format is Format.EXPORTED:
            from serving_node.backends.pytorch.exported import ExportedModel

            return ExportedModel(self._path, place or torch.device("cpu"), options)
        if self._format is Format.PACKAGE:
            from serving_node.backends.pytorch.package import PackageModel

            runners = len(self._devices) if self._settings.shares_weights else 1
            return PackageModel(self._path, place or torch.device("cpu"), runners)
        if self._format is Format.TORCHSCRIPT:
            from serving_node.backends.pytorch.torchscript import ScriptModel

            return ScriptModel(self._path, place, self._settings)
        from serving_node.backends.pytorch.eager import EagerModel

        return EagerModel(self._path, place, options, config)


def _place(device: Device, model: str) -> torch.device | None:
    """Return where the weights go; None where the model itself decides."""
    if device.kind is DeviceKind.MODEL:
        return None
    if device.kind is DeviceKind.CPU:
        return torch.device("cpu")
    if device.index >= torch.cuda.device_count():
        raise InferenceError(
            ErrorCode.INVALID_ARG,
            f"model '{model}' asks for GPU {device.index}, but the PyTorch of this node has"
            f" {torch.cuda.device_count() or 'none'}",
        )
    return torch.device("cuda", device.index)


def _set_threads(settings: TorchSettings, model: str) -> None:
    """Set the process's numbers of threads. That between operators can be set once; the first model's stays."""
    torch.set_num_threads(settings.intra_op_threads)
    wanted = settings.inter_op_threads
    if wanted and wanted != torch.get_num_interop_threads():
        try:
            torch.set_num_interop_threads(wanted)
        except RuntimeError:
            log.warning(
                "pytorch.inter_op_threads_kept", model=model, wanted=wanted, threads=torch.get_num_interop_threads()
            )


def _memory(program: Program) -> int:
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in program.tensors()}
    return sum(storages.values())
