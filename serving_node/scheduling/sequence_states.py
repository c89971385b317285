"""The tensors that a node keeps for a sequence between its requests (``sequence_batching.state``).

A state is an input of the model that is filled with the output of the request before, and with its first value where
a sequence starts. Source: Triton's implicit state (core, sequence_state.cc).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from serving_node.contract.datatypes import wire_name
from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.request import RequestedOutput
from serving_node.core.tensor import NUMPY_DTYPES, Tensor

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig, ModelSequenceBatching
    from serving_node.scheduling.sequence_slots import Sequence

_FOLDER = "initial_state"


@dataclass(frozen=True, slots=True)
class _State:
    """One pair of input and output. ``shape`` includes the row; ``first`` is what a sequence starts with."""

    output: str
    shape: tuple[int, ...]
    first: Tensor

    def taken(self, tensor: Tensor) -> Tensor:
        """Return an output of the model as the next input. Raises InferenceError INTERNAL when it does not fit."""
        expected, given = self.shape, tensor.shape
        if tensor.datatype != self.first.datatype:
            sentence = f"is of type {tensor.datatype}, the config says {self.first.datatype}"
        elif len(given) != len(expected) or any(
            want not in (-1, got) for want, got in zip(expected, given, strict=True)
        ):
            sentence = f"has shape {list(given)}, the config says {list(expected)}"
        else:
            # a copy: the view would hold the results of the whole batch for as long as the sequence lives
            return Tensor(self.first.name, tensor.datatype, tensor.shape, bytes(tensor.data))
        raise InferenceError(ErrorCode.INTERNAL, f"state output '{self.output}' {sentence}")


class SequenceStates:
    """The states of one model."""

    def __init__(self, config: ModelConfig, folder: Path) -> None:
        """Read the first values; ``folder`` is the model's.

        Raises:
            InferenceError: INTERNAL, a file cannot be read; INVALID_ARG, it is too short.
        """
        rows = (1,) if config.max_batch_size > 0 else ()
        self._model = config.name
        self._states = tuple(_state(state, rows, folder) for state in config.sequence_batching.state)
        self._declared = [output.name for output in config.output]
        # what to ask of the model when the client asks for everything, and what no client gets
        hidden = [state.output for state in self._states if state.output not in self._declared]
        self._all = [RequestedOutput(name) for name in (*self._declared, *hidden)]
        self._hidden = frozenset(hidden)
        self.first = [state.first for state in self._states]

    def empty(self, like: Sequence | None) -> list[Tensor]:
        """Return what a row without a request gets: zeros, in the shapes that the states of another sequence have."""
        states: list[Tensor] = self.first if like is None or like.state is None else like.state
        return [zeros_like(tensor) for tensor in states]

    def of(self, sequence: Sequence, *, start: bool) -> list[Tensor]:
        """Return the states of a sequence as inputs; with ``start`` it begins anew."""
        if start or sequence.state is None:
            sequence.state, sequence.shape = self.first, None
        state: list[Tensor] = sequence.state
        return state

    def asked(self, outputs: list[RequestedOutput]) -> list[RequestedOutput]:
        """Return what to ask of the model when a client asks for ``outputs``; none stand for all."""
        if not outputs:
            return self._all
        names = {output.name for output in outputs}
        return [*outputs, *(RequestedOutput(state.output) for state in self._states if state.output not in names)]

    def take(self, sequence: Sequence, outputs: list[RequestedOutput], tensors: list[Tensor]) -> list[Tensor]:
        """Keep the states among the ``tensors`` of a response; return those for the client, who asked for ``outputs``.

        Raises:
            InferenceError: INTERNAL, a state is missing or does not fit. The sequence's states stay as they were.
        """
        found = {tensor.name: tensor for tensor in tensors}
        kept: list[Tensor] = []
        for state in self._states:
            tensor = found.get(state.output)
            if tensor is None:
                sentence = f"model '{self._model}' did not give the state output '{state.output}'"
                raise InferenceError(ErrorCode.INTERNAL, sentence)
            kept.append(state.taken(tensor))
        sequence.state = kept
        shapes = tuple(tensor.shape for tensor in kept)
        sequence.shape = None if shapes == tuple(tensor.shape for tensor in self.first) else shapes
        if not outputs:
            return [tensor for tensor in tensors if tensor.name not in self._hidden]
        names = {output.name for output in outputs}
        return [tensor for tensor in tensors if tensor.name in names]


def _fits(shape: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    return len(shape) == len(expected) and all(want in (-1, got) for got, want in zip(shape, expected, strict=True))


def zeros_like(tensor: Tensor) -> Tensor:
    """Return a tensor of the same shape, of zeros; strings are empty ones."""
    return Tensor(tensor.name, tensor.datatype, tensor.shape, bytes(_zero_size(tensor.datatype, tensor.shape)))


def _zero_size(datatype: str, shape: tuple[int, ...]) -> int:
    return prod(shape) * (4 if datatype == "BYTES" else NUMPY_DTYPES[datatype].itemsize)


def _state(state: ModelSequenceBatching.State, rows: tuple[int, ...], folder: Path) -> _State:
    datatype = wire_name(state.data_type)
    dims = tuple(state.dims)
    initial = state.initial_state[0] if state.initial_state else None
    first_dims = tuple(initial.dims) if initial is not None else tuple(max(dim, 1) if dim < 0 else dim for dim in dims)
    size = _zero_size(datatype, first_dims)
    data = bytes(size)
    if initial is not None and initial.data_file:
        data = _file_bytes(folder, initial.data_file)
        if datatype != "BYTES":
            if len(data) < size:
                sentence = (
                    f"initial_state setting expects {size} bytes, but the data provided from {initial.data_file}only"
                    f" has {len(data)} bytes."
                )
                raise InferenceError(ErrorCode.INVALID_ARG, sentence)
            data = data[:size]
    return _State(state.output_name, rows + dims, Tensor(state.input_name, datatype, rows + first_dims, data))


def _file_bytes(folder: Path, name: str) -> bytes:
    directory = (folder / _FOLDER).resolve()
    path = (directory / name).resolve()
    if not path.is_relative_to(directory):
        raise InferenceError(ErrorCode.INVALID_ARG, f"state file '{name}' lies outside the folder '{_FOLDER}'")
    try:
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InferenceError(ErrorCode.INTERNAL, f"failed to open text file for read {path}: {reason}") from error
