"""The user's model in the worker: importing it, running batches, sending what it answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

import flotilla_metrics  # type: ignore[import-not-found]
import flotilla_wire as wire  # type: ignore[import-not-found]
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]
from flotilla_calls import Calls, answering  # type: ignore[import-not-found]
from flotilla_channel import Channel  # type: ignore[import-not-found]
from flotilla_tensor import UnreadableStrings  # type: ignore[import-not-found]

_MASK = wire.FLAG_SLOTS - 1
_FINAL = 1
_INTERNAL = 1
_INVALID_ARG = 3
# id, sequence, flags, timeout, parameters and trace of requests of which the node says no more
_UNSAID = ("", 0, 0, 0, "", None)
_CANCELLED = 7
_NOT_ITERATIVE = (
    "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to handle such"
    " a flag."
)
# Not the folder of this module, which may be compiled; frames of compiled code name its source without a folder.
_HERE = str(Path(pb_utils.__file__).resolve().parent)
_OURS = (_HERE, "flotilla_model.py", "flotilla_channel.py", "flotilla_wire.py")


def _without_unreadable(requests: list[Any]) -> tuple[list[Any], list[tuple[int, str]]]:
    """Return the requests that could be read, and places and sentences of those that could not."""
    good = [request for request in requests if type(request) is not str]
    return good, [(place, request) for place, request in enumerate(requests) if type(request) is str]


class Refused(Exception):
    """What the model did is not allowed. The text is for the client."""


def import_model(order: dict[str, Any]) -> Any:
    """Return the class of the model.

    Source: Triton imports ``<version>.<file>`` with the model's folders at the end of the search path; the code of a
    backend that is written in Python as ``model``, with the backend's folder there.
    """
    directory, code = Path(order["directory"]), Path(order["code"])
    if code.parent == directory:
        sys.path += [str(directory), str(directory.parent), _HERE]
        name = f"{directory.name}.{code.name.removesuffix('.py')}"
    else:
        sys.path += [str(code.parent), _HERE]
        name = code.stem
    # not importlib.import_module, whose own frames would show in what clients read
    __import__(name)
    return sys.modules[name].TritonPythonModel


def completed_config(order: dict[str, Any]) -> str | None:
    """Return what the model's auto_complete_config makes of the config, None when it has no such function."""
    kind = import_model(order)
    if not hasattr(kind, "auto_complete_config"):
        return None
    returned = kind.auto_complete_config(pb_utils.ModelConfig(order["config"]))
    if not isinstance(returned, pb_utils.ModelConfig):
        raise Refused(
            f"auto_complete_config function in model '{order['model']}' must return a valid pb.ModelConfig object."
        )
    return json.dumps(returned._model_config)


def encoded(response: Any, wanted: Any) -> Any:
    """Return a response as ``Channel.end_batch`` takes it, without the tensors that nobody asked for."""
    error = response._error
    if error is not None:
        return [error._message, int(error._code)]
    look: list[Any] = []
    data: list[Any] = []
    for tensor in response._output_tensors:
        name = tensor._name
        if name not in wanted:
            continue
        array = tensor._array
        datatype = tensor._datatype
        if datatype == "BYTES":
            text = pb_utils.wire_bytes(array)
            look.append((name, datatype, array.shape, len(text)))
            data.append(text)
        else:
            look.append((name, datatype, array.shape, array.nbytes))
            data.append(array)
    return tuple(look), data, response._parameters


class RequestLook:
    """What requests of one look have in common; positions are of the inputs from the first byte of a request.

    ``inputs`` of those in a payload and in a block: name, datatype, shape, start and end.
    """

    __slots__ = ("in_block", "in_payload", "outputs")

    def __init__(self, outputs: list[str], inputs: list[Any]) -> None:
        self.outputs = outputs
        self.in_payload = _laid_out(inputs, 16)
        self.in_block = _laid_out(inputs, 64)


def _laid_out(inputs: list[Any], step: int) -> tuple[list[Any], int]:
    """Return the inputs with their places, and the position after them."""
    places = []
    position = 0
    for name, datatype, shape, size in inputs:
        places.append((name, datatype, shape, position, position + size))
        position = wire.aligned(position + size, step)
    return places, position


def failure_text(error: BaseException) -> str:
    """Return an exception as clients see it: class and text, then where it was raised, innermost first."""
    if isinstance(error, Refused):
        return str(error)
    kind = type(error).__name__
    text = f"{kind}: {error}" if str(error) or not isinstance(error, pb_utils.TritonModelException) else kind
    frames: list[tuple[str, int, str]] = []
    step = error.__traceback__
    if step is None:
        return text
    while step.tb_next is not None:
        step = step.tb_next
    frames.append((step.tb_frame.f_code.co_filename, step.tb_lineno, step.tb_frame.f_code.co_name))
    frame: FrameType | None = step.tb_frame.f_back
    while frame is not None:
        frames.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    lines = [f"  {file}({line}): {name}\n" for file, line, name in frames if not file.startswith(_OURS)]
    return f"{text}\n\nAt:\n{''.join(lines)}" if lines else text


class Runtime:
    """What ``triton_python_backend_utils`` needs of the process it runs in; installed as its ``_runtime``."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def send(self, sender: Any, response: Any, flags: int) -> None:
        """Send one response of a request, or with None only its flags."""
        self._model.send(sender, response, flags)

    def forgotten(self, handle: int) -> None:
        """Nothing holds the response sender of a request any more, and it has not sent the final flag."""
        with contextlib.suppress(OSError):
            self._model.channel.forget(handle)

    def rescheduled(self) -> None:
        """A request is to run once more."""
        self._model.some_again = True

    def model_dir(self) -> str:
        """Return the folder of the version."""
        return self._model.directory

    def is_cancelled(self, handle: int) -> bool:
        """Return whether the client has left."""
        return bool(self._model.flags[handle & _MASK])

    def exec(self, request: Any, decoupled: bool) -> Any:
        """Run a request of the model on another one."""
        return self._model.calls.exec(request, decoupled)

    def async_exec(self, request: Any, decoupled: bool) -> Any:
        """As ``exec``; returns a future of the running loop."""
        return self._model.calls.async_exec(request, decoupled)

    def ask(self, verb: str, model: str, more: Any, files: dict[str, bytes] | None = None) -> Any:
        """Ask about another model, or for its loading."""
        return self._model.calls.ask(verb, model, more, files)

    def log(self, level: int, text: str, file: str = "", line: int = 0) -> None:
        """Write a line to the node's log."""
        self._model.channel.send(wire.LOG, [level, text[:65536], file, line])


class Model:
    """The initialised model and its channel."""

    def __init__(self, channel: Channel, flags: Any, order: dict[str, Any], calls: Calls) -> None:
        self.channel = channel
        self.flags = flags
        self.calls = calls
        self.instance = order["instance"]
        self.directory: str = order["directory"]
        self._name = order["model"]
        self._version = int(order["version"])
        self._decoupled = order["decoupled"]
        self._outputs = order["outputs"]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._background: set[Any] = set()
        self._some_unreadable = False
        self._iterative = order.get("iterative", False)
        self.some_again = False
        # what requests look like, by the node's numbers, and where the next one's bytes begin in its message
        self._looks: dict[int, RequestLook] = {}
        self._position = 0
        pb_utils._runtime = Runtime(self)
        flotilla_metrics._server = calls
        kind = import_model(order)
        self.user = kind()
        if hasattr(self.user, "initialize"):
            self.user.initialize(dict(order["args"]))
        self.has_probe = hasattr(self.user, "is_ready")

    # -- batches

    def run_all(self, message: list[Any]) -> None:
        """Run the batches of a message, which is emptied, and answer each as soon as it is over."""
        _, (handle, batches, _), payload, block = message
        message.clear()
        batches.reverse()
        self._position = 0
        flags = self.flags
        while batches:
            records = batches.pop()
            wire.BEGUN.pack_into(flags, wire.FLAG_SLOTS, handle)
            handles = range(handle, handle + len(records))
            handle += len(records)
            if all(flags[one & _MASK] for one in handles):
                # everybody left while the batch waited
                for record in records:
                    self._take_place(record[0] if type(record) is list else record, block)
                now_ns = time.monotonic_ns()
                self.channel.end_batch(now_ns, now_ns, [["", _CANCELLED] for _ in records], not batches)
                continue
            requests = [[self._request(one, record, payload, block) for one, record in zip(handles, records)]]  # noqa: B905
            if not batches:
                # views on the inputs end with the last batch, so that their block travels back with its answer
                del payload, block
            self._run(requests, not batches)

    def _run(self, only: list[list[Any]], is_last: bool) -> None:
        """Run a batch, which is taken out of ``only``, and answer it. What the model did wrong fails the batch."""
        requests = only.pop()
        unreadable: list[tuple[int, str]] = []
        if self._some_unreadable:
            requests, unreadable = _without_unreadable(requests)
            self._some_unreadable = False
        ready_ns = time.monotonic_ns()
        try:
            returned = self._execute(requests) if requests else None
            computed_ns = time.monotonic_ns()
            if self.some_again:
                self._check_again(requests, returned)
            results = self._results(requests, returned)
            if self.some_again:
                self._mark_again(requests, results)
            for place, sentence in unreadable:
                results.insert(place, [sentence, _INVALID_ARG])
            del returned
        except BaseException as error:
            computed_ns = time.monotonic_ns()
            text = failure_text(error)
            sentence = f"Failed to process the request(s) for model '{self.instance}', message: {text}"
            for request in requests:
                request._sender._closed = True
            pb_utils._runtime.log(2, sentence)
            self.channel.send(wire.BATCH_FAILED, [ready_ns, computed_ns, sentence])
            return
        del requests  # the last views on the inputs, if the model kept none
        self.channel.end_batch(ready_ns, computed_ns, results, is_last)

    def _execute(self, requests: list[Any]) -> Any:
        user = self.user
        try:
            execute = user.execute
        except AttributeError:
            module = sys.modules[type(user).__module__]
            raise Refused(f"Python model {module.__file__} does not implement `execute` method.") from None
        returned = execute(requests)
        if type(returned) is list or not asyncio.iscoroutine(returned):
            return returned
        if self._decoupled:
            # the coroutine's task takes this along: what it asks of other models belongs to these requests
            answering.set([request._sender._handle for request in requests])
        future = asyncio.run_coroutine_threadsafe(returned, self._event_loop())
        if not self._decoupled:
            return future.result()
        # a decoupled model is free for the next batch while it still answers this one
        self._background.add(future)
        future.add_done_callback(self._background_done)
        return None

    def _results(self, requests: list[Any], returned: Any) -> list[Any]:
        """Return the results as ``Channel.end_batch`` takes them."""
        if returned is None:
            return [None] * len(requests)
        if self._decoupled:
            raise Refused(
                f"Python model '{self.instance}' is using the decoupled mode and the execute function must return None."
            )
        if not isinstance(returned, list):
            raise Refused(f"Expected a list in the execute return, found type '{type(returned)}'.")
        if len(returned) != len(requests):
            raise Refused(
                "Number of InferenceResponse objects do not match the number of InferenceRequest objects."
                f" InferenceRequest(s) size is:{len(requests)}, and InferenceResponse(s) size is:{len(returned)}\n"
            )
        results: list[Any] = []
        for request, response in zip(requests, returned):  # noqa: B905  interpreters of models may be older
            if response is None:
                results.append(None)  # answered through its response sender
                continue
            if not isinstance(response, pb_utils.InferenceResponse):
                raise Refused(
                    "Expected an 'InferenceResponse' object in the execute function return list, found type"
                    f" '{type(response)}'."
                )
            sender = request._sender
            sender._note(response, _FINAL)
            results.append(encoded(response, sender._outputs))
        return results

    @staticmethod
    def _check_again(requests: list[Any], returned: Any) -> None:
        """Refuse a response to a request that is to run once more."""
        for request, response in zip(requests, returned or ()):  # noqa: B905  interpreters of models may be older
            if request._release_flags == pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE and response is not None:
                raise Refused(
                    "Expected a None object in the execute function return list for reschduled request, found type"
                    f" '{type(response)}'."
                )

    def _mark_again(self, requests: list[Any], results: list[Any]) -> None:
        """Say in the results which requests are to run once more."""
        self.some_again = False
        for place, request in enumerate(requests):
            if request._release_flags == pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE:
                results[place] = True if self._iterative else [_NOT_ITERATIVE, _INTERNAL]
                request._sender._closed = True

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="model's event loop", daemon=True).start()
        return self._loop

    def _background_done(self, future: Any) -> None:
        self._background.discard(future)
        error = None if future.cancelled() else future.exception()
        if error is not None:
            pb_utils._runtime.log(2, "".join(traceback.format_exception(type(error), error, error.__traceback__)))

    # -- one request

    def _request(self, handle: int, record: Any, payload: bytearray, block: Any) -> Any:
        said: Any = _UNSAID
        if type(record) is list:
            record, *said = record
            said += _UNSAID[len(said) :]
        request_id, correlation, flags, timeout, parameters, trace = said
        first, look = self._take_place(record, block)
        tensors = []
        inputs, data = (look.in_payload[0], payload) if block is None else (look.in_block[0], block)
        for name, datatype, shape, start, end in inputs:
            try:
                tensors.append(pb_utils.Tensor._from_wire(name, datatype, shape, data, first + start, first + end))
            except UnreadableStrings as error:
                self._some_unreadable = True
                text, rest = error.args
                return f"[request id: {request_id or '<id_unknown>'}] {text} for model '{self._name}'{rest}"
        sender = pb_utils.ResponseSender(handle, look.outputs, self._decoupled)
        request = pb_utils.InferenceRequest._from_wire(
            tensors, sender, request_id, correlation, self._name, self._version, flags, timeout, parameters
        )
        if trace is not None:
            request._trace = pb_utils.InferenceTrace(trace)
            request._trace._handle = handle
        return request

    def _take_place(self, said: Any, block: Any) -> tuple[int, RequestLook]:
        """Return where the bytes of the next request of a message begin, and what it looks like."""
        if type(said) is int:
            look = self._looks[said]
        else:
            number, outputs, inputs = said
            look = self._looks[number] = RequestLook(outputs or self._outputs, inputs)
        first = self._position
        self._position = first + (look.in_payload[1] if block is None else look.in_block[1])
        return first, look

    def send(self, sender: Any, response: Any, flags: int) -> None:
        """Send one response of a request, or with None only its end. On any thread."""
        result = None if response is None else encoded(response, sender._outputs)
        self.channel.send_result(wire.RESPONSE, [sender._handle, flags], result)

    def finalize(self) -> None:
        """Let the model clean up."""
        self.calls.close()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
        try:
            if hasattr(self.user, "finalize"):
                self.user.finalize()
        except BaseException as error:
            pb_utils._runtime.log(0, failure_text(error))

    def is_ready(self) -> tuple[bool, str]:
        """Ask the model whether it can answer; a wrong answer is no."""
        try:
            answer = self.user.is_ready()
            if asyncio.iscoroutine(answer):
                answer = asyncio.run_coroutine_threadsafe(answer, self._event_loop()).result()
            if not isinstance(answer, bool):
                return False, f"is_ready() must return a bool, not {type(answer)}"
            return answer, ""
        except BaseException as error:
            return False, failure_text(error)
