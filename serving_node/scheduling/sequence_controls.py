"""The tensors that tell a model where in a sequence a request is. Made once, except for the sequence's id. Pure.

Source: Triton's control inputs (``sequence_batching.control_input``): the first value of a pair is for no, the second
for yes; ids are cut to the width of their type.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from serving_node.contract.datatypes import wire_name
from serving_node.contract.errors import ErrorCode
from serving_node.contract.proto.model_config_pb2 import ModelSequenceBatching
from serving_node.core.errors import InferenceError
from serving_node.core.tensor import NUMPY_DTYPES, Tensor

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig
    from serving_node.core.request import InferenceRequest

_Control = ModelSequenceBatching.Control
_PAIRS = {"int32_false_true": "INT32", "fp32_false_true": "FP32", "bool_false_true": "BOOL"}
_LENGTH = struct.Struct("<I")


class SequenceControls:
    """The control inputs of one model. Shapes: [1, 1] with a batch dimension, else [1]."""

    def __init__(self, config: ModelConfig) -> None:
        self._model = config.name
        self._shape = (1, 1) if config.max_batch_size > 0 else (1,)
        self._flags: dict[int, tuple[Tensor, Tensor]] = {}
        self._id: tuple[str, str] | None = None
        for control_input in config.sequence_batching.control_input:
            for control in control_input.control:
                if control.kind == _Control.CONTROL_SEQUENCE_CORRID:
                    self._id = (control_input.name, wire_name(control.data_type))
                else:
                    self._flags[control.kind] = self._pair(control_input.name, control)
        # what a row without a request gets
        self.null = self._tensors(start=False, end=False, ready=False, correlation_id=0)

    @property
    def names(self) -> frozenset[str]:
        """The names of the inputs."""
        return frozenset(tensor.name for tensor in self.null)

    def check(self, request: InferenceRequest) -> None:
        """Refuse an id that the model cannot be told. Raises InferenceError INVALID_ARG."""
        if self._id is None or not request.sequence_id:
            return
        name, datatype = self._id
        given = "BYTES" if isinstance(request.sequence_id, str) else "UINT64"
        if (given == "BYTES") != (datatype == "BYTES"):
            sentence = (
                f"sequence batching control '{name}' data-type is '{given}', but model '{self._model}' expects"
                f" '{datatype}'"
            )
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)

    def of(self, request: InferenceRequest) -> list[Tensor]:
        """Return the tensors of a request of a sequence."""
        return self._tensors(
            start=request.sequence_start, end=request.sequence_end, ready=True, correlation_id=request.sequence_id
        )

    def _tensors(self, *, start: bool, end: bool, ready: bool, correlation_id: int | str) -> list[Tensor]:
        says = {
            _Control.CONTROL_SEQUENCE_START: start,
            _Control.CONTROL_SEQUENCE_END: end,
            _Control.CONTROL_SEQUENCE_READY: ready,
        }
        made = {pair[0].name: pair[says[kind]] for kind, pair in self._flags.items()}  # type: ignore[index]
        if self._id is not None:
            name, datatype = self._id
            made[name] = Tensor(name, datatype, self._shape, _id_bytes(datatype, correlation_id))
        return list(made.values())

    def _pair(self, name: str, control: _Control) -> tuple[Tensor, Tensor]:
        for field, datatype in _PAIRS.items():
            if values := getattr(control, field):
                no, yes = (np.array([value], NUMPY_DTYPES[datatype]).tobytes() for value in values)
                return Tensor(name, datatype, self._shape, no), Tensor(name, datatype, self._shape, yes)
        raise InferenceError(ErrorCode.INVALID_ARG, f"sequence batching control '{name}' has no values")


def _id_bytes(datatype: str, correlation_id: int | str) -> bytes:
    if datatype == "BYTES":
        raw = str(correlation_id).encode() if correlation_id else b""
        return _LENGTH.pack(len(raw)) + raw
    width = NUMPY_DTYPES[datatype].itemsize
    number = correlation_id if isinstance(correlation_id, int) else 0
    return (number & (1 << 8 * width) - 1).to_bytes(width, "little")
