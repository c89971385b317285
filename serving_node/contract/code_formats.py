"""Which parts of a model version are code. Pure: from names of files and the config alone.

Formats are data (ONNX, safetensors, TensorRT plans, OpenVINO IR, trees) or code. What is code runs in a worker process
only, and on a joined node only where the version has permission (``control.Unit.code_permitted``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

from serving_node.contract.messages import Message
from serving_node.contract.model_config.platforms import ENSEMBLE_PLATFORM, fill_backend
from serving_node.contract.proto.model_config_pb2 import ModelConfig

# Engines that read their model's file and nothing else of a version but the libraries that the config names.
_DATA_ENGINES = frozenset({"identity", "onnxruntime", "openvino", "tensorrt", "trees"})


class CodeKind(StrEnum):
    """What sort of code a part is."""

    PYTHON = "python"
    LIBRARY = "library"
    TORCHSCRIPT = "torchscript"
    TORCH_PACKAGE = "torch_package"
    PICKLE = "pickle"
    ENVIRONMENT = "environment"
    PACKAGE = "package"


def _(text: str) -> str:
    return text


CODE_TEXTS: dict[CodeKind, str] = {
    CodeKind.PYTHON: _("Python source"),
    CodeKind.LIBRARY: _("a native library"),
    CodeKind.TORCHSCRIPT: _("a TorchScript or pickle archive, whose loading runs what it says"),
    CodeKind.TORCH_PACKAGE: _("a PyTorch package, which may hold native code or pickled objects"),
    CodeKind.PICKLE: _("pickled objects, whose loading runs what they say"),
    CodeKind.ENVIRONMENT: _("an environment of packages that the model runs with"),
    CodeKind.PACKAGE: _("a package of code"),
}
"""Why each kind counts as code, for people; marked for translation."""

_BY_SUFFIX = {
    ".py": CodeKind.PYTHON,
    ".pyc": CodeKind.PYTHON,
    ".so": CodeKind.LIBRARY,
    ".pyd": CodeKind.LIBRARY,
    ".dll": CodeKind.LIBRARY,
    ".dylib": CodeKind.LIBRARY,
    ".pt": CodeKind.TORCHSCRIPT,
    ".pt2": CodeKind.TORCH_PACKAGE,  # torch.export.load unpickles where it cannot read weights otherwise
    ".pth": CodeKind.PICKLE,
    ".ckpt": CodeKind.PICKLE,
    ".pkl": CodeKind.PICKLE,
    ".pickle": CodeKind.PICKLE,
    ".joblib": CodeKind.PICKLE,
    ".dill": CodeKind.PICKLE,
    ".mar": CodeKind.PACKAGE,
    ".whl": CodeKind.PACKAGE,
    ".egg": CodeKind.PACKAGE,
}
_ENVIRONMENT_PARAMETER = "EXECUTION_ENV_PATH"
# engine -> parameter of the model that names a library for it
_LIBRARY_PARAMETERS = {"openvino": "CPU_EXTENSION_PATH"}
# parameters of ONNX Runtime's TensorRT provider that name files anywhere on the node: libraries, engines, logs
_PROVIDER_FILES = (
    "trt_extra_plugin_lib_paths",
    "trt_engine_cache_path",
    "trt_engine_cache_prefix",
    "trt_timing_cache_path",
    "trt_ep_context_file_path",
    "int8_calibration_table_name",
)
# Engines whose model file is code whatever its name is.
_CODE_ENGINES = {"python": CodeKind.PYTHON, "pytorch": CodeKind.TORCHSCRIPT}


@dataclass(frozen=True, slots=True)
class CodePart(Message):
    """One part of a version that is code. ``path`` is relative to the version's folder, or as the config has it."""

    path: str
    kind: CodeKind


def code_parts(paths: Iterable[str], config: ModelConfig) -> tuple[CodePart, ...]:
    """Return the parts of a version that would run as code, by path.

    Args:
        paths: the files of the version, relative to its folder.
        config: as written or completed; without a backend the names of the files alone decide.
    """
    own = ModelConfig()
    own.CopyFrom(config)
    fill_backend(own)
    if own.platform == ENSEMBLE_PLATFORM or own.HasField("ensemble_scheduling"):
        return ()
    kinds = dict.fromkeys([*own.model_operations.op_library_filename, *_named_libraries(own)], CodeKind.LIBRARY)
    if own.backend not in _DATA_ENGINES:
        for path in paths:
            kind = _kind(path)
            if kind is not None:
                kinds[path] = kind
        if own.backend in _CODE_ENGINES:
            kinds.setdefault(own.default_model_filename or "model", _CODE_ENGINES[own.backend])
        environment = (
            own.parameters[_ENVIRONMENT_PARAMETER].string_value if _ENVIRONMENT_PARAMETER in own.parameters else ""
        )
        if environment:
            kinds[environment] = CodeKind.ENVIRONMENT
    return tuple(CodePart(path, kinds[path]) for path in sorted(kinds))


def code_list(parts: Iterable[CodePart], most: int = 5) -> str:
    """Return the parts in words: ``model.py (Python source), libops.so (a native library)``."""
    named = [f"{part.path} ({CODE_TEXTS[part.kind]})" for part in parts]
    rest = f" and {len(named) - most} more" if len(named) > most else ""
    return ", ".join(named[:most]) + rest


def _named_libraries(config: ModelConfig) -> Iterator[str]:
    """Yield the files that parameters of a data engine name, which it would load or trust as its own."""
    parameter = _LIBRARY_PARAMETERS.get(config.backend, "")
    if parameter in config.parameters and config.parameters[parameter].string_value:
        yield config.parameters[parameter].string_value
    if config.backend == "onnxruntime":
        for accelerator in config.optimization.execution_accelerators.gpu_execution_accelerator:
            yield from (accelerator.parameters[key] for key in _PROVIDER_FILES if accelerator.parameters.get(key))


def _kind(path: str) -> CodeKind | None:
    name = PurePosixPath(path).name.lower()
    if name == "requirements.txt":
        return CodeKind.ENVIRONMENT
    if ".so." in name:
        return CodeKind.LIBRARY
    return _BY_SUFFIX.get(PurePosixPath(name).suffix)
