"""What the tensors of a request must look like for one model: the config's inputs and outputs, compiled once. Pure.

Texts are Triton's, so that clients which match on them keep working.
Source: Triton core, infer_request.cc (InferenceRequest::Normalize), as observed in its answers.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from serving_node.contract.datatypes import byte_size, wire_name
from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config.padding import padding_rules
from serving_node.core.errors import InferenceError, request_error
from serving_node.core.metadata import ModelMetadata, TensorMetadata
from serving_node.core.request import InferenceRequest
from serving_node.core.tensor import Tensor

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig

_BATCH_NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each"
    " input shape. If you want to specify the full shape including the batch dim in your input dims config, try"
    " setting max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)
_MAX_ELEMENTS = 2**63 - 1
# How many looks of requests are remembered.
_LOOKS = 256
# Elements of larger BYTES tensors are checked where they are decoded, off the loop.
_MAX_ELEMENTS_CHECKED_HERE = 4096
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class TensorRule:
    """One input or output. ``dims`` are the config's, without rows; ``model_dims`` differ where the config reshapes.

    ``is_ragged``: requests of a batch may differ in this input's shape. ``padded_axis``: they may differ in this
    dimension, counted without rows, because they are padded before they run.
    """

    name: str
    datatype: str
    dims: tuple[int, ...]
    model_dims: tuple[int, ...]
    item_bytes: int | None
    row_bytes: int | None
    is_optional: bool = False
    is_ragged: bool = False
    padded_axis: int | None = None

    @property
    def shares_batches(self) -> bool:
        """Whether requests can be batched whatever their shapes, because all have one shape or shapes may differ."""
        return self.is_ragged or -1 not in self.equal_part(self.dims)

    def equal_part(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        """Return what of a shape without rows must be equal for two requests to share a batch."""
        if self.is_ragged:
            return ()
        axis = self.padded_axis
        return dims if axis is None else dims[:axis] + dims[axis + 1 :]

    def to_model(self, shape: tuple[int, ...], has_rows: bool) -> tuple[int, ...]:
        """Return the shape that the model gets for a client's shape."""
        return _translate(shape, self.dims, self.model_dims, has_rows)

    def to_client(self, shape: tuple[int, ...], has_rows: bool) -> tuple[int, ...]:
        """Return the shape that the client sees for a model's output shape."""
        return _translate(shape, self.model_dims, self.dims, has_rows)


class IoRules:
    """The compiled inputs and outputs of one model."""

    def __init__(self, config: ModelConfig) -> None:
        self.model = config.name
        self.max_batch_size: int = config.max_batch_size
        self.paddings = padding_rules(config)
        axes = {padding.input: padding.axis for padding in self.paddings}
        self.inputs = tuple(
            _rule(
                message,
                is_optional=message.optional,
                is_ragged=message.allow_ragged_batch,
                padded_axis=axes.get(message.name),
            )
            for message in config.input
        )
        self.outputs = tuple(_rule(message) for message in config.output)
        self._inputs = {rule.name: rule for rule in self.inputs}
        self._outputs = {rule.name: rule for rule in self.outputs}
        self._names = [rule.name for rule in self.inputs]
        self._required = sum(not rule.is_optional for rule in self.inputs)
        self._reshapes = any(rule.dims != rule.model_dims for rule in self.inputs)
        # Names, types, shapes and sizes that were found good, with batch size, key and ``alike``: nothing else is
        # looked at, but in strings, and most requests look like others. Not for inputs that are given another shape.
        # Known by what the frontends set as ``alike`` too.
        self._good: dict[object, tuple[int, Hashable, object]] | None = None
        if not self._reshapes and all(rule.item_bytes is not None for rule in self.inputs):
            self._good = {}
        self._has_one_key = all(rule.shares_batches and not rule.is_optional for rule in self.inputs)

    def metadata(self, config: ModelConfig) -> ModelMetadata:
        """Return what clients are told, for this version alone."""
        rows = (-1,) if self.max_batch_size > 0 else ()
        return ModelMetadata(
            name=self.model,
            versions=(),
            platform=config.platform or config.backend,
            inputs=tuple(TensorMetadata(rule.name, rule.datatype, rows + rule.dims) for rule in self.inputs),
            outputs=tuple(TensorMetadata(rule.name, rule.datatype, rows + rule.dims) for rule in self.outputs),
        )

    def check(self, request: InferenceRequest) -> None:
        """Check a request and fill its ``batch_size`` and ``batch_key``; inputs end up in the config's order.

        Raises:
            InferenceError: INVALID_ARG with Triton's sentence.
        """
        inputs = request.inputs
        alike, request.alike = request.alike, None
        look: tuple[object, ...] = ()
        if self._good is not None:
            good = self._good.get(alike) if alike is not None else None
            if good is None:
                look = (
                    tuple([(tensor.name, tensor.datatype, tensor.shape, len(tensor.data)) for tensor in inputs]),
                    tuple([output.name for output in request.outputs]),
                )
                good = self._good.get(look)
                if good is not None and alike is not None:
                    self._remember(alike, good)
            if good is not None:
                request.batch_size, request.batch_key, request.alike = good
                request.alike_inputs = inputs
                return
        is_kept = not request.outputs or self._check_outputs(request)
        if [tensor.name for tensor in inputs] != self._names:
            inputs = self._arrange(request)
            is_kept = False
        if self.max_batch_size > 0:
            request.batch_size = self._check_rows(request, inputs)
        for tensor in inputs:
            self._check_tensor(request, tensor, self._inputs[tensor.name])
        request.batch_key = None if self._has_one_key else self._key(inputs)
        if self._reshapes:
            inputs = [self._reshaped(tensor) for tensor in inputs]
        request.inputs = inputs
        if is_kept and self._good is not None:
            self._remember(look, (request.batch_size, request.batch_key, object()))

    def _remember(self, look: object, good: tuple[int, Hashable, object]) -> None:
        assert self._good is not None
        if len(self._good) >= _LOOKS:
            self._good.clear()
        self._good[look] = good

    def _check_outputs(self, request: InferenceRequest) -> bool:
        """Check the names of the outputs. Returns whether each is asked for once."""
        for output in request.outputs:
            if output.name not in self._outputs:
                sentence = f"unexpected inference output '{output.name}' for model '{self.model}'"
                raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        if len(request.outputs) > 1:
            # an output that is asked for twice is sent once, as it was asked for first
            first = {output.name: output for output in reversed(request.outputs)}
            if len(first) < len(request.outputs):
                request.outputs = list(first.values())
                return False
        return True

    def _arrange(self, request: InferenceRequest) -> list[Tensor]:
        """Return the inputs in the config's order. Called when they are not exactly the config's."""
        given: dict[str, Tensor] = {}
        for tensor in request.inputs:
            if tensor.name in given:
                sentence = f"input '{tensor.name}' already exists in request"
                raise request_error(ErrorCode.INVALID_ARG, request.id, sentence)
            given[tensor.name] = tensor
        if not self._required <= len(given) <= len(self.inputs):
            raise request_error(ErrorCode.INVALID_ARG, request.id, self._count_sentence(given))
        for name in given:
            if name not in self._inputs:
                sentence = f"unexpected inference input '{name}' for model '{self.model}'"
                raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        if any(not rule.is_optional and rule.name not in given for rule in self.inputs):
            raise request_error(ErrorCode.INVALID_ARG, request.id, self._count_sentence(given))
        return [given[name] for name in self._names if name in given]

    def _count_sentence(self, given: dict[str, Tensor]) -> str:
        got = ",".join(f"'{name}'" for name in given)
        missing = ",".join(f"'{r.name}'" for r in self.inputs if not r.is_optional and r.name not in given)
        total = len(self.inputs)
        if self._required == total:
            expected = f"expected {total} inputs"
        else:
            expected = f"expected number of inputs between {self._required} and {total}"
        sentence = f"{expected} but got {len(given)} inputs for model '{self.model}'. Got input(s) [{got}]"
        if missing:
            sentence += f", but missing required input(s) [{missing}]"
        return f"{sentence}. Please provide all required input(s)."

    def _check_rows(self, request: InferenceRequest, inputs: Sequence[Tensor]) -> int:
        rows = -1
        for tensor in inputs:
            if not tensor.shape:
                sentence = f"input '{tensor.name}' has no shape but model requires batch dimension for '{self.model}'"
                raise request_error(ErrorCode.INVALID_ARG, request.id, sentence)
            if rows == -1:
                rows = tensor.shape[0]
            if tensor.shape[0] != rows or rows < 0:
                sentence = f"input '{tensor.name}' batch size does not match other inputs for '{self.model}'"
                raise request_error(ErrorCode.INVALID_ARG, request.id, sentence)
        if rows > self.max_batch_size:
            sentence = f"inference request batch-size must be <= {self.max_batch_size} for '{self.model}'"
            raise request_error(ErrorCode.INVALID_ARG, request.id, sentence)
        return max(rows, 0) if inputs else 1

    def _check_tensor(self, request: InferenceRequest, tensor: Tensor, rule: TensorRule) -> None:
        if tensor.datatype != rule.datatype:
            sentence = (
                f"inference input '{rule.name}' data-type is '{tensor.datatype}',"
                f" but model '{self.model}' expects '{rule.datatype}'"
            )
            raise request_error(ErrorCode.INVALID_ARG, request.id, sentence)
        dims = tensor.shape[1:] if self.max_batch_size > 0 else tensor.shape
        if (dims != rule.dims or rule.row_bytes is None) and not _fits(dims, rule.dims):
            raise request_error(ErrorCode.INVALID_ARG, request.id, self._shape_sentence(tensor, rule))
        # a tensor without rows is read as one that lacks the batch dimension
        rows = (tensor.shape[0] or 1) if self.max_batch_size > 0 else 1
        if rule.item_bytes is None:
            self._check_elements(request, tensor, rows * prod(dims))
            return
        expected = rows * (prod(dims) * rule.item_bytes if rule.row_bytes is None else rule.row_bytes)
        data = tensor.data
        size = data.nbytes if type(data) is memoryview else len(data)
        if size != expected:
            raise request_error(ErrorCode.INVALID_ARG, request.id, self._size_sentence(tensor, expected, size))

    def _check_elements(self, request: InferenceRequest, tensor: Tensor, expected: int) -> None:
        """Check lengths and number of the elements of a BYTES tensor of moderate size."""
        if expected > _MAX_ELEMENTS_CHECKED_HERE:
            return
        place = f"inference input '{tensor.name}'"
        data, offset, count, missing = tensor.data, 0, 0, ""
        end = len(data)
        while offset < end and not missing:
            if offset + 4 > end:
                sentence = (
                    f"incomplete string length indicator for {place} for model '{self.model}', expecting 4 bytes but"
                    f" only {end - offset} bytes available. Please make sure the string length indicator is in one"
                    " buffer."
                )
                raise request_error(ErrorCode.INVALID_ARG, request.id, sentence)
            count += 1
            if count > expected:
                sentence = f"unexpected number of string elements {count} for {place} for model '{self.model}'"
                raise request_error(ErrorCode.INVALID_ARG, request.id, f"{sentence}, expecting {expected}")
            (length,) = _LENGTH.unpack_from(data, offset)
            offset += 4
            if offset + length > end:
                missing = f"expecting string of length {length} but only {end - offset} bytes available"
            offset += length
        if count != expected:
            sentence = f"expected {expected} string elements for {place} for model '{self.model}', got {count}"
            raise request_error(ErrorCode.INVALID_ARG, request.id, sentence)
        if missing:
            raise InferenceError(ErrorCode.INVALID_ARG, f"incomplete string data for {place}, {missing}")

    def _shape_sentence(self, tensor: Tensor, rule: TensorRule) -> str:
        if -1 in tensor.shape:
            return (
                f"All input dimensions should be specified for input '{rule.name}' for model '{self.model}',"
                f" got {shape_text(tensor.shape)}"
            )
        has_rows = self.max_batch_size > 0
        expected = shape_text(((-1,) if has_rows else ()) + rule.dims)
        return (
            f"unexpected shape for input '{rule.name}' for model '{self.model}'."
            f" Expected {expected}, got {shape_text(tensor.shape)}. {_BATCH_NOTE if has_rows else ''}"
        )

    def _size_sentence(self, tensor: Tensor, expected: int, size: int) -> str:
        if prod(tensor.shape) > _MAX_ELEMENTS:
            return (
                f"input '{tensor.name}' for model '{self.model}' has shape {shape_text(tensor.shape)} which"
                f" causes total element count to exceed maximum size of {_MAX_ELEMENTS}"
            )
        return (
            f"input byte size mismatch for input '{tensor.name}' for model '{self.model}'."
            f" Expected {expected}, got {size}"
        )

    def _key(self, inputs: Sequence[Tensor]) -> Hashable:
        start = 1 if self.max_batch_size > 0 else 0
        return tuple((tensor.name, self._inputs[tensor.name].equal_part(tensor.shape[start:])) for tensor in inputs)

    def _reshaped(self, tensor: Tensor) -> Tensor:
        rule = self._inputs[tensor.name]
        if rule.dims == rule.model_dims:
            return tensor
        return tensor.reshaped(rule.to_model(tensor.shape, self.max_batch_size > 0))


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as Triton prints it."""
    return f"[{','.join(str(dim) for dim in shape)}]"


def _rule(
    message: object, *, is_optional: bool = False, is_ragged: bool = False, padded_axis: int | None = None
) -> TensorRule:
    datatype = wire_name(message.data_type)  # type: ignore[attr-defined]  # ModelInput and ModelOutput alike
    dims = tuple(message.dims)  # type: ignore[attr-defined]
    has_reshape = message.HasField("reshape")  # type: ignore[attr-defined]
    model_dims = tuple(message.reshape.shape) if has_reshape else dims  # type: ignore[attr-defined]
    item_bytes = byte_size(datatype)
    row_bytes = None if item_bytes is None or -1 in dims else prod(dims) * item_bytes
    name: str = message.name  # type: ignore[attr-defined]
    return TensorRule(name, datatype, dims, model_dims, item_bytes, row_bytes, is_optional, is_ragged, padded_axis)


def _fits(dims: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    return len(dims) == len(expected) and all(
        dim >= 0 and want in (-1, dim) for dim, want in zip(dims, expected, strict=True)
    )


def _translate(
    shape: tuple[int, ...], source: tuple[int, ...], target: tuple[int, ...], has_rows: bool
) -> tuple[int, ...]:
    """Return ``target`` with its variable dimensions taken, in order, from where ``source`` has variable ones."""
    if source == target:
        return shape
    rows, dims = (shape[:1], shape[1:]) if has_rows else ((), shape)
    variable = iter([dim for dim, rule in zip(dims, source, strict=False) if rule == -1])
    return rows + tuple(next(variable, -1) if dim == -1 else dim for dim in target)
