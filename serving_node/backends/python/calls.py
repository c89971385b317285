"""What the model of a worker asks of the node: requests to other models, and their loading. It is not trusted."""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import orjson
import structlog

from serving_node.backends.python.link import Link, Message, WorkerGone
from serving_node.backends.python.messages import Data, error_number
from serving_node.backends.python.metrics import WorkerMetrics
from serving_node.backends.python.waiting import AskingWorker, WaitingWorkers
from serving_node.backends.python.worker import flotilla_wire as wire
from serving_node.backends.python.worker.flotilla_wire import INLINE_BYTES, WireError, aligned
from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.execution import Execution
from serving_node.core.inner_calls import InnerCalls, from_a_load
from serving_node.core.request import InferenceRequest, InferenceResponse, Parameter, RequestedOutput
from serving_node.core.tensor import Tensor
from serving_node.core.trace import RequestTrace
from serving_node.observability.model_metrics import ModelMetrics

log = structlog.get_logger(__name__)

# Of what a worker asks before the loop drives it: in initialize and in warm-up.
_LOADING_SECONDS = 3600.0
_SEND_SECONDS = 30.0
_START, _END = 1, 2
_DECOUPLED = (
    "Model {0} is using the decoupled. The current BLS request call doesn't support models using the decoupled"
    " transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled"
    " models.'"
)


@dataclass(slots=True, eq=False)
class InnerCall:
    """A request that a model has made, and whom it belongs to: ``owners`` are the outer requests, perhaps none.

    ``batch`` is the one that waits for it, None when it goes on without.
    """

    number: int
    request: InferenceRequest
    is_decoupled: bool
    owners: list[InferenceRequest]
    batch: Execution | None


class LoadChain:
    """Which model's loading waits for that of another. Used on any thread."""

    def __init__(self) -> None:
        self._waits_for: dict[str, str] = {}

    def begin(self, loading: str, wanted: str) -> None:
        """Note that ``loading`` waits for ``wanted``. Raises InferenceError INVALID_ARG when that never ends."""
        name: str | None = wanted
        while name is not None:
            if name == loading:
                sentence = f"model '{wanted}' cannot be loaded now: its loading waits for that of '{loading}'"
                raise InferenceError(ErrorCode.INVALID_ARG, sentence)
            name = self._waits_for.get(name)
        self._waits_for[loading] = wanted

    def end(self, loading: str) -> None:
        """Note that the other model is loaded, or failed."""
        self._waits_for.pop(loading, None)


class WorkerCalls:
    """The open questions of one worker. All methods on one thread at a time, that of the loop once it drives it."""

    def __init__(
        self,
        link: Link,
        door: InnerCalls,
        chain: LoadChain,
        model: str,
        metrics: WorkerMetrics | None = None,
    ) -> None:
        self.metrics = metrics or WorkerMetrics(ModelMetrics())
        self._link = link
        self._door = door
        self._chain = chain
        self._model = model
        self._never_ends: Callable[[InferenceRequest], bool] = lambda _: False
        self._leave: Callable[[], None] = lambda: None
        self._open: dict[int, InnerCall] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_writing = False
        self._is_gone = False

    def __iter__(self) -> Iterator[InnerCall]:
        return iter(list(self._open.values()))

    def __bool__(self) -> bool:
        return bool(self._open)

    def watch(self, waiting: WaitingWorkers, version: int, worker: AskingWorker) -> None:
        """Refuse requests from now on that would wait for the worker itself."""
        self._never_ends = partial(waiting.would_never_end, worker)
        self._leave = waiting.add(self._model, version, worker)

    # -- requests

    def call(
        self,
        fields: list[Any],
        tensors: list[Tensor],
        parameters: dict[str, Parameter] | None,
        owners: list[InferenceRequest],
        batch: Execution | None,
        trace: RequestTrace | None,
    ) -> None:
        """Run a request. Raises WireError when it makes no sense."""
        number, is_decoupled, model, version, identity, sequence, flags, timeout, outputs = fields
        for value, kind in ((number, int), (model, str), (version, int), (identity, str), (flags, int), (timeout, int)):
            if type(value) is not kind:
                raise WireError("a request that makes no sense")
        if type(sequence) not in (int, str) or not all(type(name) is str for name in outputs) or number in self._open:
            raise WireError("a request that makes no sense")
        request = InferenceRequest(
            model,
            "" if version == -1 else str(version),
            tensors,
            on_response=_ignore,
            id=identity,
            outputs=[RequestedOutput(name) for name in outputs],
            parameters=parameters or {},
            timeout_us=timeout,
            sequence_id=sequence,
            sequence_start=bool(flags & _START),
            sequence_end=bool(flags & _END),
            refuse_decoupled="" if is_decoupled else _DECOUPLED.format(model),
            trace=trace,
            inner=True,
        )
        call = InnerCall(number, request, bool(is_decoupled), owners, batch)
        self._open[number] = call
        if owners and all(owner.cancelled for owner in owners):
            self._end(call, _cancelled())
        elif self._never_ends(request):
            sentence = f"every instance of '{model}' waits, itself or through others, for this request to end"
            self._end(call, _refusal(model, sentence))
        else:
            self._submit(call)

    def cancel(self, number: Any) -> None:
        """The model wants no more responses of a request; the last one still comes, where somebody waits for it."""
        call = self._open.get(number)
        if call is not None:
            call.request.cancel()

    def outer_cancelled(self) -> None:
        """Some outer request was cancelled: end those that belong to nobody else, and let the model go on."""
        for call in self:
            if call.owners and all(owner.cancelled for owner in call.owners):
                call.request.cancel()
                self._end(call, _cancelled())

    def abandon(self) -> None:
        """The worker is gone, or told to go: cancel everything. Idempotent."""
        self._is_gone = True
        self._leave()
        self.metrics.close()
        self._stop_writing()
        calls, self._open = self._open, {}
        for call in calls.values():
            call.request.cancel()
            self._finish(call)

    def _submit(self, call: InnerCall) -> None:
        if not _is_on_loop():
            self._run_and_wait(call)
            return
        call.request.on_response = partial(self._answered, call)
        try:
            self._door.infer(call.request)
        except InferenceError as error:
            self._end(call, self._refused(call.request, error))

    def _run_and_wait(self, call: InnerCall) -> None:
        """Run a request of a worker that the loop does not drive yet."""
        answers: SimpleQueue[InferenceResponse] = SimpleQueue()
        request = call.request
        request.on_response = answers.put

        def submit() -> None:
            try:
                self._door.infer(request)
            except InferenceError as error:
                answers.put(InferenceResponse("", "", error=self._refused(request, error)))

        deadline = time.monotonic() + _LOADING_SECONDS
        try:
            self._door.on_loop(submit)
            while self._open.get(call.number) is call:
                self._answered(call, answers.get(timeout=max(0.0, deadline - time.monotonic())))
        except InferenceError as error:
            self._end(call, _refusal(request.model_name, error.message))
        except Empty:
            self._door.on_loop(request.cancel)
            self._end(call, _refusal(request.model_name, f"no answer within {_LOADING_SECONDS:.0f} seconds"))

    def _refused(self, request: InferenceRequest, error: InferenceError) -> InferenceError:
        """Return why a request was not taken, as Triton says it: the first thing that it looks at is readiness."""
        name = request.model_name
        try:
            is_ready = self._door.model_ready(name, request.model_version)
        except InferenceError:
            is_ready = False
        sentence = f"Failed for execute the inference request. Model '{name}' is not ready."
        return _refusal(name, error.message if is_ready else sentence)

    def _answered(self, call: InnerCall, response: InferenceResponse) -> None:
        """Pass on a response. Called by schedulers, which it must not disturb."""
        if self._open.get(call.number) is not call:
            return
        is_final = response.final or not call.is_decoupled
        if is_final:
            del self._open[call.number]
            self._finish(call)
        if not call.is_decoupled and response.flag_only:
            response = InferenceResponse("", "", error=InferenceError(ErrorCode.INTERNAL, "Unexpected empty response."))
        self._pass_on(call.number, is_final, response)

    def _end(self, call: InnerCall, error: InferenceError) -> None:
        """Answer a request that has not run, or whose end nobody waits for any more."""
        if self._open.pop(call.number, None) is not None:
            self._finish(call)
            self._pass_on(call.number, True, InferenceResponse("", "", error=error))

    @staticmethod
    def _finish(call: InnerCall) -> None:
        # or call and request would hold each other, and with them the worker's memory
        call.request.on_response = _ignore
        if call.request.trace is not None:
            call.request.trace.finish()

    # -- other models

    def ask(self, message: Message, *, is_loading: bool = False) -> None:
        """Answer a question about other models; ``is_loading``: the model asks in its initialize, and is waited for.

        Raises WireError when it makes no sense.
        """
        number, verb, model, more, files = message.fields
        if type(model) is not str or verb not in ("ready", "load", "unload"):
            raise WireError("a question that makes no sense")
        contents = _files(files, message)
        if _is_on_loop():
            task = asyncio.get_running_loop().create_task(self._ask(number, verb, model, more, contents))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        try:
            if is_loading and verb == "load":
                self._chain.begin(self._model, model)
            try:
                value = self._wait_for(lambda: self._deed(verb, model, more, contents, True))
            finally:
                if is_loading and verb == "load":
                    self._chain.end(self._model)
        except InferenceError as error:
            self._send([number, 1, [error.message, error_number(error.code)], None, ""])
        else:
            self._send([number, 1, None, value, ""])

    def _wait_for(self, deed: Callable[[], Coroutine[Any, Any, bool | None]]) -> bool | None:
        """Run something on the loop and wait for it, on another thread. Raises InferenceError."""
        result: Future[bool | None] = Future()

        def finish(task: asyncio.Task[bool | None]) -> None:
            error = CancelledError() if task.cancelled() else task.exception()
            if error is not None:
                result.set_exception(error)
            else:
                result.set_result(task.result())

        def start() -> None:
            task = asyncio.get_running_loop().create_task(deed())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(finish)

        self._door.on_loop(start)
        try:
            return result.result(_LOADING_SECONDS)
        except (TimeoutError, CancelledError) as error:
            raise InferenceError(ErrorCode.UNAVAILABLE, "there was no answer in time") from error

    async def _ask(self, number: int, verb: str, model: str, more: Any, files: dict[str, bytes]) -> None:
        try:
            value = await self._deed(verb, model, more, files)
        except InferenceError as error:
            self._send([number, 1, [error.message, error_number(error.code)], None, ""])
        except Exception as error:
            log.exception("python.question_failed", model=self._model, verb=verb, other=model)
            self._send([number, 1, [f"unexpected {type(error).__name__}", 1], None, ""])
        else:
            self._send([number, 1, None, value, ""])

    async def _deed(
        self, verb: str, model: str, more: Any, files: dict[str, bytes], is_loading: bool = False
    ) -> bool | None:
        if verb == "ready":
            return self._door.model_ready(model, str(more))
        if verb == "load":
            from_a_load.set(is_loading)
            await self._door.load(model, more if type(more) is str else None, files)
        else:
            await self._door.unload(model, more is True)
        return None

    # -- metrics

    def metric(self, message: Message) -> None:
        """Do what the model wants with a metric of its own. Raises WireError when it makes no sense."""
        question, verb, number, details = message.fields
        try:
            value = self.metrics.do(verb, number, details)
        except InferenceError as error:
            if question:
                self._send([question, 1, [error.message, error_number(error.code)], None, ""])
            return
        if question:
            self._send([question, 1, None, value, ""])

    # -- answers

    def _pass_on(self, number: int, is_final: bool, response: InferenceResponse) -> None:
        if response.error is not None:
            error = response.error
            self._send([number, int(is_final), [error.message, error_number(error.code)], None, ""])
            return
        if response.flag_only:
            self._send([number, int(is_final), None, None, ""])
            return
        parameters = orjson.dumps(response.parameters).decode() if response.parameters else ""
        outputs = [(one.name, one.datatype, one.shape, len(one.data)) for one in response.outputs]
        payload: list[Data] = []
        placed: list[tuple[int, Data]] = []
        position = 0
        if sum(size for *_, size in outputs) <= INLINE_BYTES:
            for one in response.outputs:
                payload += (one.data, bytes(-len(one.data) & 15))
        else:
            for one in response.outputs:
                placed.append((position, one.data))
                position = aligned(position + len(one.data))
        self._send([number, int(is_final), None, outputs, parameters], payload, placed, position)

    def _send(
        self,
        fields: list[Any],
        payload: list[Data] | None = None,
        placed: list[tuple[int, Data]] | None = None,
        placed_bytes: int = 0,
    ) -> None:
        """Send an answer. A worker that is gone is noticed elsewhere."""
        if self._is_gone:
            return
        link = self._link
        try:
            try:
                link.send(wire.ANSWER, fields, payload, placed, placed_bytes, link.answers)
            except (OSError, ValueError, TypeError) as error:
                sentence = f"the response cannot be passed to the model: {error}"
                link.send(wire.ANSWER, [fields[0], 1, [sentence, 1], None, ""], outbox=link.answers)
            if link.answers.unsent:
                self._send_later()
        except WorkerGone as gone:
            log.info("python.answer_lost", model=self._model, reason=str(gone))

    def _send_later(self) -> None:
        outbox = self._link.answers
        if _is_on_loop():
            if not self._is_writing:
                self._is_writing = True
                asyncio.get_running_loop().add_writer(outbox.socket.fileno(), self._flush)
            return
        poll = select.poll()
        poll.register(outbox.socket, select.POLLOUT)
        deadline = time.monotonic() + _SEND_SECONDS
        while not outbox.flush():
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise WorkerGone(f"it took no answer within {_SEND_SECONDS:.0f} seconds")

    def _flush(self) -> None:
        try:
            if not self._link.answers.flush():
                return
        except WorkerGone as gone:
            log.info("python.answer_lost", model=self._model, reason=str(gone))
        self._stop_writing()

    def _stop_writing(self) -> None:
        if self._is_writing:
            self._is_writing = False
            asyncio.get_running_loop().remove_writer(self._link.answers.socket.fileno())


def _ignore(_response: InferenceResponse) -> None:
    """Nobody waits."""


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _refusal(model: str, reason: str) -> InferenceError:
    return InferenceError(ErrorCode.INTERNAL, f"Model {model} - Error when running inference: {reason}")


def _cancelled() -> InferenceError:
    return InferenceError(ErrorCode.CANCELLED, "the request that this one belongs to was cancelled")


def _files(files: Any, message: Message) -> dict[str, bytes]:
    """Return the files of a question by name. Raises WireError."""
    data: Any = message.payload if message.block is None else memoryview(message.block)
    step = 16 if message.block is None else 64
    contents: dict[str, bytes] = {}
    position = 0
    for name, size in files:
        if type(name) is not str or type(size) is not int or size < 0 or position + size > len(data):
            raise WireError("a file that makes no sense")
        contents[name] = bytes(data[position : position + size])
        position = aligned(position + size, step)
    return contents
