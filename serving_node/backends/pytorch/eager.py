"""Modules from a Python file, with weights beside it: Triton's Python runtime for PyTorch 2."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from serving_node.backends.pytorch.failures import load_sentence
from serving_node.backends.pytorch.naming import Side, input_places
from serving_node.backends.pytorch.program import Call, Picker
from serving_node.contract.errors import ErrorCode
from serving_node.contract.parameters import parameter
from serving_node.core.errors import InferenceError

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_BY_PLACE_ONLY = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)


class EagerModel:
    """One ``torch.nn.Module`` on one device. ``device`` None: where the module itself puts its weights."""

    def __init__(
        self, path: Path, device: torch.device | None, compile_options: Mapping[str, Any] | None, config: ModelConfig
    ) -> None:
        module_class = _module_class(_import(path), path.name, str(parameter(config, "flotilla.torch_class") or ""))
        self._module = module_class()
        weights = _weights(path)
        if weights is not None:
            try:
                tensors = _read_weights(weights, device)
            except Exception as error:
                sentence = load_sentence(error, weights.name, config.name)
                raise InferenceError(ErrorCode.INVALID_ARG, sentence) from error
            self._module.load_state_dict(tensors)
        if device is not None:
            self._module.to(device)
        self._module.eval()
        self.device = device or next((tensor.device for tensor in self.tensors()), torch.device("cpu"))
        parameters = list(inspect.signature(self._module.forward).parameters.values())
        self._takes_any = any(one.kind in _BY_PLACE_ONLY for one in parameters)
        named = [one for one in parameters if one.kind in _NAMED]
        self._arguments = [one.name for one in named]
        self._required = sum(one.default is inspect.Parameter.empty for one in named)
        self._call: Callable[..., Any] = (
            self._module if compile_options is None else torch.compile(self._module, **compile_options)
        )

    def signature(self, config: ModelConfig) -> None:
        """Return None: only the code knows what it takes and gives."""

    def bind(self, config: ModelConfig) -> Call:
        """Return the call. Raises InferenceError: the config does not fit the module."""
        side = Side(
            {name: place for place, name in enumerate(self._arguments)},
            None if self._takes_any else len(self._arguments),
            self._required,
        )
        places = input_places(config, side)
        picker, run, arguments = Picker(config, Side({}, None)), self._call, self._arguments
        if self._takes_any:
            order = sorted(places, key=places.__getitem__)
            return lambda feed, names: picker.pick(run(*[feed[name] for name in order]), names)
        # by keyword, because a request may leave out inputs that are optional
        return lambda feed, names: picker.pick(
            run(**{arguments[places[name]]: value for name, value in feed.items()}), names
        )

    def tensors(self) -> Iterator[torch.Tensor]:
        """Return the weights and buffers."""
        yield from self._module.parameters()
        yield from self._module.buffers()


def _import(path: Path) -> ModuleType:
    """Run the file as a module of its own; files beside it can be imported by it."""
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(f"flotilla_torch_model_{abs(hash(folder)):x}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # torch.compile and pickle look the class up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[spec.name]
        reason = f"{type(error).__name__}: {error}"
        raise InferenceError(ErrorCode.INVALID_ARG, f"'{path.name}' cannot be imported: {reason}") from error
    return module


def _module_class(module: ModuleType, filename: str, wanted: str) -> Callable[[], torch.nn.Module]:
    """Return the subclass of ``torch.nn.Module`` that is called ``wanted``, or else comes first by name."""
    found = {
        name: member
        for name, member in sorted(vars(module).items())
        if isinstance(member, type) and issubclass(member, torch.nn.Module) and member.__module__ == module.__name__
    }
    if wanted:
        if wanted not in found:
            raise InferenceError(ErrorCode.INVALID_ARG, f"'{filename}' has no class '{wanted}' of torch.nn.Module")
        return found[wanted]
    if not found:
        raise InferenceError(ErrorCode.INVALID_ARG, f"Cannot find a subclass of torch.nn.Module in '{filename}'")
    return next(iter(found.values()))


def _weights(path: Path) -> Path | None:
    files = (path.with_suffix(suffix) for suffix in (".safetensors", ".pt", ".pth"))
    return next((file for file in files if file.is_file()), None)


def _read_weights(path: Path, device: torch.device | None) -> Mapping[str, torch.Tensor]:
    """Return the tensors of a file; nothing in it is run."""
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        loaded: Mapping[str, torch.Tensor] = load_file(path, device=str(device or "cpu"))
        return loaded
    loaded = torch.load(path, map_location=device, weights_only=True)
    if not isinstance(loaded, Mapping):
        raise TypeError(f"'{path.name}' holds no state dict but {type(loaded).__name__}")
    return loaded
