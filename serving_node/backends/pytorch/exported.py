"""Programs of ``torch.export``: graphs with a known signature, run operator by operator or through torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree
from torch.export.passes import move_to_device_pass
from torch.export.pt2_archive._package import load_pt2

from serving_node.backends.pytorch.naming import Side, input_places, output_places
from serving_node.backends.pytorch.program import Call
from serving_node.backends.pytorch.structure import input_leaves, output_leaves, places
from serving_node.backends.pytorch.tensors import WIRE_NAMES, Value
from serving_node.contract.errors import ErrorCode
from serving_node.contract.signature import ModelSignature, TensorSignature
from serving_node.core.errors import InferenceError

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig


class ExportedModel:
    """One program on one device.

    Inputs that are no tensors were fixed when the program was exported, and are passed as they were then.
    """

    def __init__(self, path: Path, device: torch.device, compile_options: Mapping[str, Any] | None) -> None:
        program = _load(path)
        if device.type != "cpu":
            program = move_to_device_pass(program, device)
        self.device = device
        self._module = program.module()
        # The module's own hooks look at the nesting of the arguments again for each call, which costs more than a
        # small model; its guards on shapes are part of ``forward``.
        forward = self._module.forward
        self._forward: Callable[..., Any] = (
            forward if compile_options is None else torch.compile(self._module, **compile_options)
        )
        self._in_spec = program.call_spec.in_spec
        self._read_signature(program)
        self._inputs_side = Side(places(self._input_leaves), len(self._inputs), len(self._inputs), ordered=False)
        named = any(not leaf.name.startswith("OUTPUT__") for leaf in self._output_leaves)
        self._outputs_side = Side(places(self._output_leaves), len(self._outputs), ordered=not named)

    def signature(self, config: ModelConfig) -> ModelSignature:
        """Return the program's inputs and outputs."""
        inputs = [TensorSignature(leaf.name, *_facts(value)) for leaf, value in self._inputs]
        outputs = [TensorSignature(leaf.name, *_facts(value)) for leaf, value in self._outputs]
        if config.input:
            # what the config calls otherwise
            for name, place in input_places(config, self._inputs_side).items():
                inputs[place] = TensorSignature(name, inputs[place].datatype, inputs[place].shape)
        if config.output:
            for name, place in output_places(config, self._outputs_side).items():
                outputs[place] = TensorSignature(name, outputs[place].datatype, outputs[place].shape)
        return ModelSignature(tuple(inputs), tuple(outputs), has_rows=self._rows is not None)

    def bind(self, config: ModelConfig) -> Call:
        """Return the call. Raises InferenceError: the config does not fit the program."""
        self._check_rows(config)
        order = [(name, self._slots[place]) for name, place in input_places(config, self._inputs_side).items()]
        scalars = {name for name, place in input_places(config, self._inputs_side).items() if self._is_scalar(place)}
        found = {name: self._result_slots[place] for name, place in output_places(config, self._outputs_side).items()}
        constants, spec, forward = self._constants, self._in_spec, self._forward

        def call(feed: Mapping[str, Value], names: Sequence[str]) -> list[Any]:
            leaves = constants.copy()
            for name, slot in order:
                value = feed[name]
                leaves[slot] = value.reshape(()) if name in scalars and not isinstance(value, list) else value
            args, kwargs = pytree.tree_unflatten(leaves, spec)
            results = pytree.tree_leaves(forward(*args, **kwargs))
            return [results[found[name]] for name in names]

        return call

    def tensors(self) -> Iterator[torch.Tensor]:
        """Return the weights and buffers."""
        yield from self._module.parameters()
        yield from self._module.buffers()

    def _read_signature(self, program: Any) -> None:
        """Find the tensors among the inputs and outputs, and what is known of their shapes."""
        nodes = {node.name: node.meta.get("val") for node in program.graph.nodes}
        given = [spec.arg for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
        made = [spec.arg for spec in program.graph_signature.output_specs if spec.kind.name == "USER_OUTPUT"]
        leaves = input_leaves(self._in_spec, [arg.name for arg in given])
        self._constants: list[Any] = [getattr(arg, "value", None) for arg in given]
        self._slots = [slot for slot, arg in enumerate(given) if _is_tensor(arg)]
        for arg in given:
            if not _is_tensor(arg) and not hasattr(arg, "value"):
                raise InferenceError(
                    ErrorCode.UNSUPPORTED,
                    f"input '{arg.name}' of the program is no tensor, only tensors are served",
                )
        self._input_leaves = [leaves[slot] for slot in self._slots]
        self._inputs = [(leaves[slot], nodes[given[slot].name]) for slot in self._slots]
        results = output_leaves(program.call_spec.out_spec)
        self._result_slots = [slot for slot, arg in enumerate(made) if _is_tensor(arg)]
        self._output_leaves = [results[slot] for slot in self._result_slots]
        self._outputs = [(results[slot], nodes[made[slot].name]) for slot in self._result_slots]
        self._rows = _rows(program, [value for _, value in (*self._inputs, *self._outputs)])

    def _is_scalar(self, place: int) -> bool:
        return bool(self._inputs[place][1].ndim == 0)

    def _check_rows(self, config: ModelConfig) -> None:
        """Refuse batches that the program was not exported for."""
        if config.max_batch_size < 1:
            return
        if self._rows is None:
            raise InferenceError(
                ErrorCode.INVALID_ARG,
                f"model '{config.name}' has no batch dimension: the first dimensions of its inputs and outputs are not"
                " one and the same dynamic dimension; set max_batch_size to 0 or export it with one",
            )
        least, most = self._rows
        if least > 1 or (most is not None and most < config.max_batch_size):
            allowed = f"{least} or more" if most is None else f"{least} to {most}"
            raise InferenceError(
                ErrorCode.INVALID_ARG,
                f"model '{config.name}' was exported for batches of {allowed} rows, max_batch_size is"
                f" {config.max_batch_size}: batches have 1 to max_batch_size rows",
            )


def _load(path: Path) -> Any:
    # a file object: PyTorch takes paths with its own suffix only
    with path.open("rb") as file:
        try:
            programs = load_pt2(file).exported_programs
        except RuntimeError as error:
            if "archive_format" not in str(error) and "archive_version" not in str(error):
                raise
            file.seek(0)
            return torch.export.load(file)  # written by PyTorch before 2.8
    if len(programs) != 1 and "model" not in programs:
        raise ValueError(f"'{path.name}' holds {len(programs)} programs and none is called 'model'")
    return programs.get("model") or next(iter(programs.values()))


def _is_tensor(arg: Any) -> bool:
    return type(arg).__name__ == "TensorArgument"


def _facts(value: torch.Tensor) -> tuple[str, tuple[int, ...]]:
    if value.dtype not in WIRE_NAMES:
        raise InferenceError(
            ErrorCode.UNSUPPORTED, f"the program has a tensor of type {value.dtype}, which the protocol does not know"
        )
    return WIRE_NAMES[value.dtype], tuple(dim if isinstance(dim, int) else -1 for dim in value.shape)


def _rows(program: Any, values: Sequence[torch.Tensor]) -> tuple[int, int | None] | None:
    """Return the least and the most rows of the dimension that comes first in all tensors; None without such a one."""
    firsts = {str(value.shape[0]) if value.ndim and not isinstance(value.shape[0], int) else "" for value in values}
    symbols = {str(symbol): allowed for symbol, allowed in program.range_constraints.items()}
    if len(firsts) != 1 or not firsts <= symbols.keys():
        return None
    allowed = symbols[firsts.pop()]
    most = allowed.upper
    return int(allowed.lower), int(most) if getattr(most, "is_Integer", isinstance(most, int)) else None
