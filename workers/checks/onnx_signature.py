"""From an ONNX file's inputs and outputs to the contract's signature."""

from __future__ import annotations

import contextlib
import unicodedata
from collections.abc import Iterable, Iterator

import onnx
from django.utils.translation import gettext as _

from serving_node.contract.signature import ModelSignature, TensorSignature
from workers.checks.onnx_file import OnnxSummary, UnreadableModel

# the first IR version in which a request may replace the value that the file has for an input
_REPLACEABLE_DEFAULTS = 4
_WIRE_NAMES: dict[int, str] = {
    onnx.TensorProto.BOOL: "BOOL",
    onnx.TensorProto.UINT8: "UINT8",
    onnx.TensorProto.UINT16: "UINT16",
    onnx.TensorProto.UINT32: "UINT32",
    onnx.TensorProto.UINT64: "UINT64",
    onnx.TensorProto.INT8: "INT8",
    onnx.TensorProto.INT16: "INT16",
    onnx.TensorProto.INT32: "INT32",
    onnx.TensorProto.INT64: "INT64",
    onnx.TensorProto.FLOAT16: "FP16",
    onnx.TensorProto.FLOAT: "FP32",
    onnx.TensorProto.DOUBLE: "FP64",
    onnx.TensorProto.STRING: "BYTES",
    onnx.TensorProto.BFLOAT16: "BF16",
}


def signature_of(summary: OnnxSummary) -> ModelSignature:
    """Return the signature. Inputs that have a default in the file are optional, if they can be served at all.

    Raises:
        UnreadableModel: an input or output cannot be served; one sentence says which and why.
    """
    inputs = [value for value in summary.inputs if value.name not in summary.initializers]
    if not summary.outputs:
        raise UnreadableModel(_("The model has no outputs."))
    return ModelSignature(
        inputs=tuple(_tensors(inputs, _("input"))),
        outputs=tuple(_tensors(summary.outputs, _("output"))),
        optional_inputs=tuple(_optional(summary)),
    )


def _optional(summary: OnnxSummary) -> Iterator[TensorSignature]:
    if summary.ir_version < _REPLACEABLE_DEFAULTS:
        return
    for value in summary.inputs:
        if value.name in summary.initializers:
            with contextlib.suppress(UnreadableModel):
                yield from _tensors([value], _("input"))


def _tensors(values: Iterable[onnx.ValueInfoProto], side: str) -> Iterable[TensorSignature]:
    seen: set[str] = set()
    for value in values:
        words = {"side": side, "name": value.name}
        if not value.name:
            raise UnreadableModel(_("An %(side)s of the model has no name.") % words)
        if any(unicodedata.category(character) == "Cc" for character in value.name):
            words["name"] = repr(value.name)
            raise UnreadableModel(_("The name of the %(side)s %(name)s holds a control character.") % words)
        if value.name in seen:
            raise UnreadableModel(_("The %(side)s '%(name)s' is there twice.") % words)
        seen.add(value.name)
        kind = value.type.WhichOneof("value")
        if kind != "tensor_type":
            words["kind"] = (kind or _("unknown")).removesuffix("_type")
            raise UnreadableModel(_("The %(side)s '%(name)s' is of kind %(kind)s; only tensors can be served.") % words)
        datatype = _WIRE_NAMES.get(value.type.tensor_type.elem_type)
        if datatype is None:
            words["kind"] = _type_name(value.type.tensor_type.elem_type)
            raise UnreadableModel(_("The %(side)s '%(name)s' holds %(kind)s elements, which cannot be served.") % words)
        yield TensorSignature(value.name, datatype, _shape(value, words))


def _shape(value: onnx.ValueInfoProto, words: dict[str, str]) -> tuple[int, ...]:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        raise UnreadableModel(_("The %(side)s '%(name)s' has no shape; export the model with shapes.") % words)
    shape: list[int] = []
    for dimension in tensor.shape.dim:
        fixed = dimension.WhichOneof("value") == "dim_value"
        # Exporters write 0 or -1 for a dimension that they do not know.
        shape.append(dimension.dim_value if fixed and dimension.dim_value > 0 else -1)
    return tuple(shape)


def _type_name(number: int) -> str:
    try:
        return str(onnx.TensorProto.DataType.Name(number))
    except ValueError:
        return str(number)
