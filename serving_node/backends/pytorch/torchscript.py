"""TorchScript files. PyTorch has deprecated the format: torch.export takes its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from serving_node.backends.pytorch.naming import Side, input_places
from serving_node.backends.pytorch.program import Call, Picker
from serving_node.backends.pytorch.settings import TorchSettings
from serving_node.backends.pytorch.tensors import Value
from serving_node.contract.errors import ErrorCode
from serving_node.contract.proto.model_config_pb2 import TYPE_STRING
from serving_node.core.errors import InferenceError

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig


class ScriptModel:
    """One script module on one device. ``device`` None leaves its tensors where they were saved."""

    def __init__(self, path: Path, device: torch.device | None, settings: TorchSettings) -> None:
        self._module = torch.jit.load(str(path), map_location=device)
        if getattr(self._module, "training", False):
            self._module.eval()
        self._settings = settings
        self.device = device or next((tensor.device for tensor in self.tensors()), torch.device("cpu"))
        schema = self._module._c._get_method("forward").schema
        self._arguments = list(schema.arguments[1:])
        results = schema.returns[0].type if schema.returns else None
        self._result_count = len(results.elements()) if results is not None and results.kind() == "TupleType" else None
        if settings.jit_executor is not None:
            torch._C._jit_set_profiling_executor(settings.jit_executor)
        if settings.jit_profiling is not None:
            torch._C._jit_set_profiling_mode(settings.jit_profiling)
        if settings.tensor_fuser is not None:
            torch._C._jit_set_texpr_fuser_enabled(settings.tensor_fuser)

    def signature(self, config: ModelConfig) -> None:
        """Return None: the format knows neither types nor shapes of tensors."""

    def bind(self, config: ModelConfig) -> Call:
        """Return the call. Raises InferenceError: the config does not fit the model."""
        _check_strings(config)
        picker = Picker(config, Side({}, self._result_count))
        forward = self._module.forward if self._settings.optimized else _unoptimized(self._module.forward)
        kinds = [argument.type.kind() for argument in self._arguments]
        if kinds == ["DictType"]:
            return lambda feed, names: picker.pick(forward(dict(feed)), names)
        if kinds == ["ListType"] and _takes_tensors(self._arguments[0]):
            side = Side({}, None)
            order = _in_order(input_places(config, side))
            return lambda feed, names: picker.pick(forward([feed[name] for name in order]), names)
        return self._call_by_arguments(config, picker, forward)

    def tensors(self) -> Iterator[torch.Tensor]:
        """Return the weights and buffers."""
        yield from self._module.parameters()
        yield from self._module.buffers()

    def _call_by_arguments(self, config: ModelConfig, picker: Picker, forward: Any) -> Call:
        _check_arguments(self._arguments)
        names_of_arguments = [argument.name for argument in self._arguments]
        required = sum(not argument.has_default_value() for argument in self._arguments)
        side = Side({name: place for place, name in enumerate(names_of_arguments)}, len(self._arguments), required)
        places = input_places(config, side)

        def call(feed: Mapping[str, Value], names: Sequence[str]) -> list[Any]:
            return picker.pick(forward(**{names_of_arguments[places[name]]: feed[name] for name in feed}), names)

        return call


def _unoptimized(forward: Any) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch.jit.optimized_execution(False):
            return forward(*args, **kwargs)

    return run


def _in_order(places: Mapping[str, int]) -> list[str]:
    return sorted(places, key=places.__getitem__)


def _takes_tensors(argument: Any) -> bool:
    return str(argument.type.getElementType().kind()) == "TensorType"


def _check_arguments(arguments: Sequence[Any]) -> None:
    """Refuse what cannot be fed. Triton's sentences."""
    if len(arguments) > 1 and any(argument.type.kind() == "DictType" for argument in arguments):
        raise InferenceError(
            ErrorCode.INTERNAL,
            "Multiple inputs of kind DictType were detected. Only a single input of type Dict(str, Tensor) is"
            " supported.",
        )
    for argument in arguments:
        kind = argument.type.kind()
        is_fed = kind in ("TensorType", "ListType") or (kind == "OptionalType" and "Tensor" in str(argument.type))
        if not is_fed and not argument.has_default_value():
            raise InferenceError(
                ErrorCode.INTERNAL,
                f"An input of type '{argument.type.str()}' was detected in the model. Only a single input of type"
                " Dict(str, Tensor) or input(s) of type Tensor are supported.",
            )


def _check_strings(config: ModelConfig) -> None:
    """Refuse strings in more than one dimension: TorchScript has lists of them and no tensors."""
    batch = 1 if config.max_batch_size > 0 else 0
    for kind, tensors in (("input", config.input), ("output", config.output)):
        for tensor in tensors:
            shape = tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims
            if tensor.data_type == TYPE_STRING and len(shape) + batch > 1:
                raise InferenceError(
                    ErrorCode.INTERNAL,
                    f"Triton only supports 1 dimensional List of String as {kind} for '{tensor.name}' for model"
                    f" '{config.name}'",
                )
