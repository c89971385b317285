"""ONNX to ONNX: simplified, or in half precision."""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING, cast

from conversion.errors import ConversionFailed, first_sentence, require

if TYPE_CHECKING:
    import onnx

_FLOAT16_LIMIT = 65504.0


def simplify(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with constants folded, dead and doubled nodes removed; inputs and outputs stay as they are.

    Raises:
        ConversionFailed: the model cannot be simplified.
    """
    onnxslim = require("onnxslim", "Simplifying", "flotilla[convert]")
    interface = [one.SerializeToString() for one in (*model.graph.input, *model.graph.output)]
    try:
        # it prints; a report belongs to whoever asked
        with contextlib.redirect_stdout(io.StringIO()):
            result = cast("onnx.ModelProto", onnxslim.slim(model))
    except Exception as error:
        raise ConversionFailed(f"The model cannot be simplified: {first_sentence(error)}") from error
    # types and shapes inferred on the way must not change what the file promises
    names = [one.name for one in (*model.graph.input, *model.graph.output)]
    if [one.name for one in (*result.graph.input, *result.graph.output)] != names:
        raise ConversionFailed("Simplifying would remove or rename an input or output.")
    for value, before in zip((*result.graph.input, *result.graph.output), interface, strict=True):
        value.ParseFromString(before)
    return result


def to_float16(model: onnx.ModelProto, *, keep_io_types: bool = True) -> onnx.ModelProto:
    """Return the model with its FP32 weights and arithmetic in FP16.

    ``keep_io_types``: inputs and outputs stay FP32, with casts behind and before them, so that callers see no change.
    Operators that have no FP16 kernel stay FP32 between casts. Weights beyond 65 504 become 65 504.

    Raises:
        ConversionFailed: there is nothing in FP32, or an operator is in the way.
    """
    module = require("onnxruntime.transformers.float16", "Half precision", "flotilla[convert,onnx]")
    graphs = require("onnxruntime.transformers.onnx_model", "Half precision", "flotilla[convert,onnx]")
    if not _has_float32(model):
        raise ConversionFailed("The model has no FP32 weights or inputs, so there is nothing to make smaller.")
    try:
        copy = type(model)()
        copy.CopyFrom(model)  # it changes what it is given
        result = module.convert_float_to_float16(copy, keep_io_types=keep_io_types, max_finite_val=_FLOAT16_LIMIT)
        graphs.OnnxModel(result).topological_sort()  # it puts casts at the end; other readers want them in order
    except Exception as error:
        raise ConversionFailed(f"The model cannot be made FP16: {first_sentence(error)}") from error
    return cast("onnx.ModelProto", result)


def _has_float32(model: onnx.ModelProto) -> bool:
    weights = any(tensor.data_type == 1 for tensor in model.graph.initializer)
    return weights or any(value.type.tensor_type.elem_type == 1 for value in model.graph.input)
