"""Models as OpenVINO reads them: what their tensors are, and how they get the shapes and types of a config."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import openvino as ov

from serving_node.backends.openvino.failures import openvino_sentence
from serving_node.backends.openvino.settings import OpenVinoSettings
from serving_node.contract.datatypes import wire_name
from serving_node.contract.errors import ErrorCode
from serving_node.contract.signature import ModelSignature, TensorSignature
from serving_node.core.errors import InferenceError

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig

TYPES: dict[str, Any] = {
    "BOOL": ov.Type.boolean,
    "UINT8": ov.Type.u8,
    "UINT16": ov.Type.u16,
    "UINT32": ov.Type.u32,
    "UINT64": ov.Type.u64,
    "INT8": ov.Type.i8,
    "INT16": ov.Type.i16,
    "INT32": ov.Type.i32,
    "INT64": ov.Type.i64,
    "FP16": ov.Type.f16,
    "FP32": ov.Type.f32,
    "FP64": ov.Type.f64,
    "BF16": ov.Type.bf16,
}
"""OpenVINO's element types by the names of the wire; it has no operators on strings of its own."""


def adapt(model: Any, config: ModelConfig, settings: OpenVinoSettings) -> Any:
    """Return the model with the batch dimension, the element types and, if asked for, the dims of the config.

    The first dimension becomes free when the config wants batches, or when the layouts of the model call it the batch
    of every tensor; with ``settings.fixed_batch`` it becomes ``max_batch_size``.

    Raises:
        InferenceError: INVALID_ARG when the model cannot have them.
    """
    given = {tensor.name: tensor for tensor in config.input}
    has_batch = config.max_batch_size > 0 or _layouts_have_batch(model)
    rows = config.max_batch_size if settings.fixed_batch and config.max_batch_size else -1
    shapes: dict[Any, Any] = {}
    for port in model.inputs:
        shape = port.partial_shape
        known = given.get(_name(port))
        if settings.reshapes and known is not None:
            dims = list(known.reshape.shape if known.HasField("reshape") else known.dims)
            shape = ov.PartialShape([-1, *dims] if config.max_batch_size else dims)
        if has_batch and shape.rank.is_static and len(shape) > 0:
            shape[0] = ov.Dimension(rows)
        shapes[port] = shape
    try:
        if any(port.partial_shape != shape for port, shape in shapes.items()):
            model.reshape(shapes)
        return _converted(model, config)
    except RuntimeError as error:
        raise InferenceError(
            ErrorCode.INVALID_ARG,
            f"model '{config.name}' cannot have the shapes of its configuration: {openvino_sentence(str(error))}",
        ) from error


def signature(model: Any, *, free_rows: bool = False) -> ModelSignature:
    """Return the inputs and outputs of a model; with ``free_rows`` as if their first dimensions were free.

    Raises:
        InferenceError: UNSUPPORTED when one of them cannot be served.
    """
    return ModelSignature(_tensors(model.inputs, free_rows), _tensors(model.outputs, free_rows))


def _layouts_have_batch(model: Any) -> bool:
    helpers = ov.layout_helpers
    ports = [*model.inputs, *model.outputs]
    return bool(ports) and all(helpers.has_batch(helpers.get_layout(port)) for port in ports)


def _converted(model: Any, config: ModelConfig) -> Any:
    """Return the model with conversions at its edges, where the config has other element types than the file."""
    sides = ((model.inputs, config.input, "input"), (model.outputs, config.output, "output"))
    process = None
    for ports, tensors, side in sides:
        types = {_name(port): port.element_type for port in ports}
        for tensor in tensors:
            wanted = TYPES.get(wire_name(tensor.data_type)) if tensor.data_type else None
            if wanted is None or tensor.name not in types or types[tensor.name] == wanted:
                continue
            process = process or ov.preprocess.PrePostProcessor(model)
            getattr(process, side)(tensor.name).tensor().set_element_type(wanted)
    return model if process is None else process.build()


def _tensors(ports: Iterable[Any], free_rows: bool) -> tuple[TensorSignature, ...]:
    return tuple(_tensor(port, free_rows) for port in ports)


def _tensor(port: Any, free_rows: bool) -> TensorSignature:
    name = _name(port)
    datatype = next((wire for wire, type_ in TYPES.items() if type_ == port.element_type), None)
    if datatype is None:
        raise InferenceError(
            ErrorCode.UNSUPPORTED,
            f"tensor '{name}' is of OpenVINO type {port.element_type.get_type_name()}, which is not served",
        )
    shape = port.partial_shape
    if shape.rank.is_dynamic:
        raise InferenceError(ErrorCode.UNSUPPORTED, f"tensor '{name}' has no fixed number of dimensions")
    dims = [dim.get_length() if dim.is_static else -1 for dim in shape]
    return TensorSignature(name, datatype, (-1, *dims[1:]) if free_rows and dims else tuple(dims))


def _name(port: Any) -> str:
    if not port.names:
        raise InferenceError(ErrorCode.UNSUPPORTED, "an input or output of the model has no name")
    return str(port.any_name)
