"""AOTInductor packages: a model compiled to native code beforehand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree
from torch._inductor.package import load_package

from serving_node.backends.pytorch.naming import Side, input_places, output_places
from serving_node.backends.pytorch.program import Call
from serving_node.backends.pytorch.settings import checked_inputs
from serving_node.backends.pytorch.structure import input_leaves, output_leaves, places
from serving_node.backends.pytorch.tensors import TORCH_TYPES, Value
from serving_node.contract.datatypes import wire_name
from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config.state_rules import control_inputs, state_inputs
from serving_node.core.errors import InferenceError

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig, ModelInput


# what the compiled code says of inputs that are not those that it is for
_OTHER = re.compile(r"input_handles\[(\d+)\]: ((?:unmatched|dim value is too large)[^\n]*)")
_TOO_SMALL = re.compile(r"input_handles\[(\d+)\]: dim value is too small at (\d+), expected it to be >= (\d+)")


class PackageModel:
    """One package on one device. ``runners``: how many calls may run at the same time; they share the weights."""

    def __init__(self, path: Path, device: torch.device, runners: int) -> None:
        self._path = path
        self.device = device
        self._loader = _load(path, device, runners)
        built_for = self._loader.get_metadata().get("AOTI_DEVICE_KEY", device.type)
        if built_for != device.type:
            raise InferenceError(
                ErrorCode.INVALID_ARG, f"'{path.name}' was compiled for {built_for}, the instance runs on {device.type}"
            )
        in_spec, out_spec = (pytree.treespec_loads(text) for text in self._loader.get_call_spec())
        inputs, outputs = input_leaves(in_spec), output_leaves(out_spec)
        self._inputs_side = Side(places(inputs), len(inputs), len(inputs))
        self._outputs_side = Side(places(outputs), len(outputs))

    def signature(self, config: ModelConfig) -> None:
        """Return None: the code knows types and shapes and does not tell them. It is asked about those of the config.

        Serving goes without those checks: code that was compiled for any number of rows has them refuse one.

        Raises:
            InferenceError: INVALID_ARG, they are others. Such inputs would make the code read foreign memory.
        """
        if not config.input:
            return
        order = self._order(config)
        given = (*config.input, *control_inputs(config), *state_inputs(config))
        known = {one.name: one for one in given if one.data_type}
        if not known.keys() >= set(order):
            return  # what the server makes of a ragged or padded batch; or the config is not complete, told elsewhere
        shapes = {name: _shape(config, known[name]) for name in order}
        with checked_inputs():
            checking = _load(self._path, self.device, 1)
            while (found := self._refused(checking, order, shapes)) is not None:
                argument, dimension, least = map(int, found.groups())
                shapes[order[argument]][1][dimension] = least

    def bind(self, config: ModelConfig) -> Call:
        """Return the call. Raises InferenceError: the config does not fit the package."""
        order = self._order(config)
        found = output_places(config, self._outputs_side)
        run = self._loader.boxed_run

        def call(feed: Mapping[str, Value], names: Sequence[str]) -> list[Any]:
            results = run([feed[name] for name in order])
            return [results[found[name]] for name in names]

        return call

    def tensors(self) -> Iterator[torch.Tensor]:
        """Return nothing: the weights are inside the compiled code."""
        return iter(())

    def _order(self, config: ModelConfig) -> list[str]:
        found = input_places(config, self._inputs_side)
        return sorted(found, key=found.__getitem__)

    def _refused(
        self, checking: Any, order: Sequence[str], shapes: Mapping[str, tuple[Any, list[int]]]
    ) -> re.Match[str] | None:
        """Run the code that checks on zeros. Return the dimension that must be larger, None when the inputs fit."""
        given = [shapes[name] for name in order]
        try:
            checking.boxed_run([torch.zeros(shape, dtype=kind, device=self.device) for kind, shape in given])
        except RuntimeError as error:
            other = _OTHER.search(str(error))
            if other:
                sentence = (
                    f"input '{order[int(other[1])]}' is not what '{self._path.name}' was compiled for: {other[2]}"
                )
                raise InferenceError(ErrorCode.INVALID_ARG, sentence) from error
            return _TOO_SMALL.search(str(error))  # or a reason that has to do with zeros
        return None


def _load(path: Path, device: torch.device, runners: int) -> Any:
    index = (device.index or 0) if device.type == "cuda" else -1
    return load_package(str(path), num_runners=runners, device_index=index).loader


def _shape(config: ModelConfig, tensor: ModelInput) -> tuple[torch.dtype, list[int]]:
    """Return the type and the largest shape of an input; dynamic dimensions are 2, which code for any number takes."""
    shape = tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims
    dims = [2 if dim < 0 else dim for dim in shape]
    datatype = wire_name(tensor.data_type)
    if datatype not in TORCH_TYPES:
        raise InferenceError(
            ErrorCode.INVALID_ARG, f"input '{tensor.name}' of model '{config.name}' cannot be of strings"
        )
    return TORCH_TYPES[datatype], [config.max_batch_size, *dims] if config.max_batch_size > 0 else dims
