"""Messages between the node and a worker as the node reads and writes them. Pure; nothing a worker says is trusted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import orjson

from serving_node.backends.python.worker.flotilla_wire import INLINE_BYTES, WireError, aligned
from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest, Parameter
from serving_node.core.tensor import NUMPY_DTYPES, Tensor

# Source: TRITONSERVER_Error_Code, which user code names by these numbers.
_CODES = {
    0: ErrorCode.UNKNOWN,
    1: ErrorCode.INTERNAL,
    2: ErrorCode.NOT_FOUND,
    3: ErrorCode.INVALID_ARG,
    4: ErrorCode.UNAVAILABLE,
    5: ErrorCode.UNSUPPORTED,
    6: ErrorCode.ALREADY_EXISTS,
    7: ErrorCode.CANCELLED,
}
_ITEM_SIZES = {name: dtype.itemsize for name, dtype in NUMPY_DTYPES.items() if name != "BYTES"}

_PADDING = [bytes(count) for count in range(16)]

Data = bytes | bytearray | memoryview


@dataclass(slots=True)
class Batches:
    """Encoded batches: their header's part, and where the bytes go: into the datagram, or into one block."""

    records: list[list[list[Any]]]
    payload: list[Data] = field(default_factory=list)
    placed: list[tuple[int, Data]] = field(default_factory=list)
    placed_bytes: int = 0


def encode_batches(batches: Sequence[Sequence[InferenceRequest]], first_handle: int) -> Batches:
    """Return batches for a worker; their requests are known there as ``first_handle`` and the numbers after it."""
    total = 0
    for requests in batches:
        for request in requests:
            for tensor in request.inputs:
                total += len(tensor.data)
    encoded = Batches([])
    position = 0
    for requests in batches:
        position = _encode_batch(encoded, requests, first_handle, position, inline=total <= INLINE_BYTES)
        first_handle += len(requests)
    if total > INLINE_BYTES:
        encoded.placed_bytes = position
    return encoded


def _encode_batch(
    batches: Batches, requests: Sequence[InferenceRequest], first_handle: int, position: int, *, inline: bool
) -> int:
    """Append a batch whose bytes begin at ``position``; return where they end."""
    records: list[list[Any]] = []
    for handle, request in enumerate(requests, first_handle):
        inputs: list[tuple[str, str, Sequence[int], int, int]] = []
        for tensor in request.inputs:
            data = tensor.data
            size = len(data)
            if inline:
                inputs.append((tensor.name, tensor.datatype, tensor.shape, position, size))
                batches.payload.append(data)
                padding = -size & 15
                if padding:
                    batches.payload.append(_PADDING[padding])
                position += size + padding
            else:
                inputs.append((tensor.name, tensor.datatype, tensor.shape, -1 - position, size))
                batches.placed.append((position, data))
                position = aligned(position + size)
        records.append(_record(handle, request, inputs))
    batches.records.append(records)
    return position


def _record(handle: int, request: InferenceRequest, inputs: list[Any]) -> list[Any]:
    flags = (1 if request.sequence_start else 0) | (2 if request.sequence_end else 0)
    record = [
        handle,
        request.id,
        request.sequence_id,
        flags,
        request.timeout_us,
        parameters_text(request.parameters) if request.parameters else "",
        [output.name for output in request.outputs],
        inputs,
    ]
    if request.trace is not None:
        record.append(request.trace.context())
    return record


def parameters_text(parameters: dict[str, Parameter]) -> str:
    """Return request parameters as models get them: a JSON object in a string."""
    return orjson.dumps(parameters).decode()


class Results:
    """Reads results out of one message.

    Raises:
        WireError: the worker sent what makes no sense; it cannot be trusted any more.
    """

    __slots__ = ("_block", "_payload")

    def __init__(self, payload: bytes, block: Any) -> None:
        self._payload = payload
        self._block = None if block is None else memoryview(block)

    def result(self, encoded: Any) -> tuple[list[Tensor] | InferenceError, dict[str, Parameter] | None]:
        """Return the tensors and parameters of a response, or its error."""
        try:
            first, second = encoded
            if type(first) is int:
                return InferenceError(_CODES.get(first, ErrorCode.INTERNAL), str(second)), None
            return self._tensors(first), (_parameters(second) if second else None)
        except (TypeError, ValueError, KeyError, IndexError) as error:
            raise WireError(f"a result that makes no sense: {error}") from error

    def _tensors(self, encoded: Iterable[Any]) -> list[Tensor]:
        tensors: list[Tensor] = []
        payload, block = self._payload, self._block
        for name, datatype, shape, position, size in encoded:
            if type(name) is not str or type(position) is not int or type(size) is not int or size < 0:
                raise WireError("a tensor that makes no sense")
            for dimension in shape:
                if type(dimension) is not int or dimension < 0:
                    raise WireError("a shape that makes no sense")
            if datatype != "BYTES" and prod(shape) * _ITEM_SIZES[datatype] != size:
                raise WireError(f"{size} bytes do not fill shape {list(shape)} of {datatype}")
            data: bytes | memoryview
            if position >= 0:
                data = payload[position : position + size]
            elif block is not None:
                start = -1 - position
                data = block[start : start + size]
            else:
                raise WireError("a tensor without its block")
            if len(data) != size:
                raise WireError("a tensor that runs past its end")
            tensors.append(Tensor(name, datatype, tuple(shape), data))
        return tensors


def _parameters(text: Any) -> dict[str, Parameter]:
    parameters = orjson.loads(text)
    if type(parameters) is not dict:
        raise WireError("response parameters that are no object")
    for value in parameters.values():
        if not isinstance(value, bool | int | float | str):
            raise WireError("a response parameter that is neither text, number nor truth")
    return parameters
