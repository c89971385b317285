"""ONNX files: read, written, asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from conversion.errors import ConversionFailed, first_sentence, refused_samples, require
from conversion.samples import Array, Dynamic, InputSpec

if TYPE_CHECKING:
    import onnx

BATCH = Dynamic("batch")
"""The first dimension of models that say nothing about it."""

_INSTALL = "flotilla[convert,onnx]"
# rows asked to see the shapes of answers: as many as nothing else is likely to have
_ROWS = 13
# protobuf cannot write more into one message
_MAX_BYTES = 2**31 - 1
_DATATYPES = {
    1: "FP32",
    2: "UINT8",
    3: "INT8",
    4: "UINT16",
    5: "INT16",
    6: "INT32",
    7: "INT64",
    8: "BYTES",
    9: "BOOL",
    10: "FP16",
    11: "FP64",
    12: "UINT32",
    13: "UINT64",
    16: "BF16",
}


def read(path: Path) -> onnx.ModelProto:
    """Return the model with its weights, those in files beside it too.

    Raises:
        ConversionFailed: it is cut, damaged, or a file with weights is missing.
    """
    package = require("onnx", "Reading ONNX files", _INSTALL)
    try:
        model: onnx.ModelProto = package.load(path)
    except FileNotFoundError as error:
        raise ConversionFailed(f"{path.name} keeps weights in a file that is not there: {error.filename}.") from None
    except Exception as error:
        if type(error).__name__ == "DecodeError":
            raise ConversionFailed(f"{path.name} is cut or damaged: it is no complete ONNX file.") from None
        raise ConversionFailed(f"{path.name} cannot be read as ONNX: {first_sentence(error)}") from error
    if not model.graph.node and not model.graph.output:
        raise ConversionFailed(f"{path.name} holds no graph.")
    return model


def packed(model: onnx.ModelProto) -> bytes:
    """Return the model as the bytes of one file.

    Raises:
        ConversionFailed: it is larger than one ONNX file can be.
    """
    if not 0 <= model.ByteSize() <= _MAX_BYTES:
        raise ConversionFailed("The model is larger than 2 GiB, more than one ONNX file can hold.")
    return model.SerializeToString()


def input_specs(model: onnx.ModelProto) -> tuple[InputSpec, ...]:
    """Return the inputs that a request must give: those without a default.

    Raises:
        ConversionFailed: an input is no tensor.
    """
    defaults = {tensor.name for tensor in model.graph.initializer}
    return tuple(_spec(value) for value in model.graph.input if value.name not in defaults)


def output_names(model: onnx.ModelProto) -> tuple[str, ...]:
    """Return the names of the outputs, in order."""
    return tuple(value.name for value in model.graph.output)


def tidy_table_model(model: onnx.ModelProto, name: str) -> list[Array]:
    """Say, in place, what a model over rows of numbers really takes and answers; return its answer to rows of 0.

    Converters of such models leave dimensions unnamed, or declare other ones than come out. Afterwards all share the
    dimension ``batch``, and the others are as observed.

    Raises:
        ConversionFailed: the runtime cannot load it, or an answer is no tensor with one row for each row asked.
    """
    opsets = {one.domain: one.version for one in model.opset_import}
    del model.opset_import[:]
    for domain, version in sorted(opsets.items()):
        model.opset_import.add(domain=domain, version=version)
    specs = input_specs(model)
    shapes = {spec.name: (_ROWS, *(one for one in spec.shape[1:] if isinstance(one, int))) for spec in specs}
    zeros = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    answers: list[Any] = Session(packed(model), name).run(zeros)
    for value, answer in zip(model.graph.output, answers, strict=True):
        if not isinstance(answer, np.ndarray) or answer.shape[:1] != (_ROWS,):
            raise ConversionFailed(
                f"Output '{value.name}' of the converted model is no tensor of one row for each row."
            )
        _declare(value, answer.shape)
    for value in model.graph.input:
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    return answers


class Session:
    """A model on ONNX Runtime's CPU provider.

    Raises:
        ConversionFailed: the runtime refuses the file; the sentence has its words.
    """

    def __init__(self, model: Path | bytes, name: str) -> None:
        runtime = require("onnxruntime", "Comparing the answers of the files", _INSTALL)
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        self._name = name
        try:
            self._session: Any = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise ConversionFailed(f"ONNX Runtime cannot load {name}: {first_sentence(error)}") from error
        self._types = {one.name: one.type for one in self._session.get_inputs()}

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return the outputs in order. Floats are cast to the width that the model takes.

        Raises:
            ConversionFailed: the model refuses the inputs.
        """
        feeds = {name: self._cast(name, array) for name, array in inputs.items()}
        try:
            return list(self._session.run(None, feeds))
        except Exception as error:
            raise refused_samples(self._name, error) from error

    def _cast(self, name: str, array: Array) -> Array:
        widths: dict[str, npt.DTypeLike] = {"tensor(float16)": np.float16, "tensor(float)": np.float32}
        wanted = widths.get(self._types.get(name, ""))
        return array.astype(wanted) if wanted is not None and array.dtype.kind == "f" else array


def _declare(value: onnx.ValueInfoProto, shape: tuple[int, ...]) -> None:
    dimensions = value.type.tensor_type.shape.dim
    del dimensions[:]
    dimensions.add(dim_param="batch")
    for size in shape[1:]:
        dimensions.add(dim_value=size)


def _spec(value: onnx.ValueInfoProto) -> InputSpec:
    if not value.type.HasField("tensor_type"):
        raise ConversionFailed(f"Input '{value.name}' is no tensor.")
    tensor = value.type.tensor_type
    datatype = _DATATYPES.get(tensor.elem_type, f"ONNX type {tensor.elem_type}")
    return InputSpec(value.name, datatype, _shape(value.name, tensor.shape.dim))


def _shape(name: str, dimensions: Sequence[Any]) -> tuple[int | Dynamic, ...]:
    return tuple(
        dimension.dim_value
        if dimension.HasField("dim_value")
        else Dynamic(dimension.dim_param or ("batch" if index == 0 else f"{name}.{index}"))
        for index, dimension in enumerate(dimensions)
    )
