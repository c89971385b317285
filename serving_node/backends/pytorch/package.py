"""AOTInductor packages: a model compiled to native code beforehand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree
from torch._inductor.package import load_package

from serving_node.backends.pytorch.naming import Side, input_places, output_places
from serving_node.backends.pytorch.program import Call
from serving_node.backends.pytorch.structure import input_leaves, output_leaves, places
from serving_node.backends.pytorch.tensors import Value
from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig


class PackageModel:
    """One package on one device. ``runners``: how many calls may run at the same time; they share the weights."""

    def __init__(self, path: Path, device: torch.device, runners: int) -> None:
        index = device.index or 0 if device.type == "cuda" else -1
        loaded = load_package(str(path), num_runners=runners, device_index=index)
        self.device = device
        self._loader = loaded.loader
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
        """Return None: the code knows types and shapes and does not tell them."""

    def bind(self, config: ModelConfig) -> Call:
        """Return the call. Raises InferenceError: the config does not fit the package."""
        by_place = {place: name for name, place in input_places(config, self._inputs_side).items()}
        order = [by_place[place] for place in range(len(by_place))]
        found = output_places(config, self._outputs_side)
        run = self._loader.boxed_run

        def call(feed: Mapping[str, Value], names: Sequence[str]) -> list[Any]:
            results = run([feed[name] for name in order])
            return [results[found[name]] for name in names]

        return call

    def tensors(self) -> Iterator[torch.Tensor]:
        """Return nothing: the weights are inside the compiled code."""
        return iter(())
