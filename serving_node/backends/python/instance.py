"""One instance of a Python model: a worker process, driven by the event loop, replaced when it dies.

A worker that dies is replaced at once; when that fails, or when workers die without having answered anything, after
growing pauses. Meanwhile the instance is not usable, and ``gone`` says why when the pause is long.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import structlog

from serving_node.backends.python.link import Link, Message, WorkerGone
from serving_node.backends.python.messages import Results, encode_batch
from serving_node.backends.python.worker import flotilla_wire as wire
from serving_node.backends.python.worker.flotilla_wire import WireError
from serving_node.contract.errors import ErrorCode
from serving_node.core.backend import Execution, InstanceEvents
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest, InferenceResponse

log = structlog.get_logger(__name__)
model_log = structlog.get_logger("python_model")

_FINAL = 1
_MASK = wire.FLAG_SLOTS - 1
_LONGEST_PAUSE_SECONDS = 30.0
_FINALIZE_SECONDS = 30.0
_WARM_UP_SECONDS = 3600.0
_PROBE_SECONDS = 5.0
_PROBE_EVERY_SECONDS = 1.0
_LEVELS = {0: model_log.info, 1: model_log.warning, 2: model_log.error, 3: model_log.debug}


class Worker:
    """A live worker whose model is initialised. ``has_probe``: the model has ``is_ready``."""

    __slots__ = ("answered", "flags", "has_probe", "link", "says_ready")

    def __init__(self, link: Link, *, has_probe: bool, says_ready: bool) -> None:
        self.link = link
        self.flags = link.process.flags
        self.has_probe = has_probe
        self.says_ready = says_ready
        self.answered = False


class PythonInstance:
    """See ``core.backend.LoopInstance``. ``start`` makes a worker; it blocks."""

    def __init__(self, name: str, start: Callable[[], Worker]) -> None:
        self.name = name
        self._start = start
        self._worker: Worker | None = start()
        self._handles = 0
        # requests whose responses come apart from their batch, by handle, and the flags that they use
        self._open: dict[int, InferenceRequest] = {}
        self._slots: set[int] = set()
        self._execution: Execution | None = None
        self._first = 0
        # requests of the running batch that had their final response
        self._finished: set[int] = set()
        self._events: InstanceEvents | None = None
        self._failures = 0
        self._reason: InferenceError | None = None
        self._replacing: asyncio.Task[None] | None = None
        self._detached = False
        self._lock = threading.Lock()
        self._probe_sent_ns = 0
        self._probes = 0
        self._probe_timer: asyncio.TimerHandle | None = None

    # -- before the loop

    def execute(self, execution: Execution) -> None:
        """Run a batch and wait for all its responses; for warm-up. Blocks."""
        done: list[Execution] = []
        errors: dict[int, InferenceError] = {}

        def responded(request: InferenceRequest, response: InferenceResponse) -> None:
            if response.error is not None:
                errors[id(request)] = response.error

        worker = self._worker
        if worker is None:
            raise self._unhealthy()
        self._events = InstanceEvents(done.append, responded, lambda: None)
        try:
            self._send_batch(worker, execution)
            while not done or self._open:
                self._handle(worker, worker.link.receive_within(_WARM_UP_SECONDS))
        except WorkerGone as error:
            raise InferenceError(ErrorCode.INTERNAL, self._death_text(worker, str(error))) from error
        finally:
            self._events = None
        for position, request in enumerate(execution.requests):
            if execution.results[position] is None:
                execution.results[position] = errors.get(id(request), [])

    # -- on the loop

    def attach(self, events: InstanceEvents) -> None:
        """Let the running event loop drive the worker."""
        self._events = events
        if self._worker is not None:
            self._listen(self._worker)

    def begin(self, execution: Execution) -> None:
        """Send a batch to the worker."""
        worker = self._worker
        loop = asyncio.get_running_loop()
        if worker is None:
            loop.call_soon(self._fail_batch, execution, self._unhealthy())
            return
        try:
            self._send_batch(worker, execution)
        except WorkerGone as error:
            loop.call_soon(self._died, worker, str(error))
        except (OSError, ValueError, TypeError) as error:
            loop.call_soon(
                self._fail_batch, execution, InferenceError(ErrorCode.INTERNAL, f"cannot pass it on: {error}")
            )
        else:
            if worker.link.unsent:
                loop.add_writer(worker.link.socket.fileno(), self._writable, worker)

    def usable(self) -> bool:
        """Return whether there is a live worker."""
        return self._worker is not None

    def gone(self) -> InferenceError | None:
        """Return why there will be no worker for a while."""
        return self._reason

    def ready(self) -> bool:
        """Return whether the worker lives and its model's is_ready() says so; asked every second."""
        worker = self._worker
        if worker is None:
            return False
        is_late = self._probe_sent_ns and time.monotonic_ns() - self._probe_sent_ns > _PROBE_SECONDS * 1e9
        return worker.says_ready and not is_late

    def detach(self) -> None:
        """Stop; whatever runs fails, and its process is ended."""
        with self._lock:
            self._detached = True
        worker = self._worker
        if worker is not None:
            self._ignore(worker)
            if self._execution is not None or self._open:
                worker.link.process.kill()
                self._fail_all(self._unhealthy())

    # -- off the loop again

    def close(self) -> None:
        """Let the model finalize, then end the process. Blocks for at most some 30 seconds."""
        with self._lock:
            self._detached = True
            worker, self._worker = self._worker, None
        if worker is None:
            return
        with contextlib.suppress(WorkerGone):
            worker.link.send(wire.FINALIZE, [])
            while True:
                message = worker.link.receive_within(_FINALIZE_SECONDS)
                if message.kind == wire.FINALIZED:
                    break
                if message.kind == wire.LOG:
                    log_message(self.name, message.fields)
        worker.link.process.wait(1.0)
        worker.link.close()

    # -- batches

    def _send_batch(self, worker: Worker, execution: Execution) -> None:
        requests = execution.requests
        first = self._handles + 1
        if self._slots:
            while any((first + place) & _MASK in self._slots for place in range(len(requests))):
                first += 1
        self._handles = first + len(requests) - 1
        batch = encode_batch(requests, first)
        flags = worker.flags
        for handle, request in enumerate(requests, first):
            flags[handle & _MASK] = 0
            request.on_cancel = self._cancel
        self._first = first
        self._execution = execution
        worker.link.send(wire.EXECUTE, [batch.records], batch.payload, batch.placed, batch.placed_bytes)

    def _cancel(self, request: InferenceRequest) -> None:
        """Let the model see that the client has left."""
        worker = self._worker
        handle = next((handle for handle, one in self._open.items() if one is request), 0)
        if not handle and self._execution is not None and request in self._execution.requests:
            handle = self._first + next(i for i, one in enumerate(self._execution.requests) if one is request)
        if handle and worker is not None:
            worker.flags[handle & _MASK] = 1

    def _handle(self, worker: Worker, message: Message) -> None:
        kind = message.kind
        if kind == wire.BATCH:
            self._batch_over(worker, message)
        elif kind == wire.RESPONSE:
            self._response(message)
        elif kind == wire.BATCH_FAILED:
            self._batch_failed(worker, message)
        elif kind == wire.CLOSED:
            self._closed(message)
        elif kind == wire.LOG:
            log_message(self.name, message.fields)
        elif kind == wire.PROBED:
            self._probed(worker, message)
        else:
            raise WorkerGone(f"it sent a message of unknown kind {kind}")

    def _batch_over(self, worker: Worker, message: Message) -> None:
        execution = self._execution
        try:
            ready_ns, computed_ns, encoded = message.fields
            if execution is None or len(encoded) != len(execution.requests):
                raise WireError("results of another batch")
            results = execution.results
            if encoded:
                reader = Results(message.payload, message.block)
                for place, one in enumerate(encoded):
                    if one is None:
                        results.append(None)
                        continue
                    result, parameters = reader.result(one)
                    results.append(result)
                    if parameters:
                        execution.parameters = execution.parameters or {}
                        execution.parameters[place] = parameters
            self._end(worker, execution, ready_ns, computed_ns)
        except (WireError, ValueError, TypeError) as error:
            raise WorkerGone(f"it sent a malformed message: {error}") from error

    def _batch_failed(self, worker: Worker, message: Message) -> None:
        execution = self._execution
        try:
            ready_ns, computed_ns, text = message.fields
        except ValueError as error:
            raise WorkerGone("it sent a malformed message") from error
        if execution is None:
            raise WorkerGone("it failed a batch that does not run")
        failure = InferenceError(ErrorCode.INTERNAL, str(text))
        finished = self._finished
        execution.results = [
            None if self._first + place in finished else failure for place in range(len(execution.requests))
        ]
        self._end(worker, execution, ready_ns, computed_ns)

    def _end(self, worker: Worker, execution: Execution, ready_ns: Any, computed_ns: Any) -> None:
        """Hand the batch back; what is still to come is remembered."""
        started_ns, now_ns = execution.started_ns, time.monotonic_ns()
        execution.inputs_ready_ns = min(max(int(ready_ns), started_ns), now_ns)
        execution.computed_ns = min(max(int(computed_ns), execution.inputs_ready_ns), now_ns)
        if None in execution.results:
            for place, result in enumerate(execution.results):
                handle = self._first + place
                if result is None and handle not in self._finished:
                    self._open[handle] = execution.requests[place]
                    self._slots.add(handle & _MASK)
        self._finished.clear()
        self._execution = None
        worker.answered = True
        if self._events is not None:
            self._events.done(execution)

    def _response(self, message: Message) -> None:
        try:
            handle, flags, encoded = message.fields
            final = bool(flags & _FINAL)
            response = InferenceResponse("", "", final=final)
            if encoded is None:
                response.flag_only = True
            else:
                result, parameters = Results(message.payload, message.block).result(encoded)
                if isinstance(result, InferenceError):
                    response.error = result
                else:
                    response.outputs = result
                if parameters:
                    response.parameters = parameters
            request = self._request(handle, final)
        except (WireError, ValueError, TypeError) as error:
            raise WorkerGone(f"it sent a malformed message: {error}") from error
        if request is not None and self._events is not None:
            self._events.responded(request, response)

    def _request(self, handle: int, final: bool) -> InferenceRequest | None:
        """Return the request that a response belongs to, None when it had its final one."""
        request = self._open.get(handle)
        if request is not None:
            if final:
                del self._open[handle]
                self._slots.discard(handle & _MASK)
            return request
        execution = self._execution
        place = handle - self._first
        if execution is None or not 0 <= place < len(execution.requests) or handle in self._finished:
            return None
        if final:
            self._finished.add(handle)
        return execution.requests[place]

    def _closed(self, message: Message) -> None:
        """Nothing in the worker can answer the request any more: it ends here."""
        (handle,) = message.fields
        request = self._request(handle, True)
        if request is not None and self._events is not None:
            self._events.responded(request, InferenceResponse("", "", final=True, flag_only=True))

    def _fail_batch(self, execution: Execution, error: InferenceError) -> None:
        self._execution = None
        finished = self._finished
        execution.results = [
            None if self._first + place in finished else error for place in range(len(execution.requests))
        ]
        finished.clear()
        if self._events is not None:
            self._events.done(execution)

    def _fail_all(self, error: InferenceError) -> None:
        if self._execution is not None:
            self._fail_batch(self._execution, error)
        waiting, self._open = self._open, {}
        self._slots.clear()
        for request in waiting.values():
            if self._events is not None:
                self._events.responded(request, InferenceResponse("", "", error=error))

    # -- the worker's life

    def _listen(self, worker: Worker) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(worker.link.socket.fileno(), self._readable, worker)
        loop.add_reader(worker.link.process.pidfd, self._ended, worker)
        if worker.has_probe:
            self._probe_timer = loop.call_later(_PROBE_EVERY_SECONDS, self._probe, worker)

    def _ignore(self, worker: Worker) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(worker.link.socket.fileno())
        loop.remove_writer(worker.link.socket.fileno())
        loop.remove_reader(worker.link.process.pidfd)
        if self._probe_timer is not None:
            self._probe_timer.cancel()
            self._probe_timer = None
        self._probe_sent_ns = 0

    def _readable(self, worker: Worker) -> None:
        link = worker.link
        try:
            message = link.receive()
            if message is not None:
                self._handle(worker, message)
                link.release()
        except WorkerGone as error:
            self._died(worker, str(error))

    def _writable(self, worker: Worker) -> None:
        try:
            if worker.link.flush():
                asyncio.get_running_loop().remove_writer(worker.link.socket.fileno())
        except WorkerGone as error:
            self._died(worker, str(error))

    def _ended(self, worker: Worker) -> None:
        """The process is over: read what it still said, then replace it."""
        try:
            while (message := worker.link.receive()) is not None:
                self._handle(worker, message)
        except WorkerGone:
            pass
        self._died(worker, worker.link.process.ending())

    def _died(self, worker: Worker, reason: str) -> None:
        if self._worker is not worker:
            return
        self._worker = None
        self._ignore(worker)
        worker.link.process.kill()
        self._failures = 0 if worker.answered else self._failures + 1
        log.error("python.worker_died", instance=self.name, pid=worker.link.process.pid, reason=reason)
        error = self._unhealthy()
        self._fail_all(error)
        self._replacing = asyncio.get_running_loop().create_task(self._replace(worker))

    async def _replace(self, dead: Worker) -> None:
        """Make a new worker, with pauses between attempts."""
        await asyncio.to_thread(dead.link.close)
        while not self._detached:
            if self._failures > 1:
                pause = min(0.5 * 2 ** (self._failures - 2), _LONGEST_PAUSE_SECONDS)
                if pause >= 1.0:
                    self._change(None, self._unhealthy())
                await asyncio.sleep(pause)
            try:
                worker = await asyncio.to_thread(self._start_unless_detached)
            except InferenceError as error:
                self._failures += 1
                log.error("python.worker_restart_failed", instance=self.name, reason=error.message)
                self._change(None, self._unhealthy())
                continue
            if worker is not None:
                log.warning("python.worker_restarted", instance=self.name, pid=worker.link.process.pid)
                self._listen(worker)
                self._change(worker, None)
            return

    def _start_unless_detached(self) -> Worker | None:
        worker = self._start()
        with self._lock:
            if not self._detached:
                return worker
        worker.link.close()
        return None

    def _change(self, worker: Worker | None, reason: InferenceError | None) -> None:
        self._worker, self._reason = worker, reason
        if self._events is not None and not self._detached:
            self._events.changed()

    def _unhealthy(self) -> InferenceError:
        return InferenceError(
            ErrorCode.INTERNAL,
            f"Failed to process the request(s) for model '{self.name}', message:"
            f" Stub process '{self.name}' is not healthy.",
        )

    def _death_text(self, worker: Worker, reason: str) -> str:
        return f"Stub process '{self.name}' is not healthy: {reason}"

    # -- readiness

    def _probe(self, worker: Worker) -> None:
        if self._worker is not worker:
            return
        if not self._probe_sent_ns:
            self._probes += 1
            self._probe_sent_ns = time.monotonic_ns()
            worker.link.send_control(wire.PROBE, [self._probes])
        self._probe_timer = asyncio.get_running_loop().call_later(_PROBE_EVERY_SECONDS, self._probe, worker)

    def _probed(self, worker: Worker, message: Message) -> None:
        try:
            _number, ready, reason = message.fields
        except ValueError as error:
            raise WorkerGone("it sent a malformed message") from error
        self._probe_sent_ns = 0
        if worker.says_ready != (ready is True):
            log.warning("python.readiness_changed", instance=self.name, ready=ready is True, reason=str(reason)[:500])
        worker.says_ready = ready is True


def log_message(instance: str, fields: list[Any]) -> None:
    """Log what a model said through pb_utils.Logger."""
    try:
        level, text, file, line = fields
        _LEVELS.get(level, model_log.info)(
            "python.logged", instance=instance, text=str(text)[:8192], at=f"{file}:{line}"
        )
    except (ValueError, TypeError) as error:
        raise WorkerGone("it sent a malformed message") from error
