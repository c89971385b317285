"""Messages between the node and a worker as the node reads and writes them. Pure; nothing a worker says is trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import orjson

from serving_node.backends.python.worker.flotilla_wire import INLINE_BYTES, TABLE_ENTRIES, WireError, aligned
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
_NUMBERS = {code: number for number, code in _CODES.items()}
_ITEM_SIZES = {name: dtype.itemsize for name, dtype in NUMPY_DTYPES.items() if name != "BYTES"}

_PADDING = [bytes(count) for count in range(16)]

Data = bytes | bytearray | memoryview


class Batches:
    """Encoded batches: their header's part, and where the bytes go: into the datagram, or into one block."""

    __slots__ = ("payload", "placed", "placed_bytes", "records")

    # written out, not made by ``dataclass``: see core.request
    def __init__(self) -> None:
        self.records: list[list[int | list[Any]]] = []
        self.payload: list[Data] = []
        self.placed: list[tuple[int, Data]] = []
        self.placed_bytes = 0


@dataclass(frozen=True, slots=True)
class _Look:
    """What requests of one look have in common. ``paddings`` follow the inputs in a datagram."""

    number: int
    size: int
    paddings: tuple[bytes, ...]


class RequestTable:
    """What requests look like: names of outputs; names, types, shapes and sizes of inputs. Said to a worker once.

    The first request of a look travels with it and its number, those after it with the number alone. A number that
    comes with a look means that one from then on, so a full table begins anew. Looks are known by ``alike`` or, where
    that does not hold, by what they are.
    """

    __slots__ = ("_looks",)

    def __init__(self) -> None:
        self._looks: dict[object, _Look] = {}

    def find(self, request: InferenceRequest) -> tuple[_Look, int | list[Any]]:
        """Return the look of a request, and what to say of it."""
        key = request.alike if request.alike_inputs is request.inputs else None
        if key is not None:
            look = self._looks.get(key)
            if look is not None:
                return look, look.number
        inputs = tuple([(tensor.name, tensor.datatype, tensor.shape, len(tensor.data)) for tensor in request.inputs])
        outputs = tuple([output.name for output in request.outputs])
        if key is None:
            key = inputs, outputs
            look = self._looks.get(key)
            if look is not None:
                return look, look.number
        if len(self._looks) >= TABLE_ENTRIES:
            self._looks.clear()
        sizes = [size for _, _, _, size in inputs]
        look = _Look(len(self._looks), sum(sizes), tuple(_PADDING[-size & 15] for size in sizes))
        self._looks[key] = look
        return look, [look.number, outputs, inputs]

    def forget(self) -> None:
        """Say everything again: it is not known what the worker has heard."""
        self._looks.clear()


def encode_batches(batches: Sequence[Sequence[InferenceRequest]], table: RequestTable) -> Batches:
    """Return batches for a worker.

    The bytes of all inputs follow each other, each at a multiple of 16 in the datagram or of 64 in a block.
    """
    encoded = Batches()
    payload = encoded.payload
    total = 0
    for requests in batches:
        records: list[int | list[Any]] = []
        for request in requests:
            look, said = table.find(request)
            total += look.size
            records.append(_record(request, said))
            for tensor, padding in zip(request.inputs, look.paddings, strict=True):
                payload.append(tensor.data)
                if padding:
                    payload.append(padding)
        encoded.records.append(records)
    if total > INLINE_BYTES:
        payload.clear()
        _place(encoded, batches)
    return encoded


def _place(encoded: Batches, batches: Sequence[Sequence[InferenceRequest]]) -> None:
    """Give all inputs a place in one block."""
    position = 0
    for requests in batches:
        for request in requests:
            for tensor in request.inputs:
                encoded.placed.append((position, tensor.data))
                position = aligned(position + len(tensor.data))
    encoded.placed_bytes = position


def _record(request: InferenceRequest, said: int | list[Any]) -> int | list[Any]:
    """Return what is said of a request: its look alone when there is nothing else to say and that is known."""
    flags = (1 if request.sequence_start else 0) | (2 if request.sequence_end else 0)
    parameters = parameters_text(request.parameters) if request.parameters else ""
    if request.trace is not None:
        return [said, request.id, request.sequence_id, flags, request.timeout_us, parameters, request.trace.context()]
    if parameters or flags or request.sequence_id or request.timeout_us:
        return [said, request.id, request.sequence_id, flags, request.timeout_us, parameters]
    if request.id:
        return [said, request.id]
    return said if type(said) is int else [said]


def error_number(code: ErrorCode) -> int:
    """Return the number by which models know a kind of errors."""
    return _NUMBERS.get(code, 1)


def parameters_text(parameters: dict[str, Parameter]) -> str:
    """Return request parameters as models get them: a JSON object in a string."""
    return orjson.dumps(parameters).decode()


@dataclass(frozen=True, slots=True)
class OutputLook:
    """Name, datatype, shape and size of one output of a response, checked."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    size: int


class ResultTable:
    """What the responses of a worker look like, by the numbers that it gave."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: dict[int, list[OutputLook]] = {}

    def looks(self, said: Any) -> list[OutputLook]:
        """Return what a worker means: a number, or a list of a number and the look that it has from now on."""
        if type(said) is int:
            return self.known[said]
        number, outputs = said
        if type(number) is not int or not 0 <= number < TABLE_ENTRIES:
            raise WireError("a look that makes no sense")
        looks = self.known[number] = [_output_look(*output) for output in outputs]
        return looks


def _output_look(name: Any, datatype: Any, shape: Any, size: Any) -> OutputLook:
    if type(name) is not str or type(size) is not int or size < 0:
        raise WireError("a tensor that makes no sense")
    for dimension in shape:
        if type(dimension) is not int or dimension < 0:
            raise WireError("a shape that makes no sense")
    if datatype != "BYTES" and prod(shape) * _ITEM_SIZES[datatype] != size:
        raise WireError(f"{size} bytes do not fill shape {list(shape)} of {datatype}")
    return OutputLook(name, datatype, tuple(shape), size)


class Results:
    """Reads results out of one message, in their order: the bytes of their outputs follow each other.

    Raises:
        WireError: the worker sent what makes no sense; it cannot be trusted any more.
    """

    __slots__ = ("_data", "_position", "_step", "_table")

    def __init__(self, table: ResultTable, payload: bytes, block: Any) -> None:
        self._table = table
        self._data: Any = payload if block is None else memoryview(block)
        self._step = 15 if block is None else 63
        self._position = 0

    def result(self, encoded: Any) -> tuple[list[Tensor] | InferenceError, dict[str, Parameter] | None]:
        """Return the tensors and parameters of a response, or its error."""
        try:
            if type(encoded) is int:
                return self._tensors(self._table.looks(encoded)), None
            said, text = encoded
            if type(said) is str:
                return InferenceError(_CODES.get(text, ErrorCode.INTERNAL), said), None
            return self._tensors(self._table.looks(said)), (_parameters(text) if text else None)
        except (TypeError, ValueError, KeyError, IndexError) as error:
            raise WireError(f"a result that makes no sense: {error}") from error

    def tensors(self, number: int) -> list[Tensor]:
        """Return the tensors of a response whose look is known."""
        looks = self._table.known.get(number)
        if looks is None:
            raise WireError(f"a result that makes no sense: {number}")
        return self._tensors(looks)

    def _tensors(self, looks: list[OutputLook]) -> list[Tensor]:
        tensors: list[Tensor] = []
        data, position, step = self._data, self._position, self._step
        for look in looks:
            end = position + look.size
            part = data[position:end]
            if len(part) != look.size:
                raise WireError("a tensor that runs past its end")
            tensors.append(Tensor(look.name, look.datatype, look.shape, part))
            position = (end + step) & ~step
        self._position = position
        return tensors


def _parameters(text: Any) -> dict[str, Parameter]:
    parameters = orjson.loads(text)
    if type(parameters) is not dict:
        raise WireError("response parameters that are no object")
    for value in parameters.values():
        if not isinstance(value, bool | int | float | str):
            raise WireError("a response parameter that is neither text, number nor truth")
    return parameters
