"""Backends that Triton knows by name: their platforms, default file names and what a version folder tells.

Source: Triton's backend detection (section "auto-complete" of its model configuration guide).
"""

from __future__ import annotations

from collections.abc import Collection

from serving_node.contract.errors import ContractError
from serving_node.contract.proto.model_config_pb2 import ModelConfig

ENSEMBLE_PLATFORM = "ensemble"

# platform -> backend; the first platform of a backend is its default.
_PLATFORM_BACKENDS = {
    "onnxruntime_onnx": "onnxruntime",
    "tensorrt_plan": "tensorrt",
    "pytorch_libtorch": "pytorch",
    "torch_aoti": "pytorch",
    "tensorflow_savedmodel": "tensorflow",
    "tensorflow_graphdef": "tensorflow",
}
# file in the version folder -> (backend, platform), most specific first.
_FILES = {
    "model.savedmodel": ("tensorflow", "tensorflow_savedmodel"),
    "model.graphdef": ("tensorflow", "tensorflow_graphdef"),
    "model.plan": ("tensorrt", "tensorrt_plan"),
    "model.onnx": ("onnxruntime", "onnxruntime_onnx"),
    "model.xml": ("openvino", ""),
    "model.pt": ("pytorch", "pytorch_libtorch"),
    "model.pt2": ("pytorch", "torch_aoti"),
    "model.py": ("python", ""),
}


# ``runtime`` of models of PyTorch that are a module in a Python file
_PYTHON_RUNTIME = "model.py"


# files of PyTorch that stand for each other: its backend tells by the content what they are
_PYTORCH_FILES = ("model.pt2", "model.pt", "model.py")


def model_files(config: ModelConfig) -> tuple[str, ...]:
    """Return the names under which the backend looks for the model's file, in order; none when only it knows them."""
    named = (config.default_model_filename,) if config.default_model_filename else ()
    if config.backend == "pytorch" and (not named or named[0] in _PYTORCH_FILES):
        return tuple(dict.fromkeys((*named, *_PYTORCH_FILES)))
    return named


def known_pair(platform: str, backend: str) -> bool:
    """Return whether platform and backend may stand together; backends without a platform of their own take any."""
    if backend not in _PLATFORM_BACKENDS.values():
        return True
    return _PLATFORM_BACKENDS.get(platform) == backend


def fill_backend(config: ModelConfig) -> None:
    """Set, in place, whatever of platform, backend and default_model_filename follows from the others."""
    if config.platform == ENSEMBLE_PLATFORM:
        return
    if not config.backend:
        by_file = _FILES.get(config.default_model_filename, ("", ""))[0] if not config.platform else ""
        config.backend = _PLATFORM_BACKENDS.get(config.platform, by_file)
    if not config.platform:
        config.platform = _default_platform(config.backend, config.default_model_filename)
    if not config.default_model_filename:
        # models in Python may call themselves any platform
        pair = (config.backend, "" if config.backend == "python" else config.platform)
        if pair[0] == "pytorch" and config.runtime == _PYTHON_RUNTIME:
            config.default_model_filename = _PYTHON_RUNTIME
            return
        config.default_model_filename = next((name for name, known in _FILES.items() if known == pair), "")


def _default_platform(backend: str, filename: str) -> str:
    by_file = _FILES.get(filename)
    if by_file and by_file[0] == backend:
        return by_file[1]
    return next((platform for platform, owner in _PLATFORM_BACKENDS.items() if owner == backend), "")


def detect_backend(config: ModelConfig, version_files: Collection[str], *, model_name: str) -> ModelConfig:
    """Return a copy with backend and platform taken from the version folder, if the config names none.

    ``version_files`` are the names directly in the first version folder. A model called ``name.backend`` without any
    known file gets that backend.

    Raises:
        ContractError: nothing tells the backend.
    """
    result = ModelConfig()
    result.CopyFrom(config)
    fill_backend(result)
    if result.backend or result.platform:
        return result
    found = None if result.default_model_filename else next((f for f in _FILES if f in version_files), None)
    if found is not None:
        result.backend, result.platform = _FILES[found]
        fill_backend(result)
        return result
    if not result.default_model_filename:
        _, dot, suffix = model_name.partition(".")
        if dot:
            result.backend = suffix
            result.default_model_filename = f"model.{suffix}"
            return result
    raise ContractError(
        f"Invalid model name: Could not determine backend for model '{model_name}' with no backend in model "
        "configuration. Expected model name of the form 'model.<backend_name>'.",
        field="backend",
    )
