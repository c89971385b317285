"""Batches as a hosting worker reads and answers them: messages of the Python backend's wire, requests of the core."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import orjson

from serving_node.backends.python.messages import error_number
from serving_node.backends.python.worker.flotilla_wire import BEGUN, FLAG_SLOTS, aligned
from serving_node.core.errors import InferenceError
from serving_node.core.execution import Execution
from serving_node.core.request import InferenceRequest, InferenceResponse, Parameter, RequestedOutput
from serving_node.core.tensor import Tensor

_MASK = FLAG_SLOTS - 1
_START, _END = 1, 2
# id, sequence, flags, timeout and parameters of requests of which the node says no more
_UNSAID = ("", 0, 0, 0, "")

# name, datatype, shape, first byte and the byte after the last, counted from the first of the request
_Place = tuple[str, str, tuple[int, ...], int, int]


class _Look:
    """What requests of one look have in common; inputs lie at multiples of 16 in a payload and of 64 in a block."""

    __slots__ = ("in_block", "in_payload", "outputs")

    def __init__(self, outputs: Sequence[str], inputs: Sequence[Any]) -> None:
        self.outputs = outputs
        self.in_payload = _laid_out(inputs, 16)
        self.in_block = _laid_out(inputs, 64)


def _laid_out(inputs: Sequence[Any], step: int) -> tuple[list[_Place], int]:
    places: list[_Place] = []
    position = 0
    for name, datatype, shape, size in inputs:
        places.append((name, datatype, tuple(shape), position, position + size))
        position = aligned(position + size, step)
    return places, position


class RequestReader:
    """Reads the requests of one instance. ``flags``: one byte for each request, 1 when its client has left.

    ``rowless``: inputs that are the same for all rows and have none themselves (shape tensors).
    """

    def __init__(
        self, name: str, version: int, flags: Any, *, has_rows: bool, rowless: frozenset[str] = frozenset()
    ) -> None:
        self._name = name
        self._version = str(version)
        self._flags = flags
        self._has_rows = has_rows
        self._rowless = rowless
        self._looks: dict[int, _Look] = {}
        # where the bytes of the next request of a message begin
        self._position = 0

    def executions(self, handle: int, batches: list[Any], payload: bytearray, block: Any) -> Iterator[Execution]:
        """Yield the batches of one message, each when it is begun. ``handle`` is that of the first request.

        Tensors are views on the message's payload or block, which nothing else keeps.
        """
        held = [memoryview(payload if block is None else block)]
        is_block = block is not None
        del payload, block
        self._position = 0
        for place, records in enumerate(batches):
            BEGUN.pack_into(self._flags, FLAG_SLOTS, handle)
            # nothing here may hold the memory while the last batch runs
            is_last = place == len(batches) - 1
            yield self._execution(handle, records, held.pop() if is_last else held[0], is_block=is_block)
            handle += len(records)

    def _execution(self, handle: int, records: Sequence[Any], data: memoryview, *, is_block: bool) -> Execution:
        requests: list[InferenceRequest] = []
        for record in records:
            said, *more = record if type(record) is list else [record]
            look = self._look(said)
            places, size = look.in_block if is_block else look.in_payload
            position = self._position
            inputs = [
                Tensor(name, datatype, shape, data[position + start : position + end])
                for name, datatype, shape, start, end in places
            ]
            self._position = position + size
            requests.append(self._request(handle, more, look, inputs))
            handle += 1
        return Execution(requests, sum(request.batch_size for request in requests))

    def _look(self, said: Any) -> _Look:
        if type(said) is int:
            return self._looks[said]
        number, outputs, inputs = said
        look = self._looks[number] = _Look(outputs, inputs)
        return look

    def _request(self, handle: int, said: Sequence[Any], look: _Look, inputs: list[Tensor]) -> InferenceRequest:
        identity, sequence, flags, timeout_us, parameters = (*said, *_UNSAID[len(said) :])[:5]
        request = InferenceRequest(self._name, self._version, inputs, _nobody, identity)
        if look.outputs:
            request.outputs = [RequestedOutput(name) for name in look.outputs]
        if parameters:
            request.parameters = orjson.loads(parameters)
        request.timeout_us = timeout_us
        request.sequence_id = sequence
        request.sequence_start, request.sequence_end = bool(flags & _START), bool(flags & _END)
        request.cancelled = bool(self._flags[handle & _MASK])
        if self._has_rows and inputs:
            first = inputs[0]
            if first.name in self._rowless:
                first = next((tensor for tensor in inputs if tensor.name not in self._rowless), first)
            request.batch_size = first.shape[0]
        return request


def _nobody(_response: InferenceResponse) -> None:
    """Responses go back with the batch."""


def said_results(execution: Execution) -> list[Any]:
    """Return the results of a batch as ``Channel.end_batch`` takes them."""
    again = execution.again or ()
    parameters = execution.parameters or {}
    return [
        True if place in again else said_result(result, parameters.get(place))
        for place, result in enumerate(execution.results)
    ]


def said_result(result: list[Tensor] | InferenceError | None, parameters: dict[str, Parameter] | None) -> Any:
    """Return one result: an error, or the look, data and parameters of a response."""
    if result is None:
        return None
    if isinstance(result, InferenceError):
        return [result.message, error_number(result.code)]
    look = tuple((tensor.name, tensor.datatype, tuple(map(int, tensor.shape)), len(tensor.data)) for tensor in result)
    data = [tensor.data if type(tensor.data) is bytes else np.frombuffer(tensor.data, np.uint8) for tensor in result]
    return look, data, orjson.dumps(parameters).decode() if parameters else ""
