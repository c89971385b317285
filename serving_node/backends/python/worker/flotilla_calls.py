"""What a model asks of the server from within its process: requests to other models, and their loading.

A question leaves on the first socket, from whichever thread asks. Answers come on the second one: the thread that
reads it hands them to whoever waits. Needs numpy and the standard library only.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import threading
from queue import SimpleQueue
from typing import Any

import flotilla_wire as wire  # type: ignore[import-not-found]
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]
from flotilla_channel import Channel  # type: ignore[import-not-found]
from flotilla_tensor import UnreadableStrings  # type: ignore[import-not-found]

_ONLY_IN_EXECUTE = "BLS is only supported during the 'execute' function."
# How errors begin, by what was asked.
_FAILED = {
    "load": "Failed to load model",
    "unload": "Failed to unload model",
    "ready": "Failed to check model readiness",
}

# The handles of the requests that a coroutine of a decoupled model answers: its batch is over when it asks.
answering: contextvars.ContextVar[list[int] | None] = contextvars.ContextVar("answering", default=None)

# What an answer is: fields, payload and block of its message.
Answer = Any


def look_of(tensors: Any) -> tuple[tuple[Any, ...], list[Any]]:
    """Return names, datatypes, shapes and sizes of tensors, and their data."""
    look: list[Any] = []
    data: list[Any] = []
    for tensor in tensors:
        array = tensor._array
        if tensor._datatype == "BYTES":
            text = pb_utils.wire_bytes(array)
            look.append((tensor._name, "BYTES", array.shape, len(text)))
            data.append(text)
        else:
            look.append((tensor._name, tensor._datatype, array.shape, array.nbytes))
            data.append(array)
    return tuple(look), data


def response_in(answer: Answer) -> Any:
    """Return the response in an answer; its arrays are views on the memory that came with it."""
    (_, _, error, outputs, parameters), payload, block = answer
    if error is not None:
        text, code = error
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(text, code))
    data, step = (payload, 16) if block is None else (block, 64)
    tensors = []
    position = 0
    try:
        for name, datatype, shape, size in outputs or ():
            tensors.append(pb_utils.Tensor._from_wire(name, datatype, shape, data, position, position + size))
            position = wire.aligned(position + size, step)
    except UnreadableStrings as unreadable:
        return pb_utils.InferenceResponse(error=pb_utils.TritonError("".join(unreadable.args)))
    response = pb_utils.InferenceResponse(tensors)
    response._parameters = parameters
    return response


def _is_final(answer: Answer) -> bool:
    return bool(answer[0][1])


class ResponseIterator:
    """The responses of a decoupled request, as they come; once all are there, they can be gone through again."""

    def __init__(self, calls: Calls, number: int, answers: SimpleQueue[Answer], first: Answer) -> None:
        self._calls = calls
        self._number = number
        self._answers = answers
        self._responses: list[Any] = [response_in(first)]
        self._position = 0
        self._is_finished = _is_final(first)

    def __del__(self) -> None:
        if not self._is_finished:
            self._calls.drop(self._number)

    def __iter__(self) -> ResponseIterator:
        if self._is_finished and self._position >= len(self._responses):
            self._position = 0
        return self

    def __next__(self) -> Any:
        if self._position >= len(self._responses):
            if self._is_finished:
                raise StopIteration
            answer = self._answers.get()
            self._is_finished = _is_final(answer)
            self._responses.append(response_in(answer))
        self._position += 1
        return self._responses[self._position - 1]

    def cancel(self) -> None:
        """Tell the model that nobody wants more responses; those until its last one still come."""
        if not self._is_finished:
            self._calls.cancel(self._number)


class Calls:
    """The questions that have no answer yet. Safe on any thread."""

    def __init__(self, channel: Channel, instance: str, *, decoupled: bool) -> None:
        self._channel = channel
        self._instance = instance
        self._decoupled = decoupled
        self._numbers = itertools.count(1)
        # by number: what takes an answer, on the thread that reads them
        self._waiting: dict[int, Any] = {}
        self._is_open = False
        self._is_closed = False

    def open(self) -> None:
        """Allow requests: the model is initialised."""
        self._is_open = True

    def close(self) -> None:
        """Allow nothing any more, and end what waits: the model finalizes."""
        self._is_open, self._is_closed = False, True
        for number in list(self._waiting):
            self.deliver([number, 1, [_ONLY_IN_EXECUTE, 1], None, ""], b"", None)

    def deliver(self, fields: list[Any], payload: Any, block: Any) -> None:
        """Hand an answer to whoever waits for it. On the thread that reads them."""
        number, is_final = fields[:2]
        take = self._waiting.pop(number, None) if is_final else self._waiting.get(number)
        if take is not None:
            take((fields, payload, block))

    # -- requests

    def exec(self, request: Any, decoupled: bool) -> Any:
        """Run a request and wait for its response, or for the first one of several."""
        answers: SimpleQueue[Answer] = SimpleQueue()
        number = self._start(request, decoupled, answers.put)
        first = answers.get()
        if not decoupled:
            return response_in(first)
        return ResponseIterator(self, number, answers, first)

    def async_exec(self, request: Any, decoupled: bool) -> asyncio.Future[Any]:
        """Run a request; return a future of the running loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        answers: SimpleQueue[Answer] = SimpleQueue()
        has_begun = False

        def arrived(answer: Answer) -> None:
            if not future.cancelled():
                stream = decoupled and ResponseIterator(self, number, answers, answer)
                future.set_result(stream or response_in(answer))

        def take(answer: Answer) -> None:
            nonlocal has_begun
            if has_begun:
                answers.put(answer)
                return
            has_begun = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(arrived, answer)

        number = self._start(request, decoupled, take)
        future.add_done_callback(lambda done: self.drop(number) if done.cancelled() else None)
        return future

    def cancel(self, number: int) -> None:
        """Tell the node that the answers are not wanted any more; the last one still comes."""
        self._channel.tell(wire.CANCEL_CALL, number)

    def drop(self, number: int) -> None:
        """As ``cancel``, and wait for nothing. Runs wherever Python finds out that nobody waits."""
        if self._waiting.pop(number, None) is not None:
            self.cancel(number)

    def _start(self, request: Any, decoupled: bool, take: Any) -> int:
        if not self._is_open:
            raise pb_utils.TritonModelException(_ONLY_IN_EXECUTE)
        look, data = look_of(request._inputs)
        number = next(self._numbers)
        fields = [
            number,
            self._owner(),
            bool(decoupled),
            request._model_name,
            request._model_version,
            request._request_id,
            request._correlation_id,
            request._flags,
            request._timeout,
            sorted(set(request._sender._outputs)),
            request._trace._handle if request._trace is not None else 0,
        ]
        self._waiting[number] = take
        try:
            self._channel.send_result(wire.CALL, fields, (look, data, request._parameters))
        except BaseException:
            del self._waiting[number]
            raise
        return number

    def _owner(self) -> Any:
        """Return the handles of the requests that this thread works for; None means the batch that runs now."""
        handles = answering.get()
        if handles is not None:
            return handles
        if self._decoupled and threading.current_thread() is not threading.main_thread():
            return []  # a thread of the model's own: nobody knows which request it works for
        return None

    # -- other models

    def ask(self, verb: str, model: str, more: Any, files: dict[str, bytes] | None = None) -> Any:
        """Ask the node to load or unload a model, or whether one is ready, and wait for the answer.

        Raises:
            TritonModelException: with the reason of the node.
        """
        if self._is_closed:
            raise pb_utils.TritonModelException(f"{_FAILED[verb]}: the model is being unloaded.")
        files = files or {}
        answers: SimpleQueue[Answer] = SimpleQueue()
        number = next(self._numbers)
        self._waiting[number] = answers.put
        sizes = [(name, len(content)) for name, content in files.items()]
        self._channel.send(wire.ASK, [number, verb, model, more, sizes], list(files.values()))
        return self._value(answers.get(), _FAILED[verb])

    # -- metrics

    def metric(self, verb: str, number: int, details: list[Any], failure: str) -> Any:
        """Do something with a metric of the model's own and wait for the answer. Raises TritonModelException."""
        if self._is_closed:
            raise pb_utils.TritonModelException(f"{failure}: the model is being unloaded.")
        answers: SimpleQueue[Answer] = SimpleQueue()
        question = next(self._numbers)
        self._waiting[question] = answers.put
        self._channel.send(wire.METRIC, [question, verb, number, details])
        return self._value(answers.get(), failure)

    def metric_changed(self, verb: str, number: int, details: list[Any]) -> None:
        """Change a metric of the model's own; what is certain to succeed needs no answer."""
        if not self._is_closed:
            self._channel.send(wire.METRIC, [0, verb, number, details])

    def metric_dropped(self, number: int) -> None:
        """Nothing holds a family any more. Runs wherever Python finds out."""
        if not self._is_closed:
            with contextlib.suppress(OSError):
                self._channel.tell(wire.METRIC_DROPPED, number)

    def _value(self, answer: Answer, failure: str) -> Any:
        (_, _, error, value, _), _, _ = answer
        if error is None:
            return value
        sentence = f"{failure}: Failed to process the request for model '{self._instance}', message: {error[0]}"
        raise pb_utils.TritonModelException(sentence)
