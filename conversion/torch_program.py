"""PyTorch's exported programs (.pt2) to ONNX."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conversion.errors import ConversionFailed, first_sentence, refused_samples, require
from conversion.samples import Array, Dynamic, InputSpec

if TYPE_CHECKING:
    import onnx
    from torch.export import ExportedProgram as Program

_INSTALL = "flotilla[convert,onnx,torch]"
_DATATYPES = {
    "torch.bool": "BOOL",
    "torch.uint8": "UINT8",
    "torch.int8": "INT8",
    "torch.int16": "INT16",
    "torch.int32": "INT32",
    "torch.int64": "INT64",
    "torch.float16": "FP16",
    "torch.float32": "FP32",
    "torch.float64": "FP64",
    "torch.bfloat16": "BF16",
}
_NO_FUNCTION = re.compile(r"No ONNX function found for <OpOverload\(op='([^']+)'")
_FAILED_NODE = re.compile(r"target=torch\.ops\.([\w.]+)")


class TorchProgram:
    """An exported program. Its outputs are compared in the order in which it returns them."""

    def __init__(self, path: Path) -> None:
        torch = require("torch", "Reading .pt2 files", _INSTALL)
        logging.getLogger("torch").setLevel(logging.ERROR)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._program: Program = torch.export.load(path)
        except Exception as error:
            raise ConversionFailed(
                f"{path.name} is no exported program that this PyTorch can read: {first_sentence(error)}"
            ) from error
        self._torch = torch
        self._inputs = _inputs(self._program)
        self._module: Any = None

    def to_onnx(self) -> onnx.ModelProto:
        """Return the program as ONNX, by PyTorch's own exporter."""
        require("onnxscript", "Exporting PyTorch programs to ONNX", _INSTALL)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exported = self._torch.onnx.export(self._program, dynamo=True, verbose=False)
        except Exception as error:
            raise ConversionFailed(_reason(error)) from error
        model: onnx.ModelProto = exported.model_proto
        return model

    def inputs(self) -> tuple[InputSpec, ...]:
        """Return the tensors that the program takes, with the bounds of its dynamic dimensions."""
        return self._inputs

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return the tensors that the program answers, lists and dictionaries unfolded."""
        torch = self._torch
        if self._module is None:
            self._module = self._program.module()
        tensors = [torch.from_numpy(np.ascontiguousarray(inputs[spec.name])) for spec in self._inputs]
        arguments, keywords = torch.utils._pytree.tree_unflatten(tensors, self._program.call_spec.in_spec)
        try:
            with torch.inference_mode():
                answer = self._module(*arguments, **keywords)
        except Exception as error:
            raise refused_samples("The program", error) from error
        return [_array(one) for one in torch.utils._pytree.tree_leaves(answer) if one is not None]

    def notes(self) -> tuple[str, ...]:
        """Nothing to note."""
        return ()


def _inputs(program: Program) -> tuple[InputSpec, ...]:
    values = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    specs = []
    for name in program.graph_signature.user_inputs:
        value = values.get(name) if isinstance(name, str) else None
        if value is None or not hasattr(value, "dtype"):
            raise ConversionFailed(f"The program takes {name!r}, which is no tensor.")
        shape = tuple(_dimension(program, size) for size in value.shape)
        specs.append(InputSpec(str(name), _DATATYPES.get(str(value.dtype), str(value.dtype)), shape))
    return tuple(specs)


def _dimension(program: Program, size: Any) -> int | Dynamic:
    if isinstance(size, int):
        return size
    expression = size.node.expr
    for symbol, bounds in program.range_constraints.items():
        if str(symbol) == str(expression):
            high = int(bounds.upper) if bounds.upper.is_integer and bounds.upper < 2**31 else None
            return Dynamic(str(symbol), max(1, int(bounds.lower)), high)
    return Dynamic(str(expression))


def _array(value: Any) -> Array:
    if not hasattr(value, "detach"):
        return np.asarray(value)
    tensor = value.detach().cpu()
    # numpy has no bfloat16; FP32 holds each of its values
    array: Array = (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    return array


def _reason(error: BaseException) -> str:
    text = str(error)
    for pattern, sentence in (
        (_NO_FUNCTION, "ONNX has nothing for the operator {}, which the program uses."),
        (_FAILED_NODE, "The operator {} of the program cannot be translated to ONNX."),
    ):
        if found := pattern.search(text):
            return sentence.format(found.group(1))
    return f"The program cannot be exported to ONNX: {first_sentence(error)}"
