"""One instance of a Python model: a worker process, driven by the event loop, replaced when it dies.

A worker that dies is replaced at once; when that fails, or when workers die without having answered anything, after
growing pauses. Meanwhile the instance is not usable, and ``gone`` says why when the pause is long.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from serving_node.backends.python.calls import WorkerCalls
from serving_node.backends.python.exchange import Exchange
from serving_node.backends.python.link import Link, Message, WorkerGone
from serving_node.backends.python.worker import flotilla_wire as wire
from serving_node.contract.errors import ErrorCode
from serving_node.core.backend import InstanceEvents
from serving_node.core.errors import InferenceError
from serving_node.core.execution import Execution
from serving_node.core.request import InferenceRequest, InferenceResponse

log = structlog.get_logger(__name__)
model_log = structlog.get_logger("python_model")

_LONGEST_PAUSE_SECONDS = 30.0
_FINALIZE_SECONDS = 30.0
_WARM_UP_SECONDS = 3600.0
_PROBE_SECONDS = 5.0
_PROBE_EVERY_SECONDS = 1.0
# messages read in one turn of the loop: what came meanwhile is answered together, but nobody else waits long
_MESSAGES_PER_TURN = 16
# A worker that has not answered for so long is asked whether a batch is over before the one that runs.
_HURRY_SECONDS = 0.005
_HURRY_AT_MOST_EVERY_SECONDS = 1.0
# batches for which the loop may sleep, after it stayed awake for nothing or took the core from somebody
_NAPS = 64
# for so long the loop stays awake between requests that come one by one, and a worker's socket is looked at in one turn
_LONGEST_PAUSE_NS = 200_000
_LOOK_NS = 30_000
_LEVELS = {0: model_log.info, 1: model_log.warning, 2: model_log.error, 3: model_log.debug}


class Worker:
    """A live worker whose model is initialised. ``has_probe``: the model has ``is_ready``."""

    __slots__ = ("answered", "exchange", "has_probe", "link", "says_ready")

    def __init__(self, link: Link, calls: WorkerCalls, *, has_probe: bool, says_ready: bool) -> None:
        self.link = link
        self.exchange = Exchange(link, InstanceEvents(_ignore, _ignore, _ignore), calls)
        self.has_probe = has_probe
        self.says_ready = says_ready
        self.answered = False


def _ignore(*_: Any) -> None:
    """Nobody listens yet."""


class PythonInstance:
    """See ``core.backend.LoopInstance``. ``start`` makes a worker; it blocks."""

    def __init__(self, name: str, start: Callable[[], Worker], *, busy_poll_ns: int = 0) -> None:
        self.name = name
        self._start = start
        self._busy_poll_ns = busy_poll_ns
        self._awake_until_ns = 0
        self._naps = 0
        self._quiet_since_ns = 0
        self._usual_pause_ns = float(_LONGEST_PAUSE_NS)
        self._hurry_timer: asyncio.TimerHandle | None = None
        self._worker: Worker | None = start()
        self._events = InstanceEvents(_ignore, _ignore, _ignore)
        # batches that were sent to a worker which died before it began them
        self._stranded: list[Execution] = []
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
        exchange = worker.exchange
        exchange.events = InstanceEvents(done.append, responded, _ignore)
        try:
            exchange.send([execution])
            while exchange.busy:
                self._handle(worker, worker.link.receive_within(_WARM_UP_SECONDS))
        except WorkerGone as error:
            log.error("python.worker_died", instance=self.name, pid=worker.link.process.pid, reason=str(error))
            raise self._unhealthy() from error
        finally:
            exchange.events = self._events
            exchange.abandon(self._unhealthy())  # nothing is left but after a failure, and nobody listens
        for position, request in enumerate(execution.requests):
            if execution.results[position] is None:
                execution.results[position] = errors.get(id(request), [])

    # -- on the loop

    def attach(self, events: InstanceEvents) -> None:
        """Let the running loop drive the worker."""
        self._events = events
        if self._worker is not None:
            self._listen(self._worker)

    def begin(self, executions: Sequence[Execution]) -> None:
        """Send batches to the worker, in one message."""
        worker = self._worker
        loop = asyncio.get_running_loop()
        if worker is None:
            loop.call_soon(self._refuse, executions, self._unhealthy())
            return
        try:
            worker.exchange.send(executions)
        except WorkerGone as error:
            loop.call_soon(self._died, worker, str(error))
        except (OSError, ValueError, TypeError) as error:
            sentence = f"the request cannot be passed to the model: {error}"
            loop.call_soon(self._refuse, executions, InferenceError(ErrorCode.INTERNAL, sentence))
        else:
            if self._hurry_timer is None and (oldest := worker.exchange.oldest):
                self._hurry_timer = loop.call_later(_HURRY_SECONDS, self._hurry, worker, oldest, _HURRY_SECONDS)
            if worker.link.unsent:
                loop.add_writer(worker.link.socket.fileno(), self._writable, worker)
            elif self._busy_poll_ns and worker.exchange.ends_within(self._busy_poll_ns // 2):
                self._stay_awake(worker)

    def depth(self) -> int:
        """Return how many batches may be sent ahead."""
        return 1 if self._worker is None else self._worker.exchange.depth

    def usable(self) -> bool:
        """Return whether there is a live worker."""
        return self._worker is not None

    def busy(self) -> bool:
        """Return whether the worker owes a response."""
        return self._worker is not None and self._worker.exchange.busy

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
            if worker.exchange.busy:
                worker.link.process.kill()
                self._stranded += worker.exchange.abandon(self._unhealthy())
        self._refuse(self._stranded, self._unhealthy())

    # -- off the loop again

    def close(self) -> None:
        """Let the model finalize, then end the process. Blocks for at most some 30 seconds."""
        with self._lock:
            self._detached = True
            worker, self._worker = self._worker, None
        if worker is None:
            return
        link = worker.link
        worker.exchange.calls.abandon()
        with contextlib.suppress(WorkerGone):
            link.send(wire.FINALIZE, [])
            while (message := link.receive_within(_FINALIZE_SECONDS)).kind != wire.FINALIZED:
                if message.kind == wire.LOG:
                    log_message(self.name, message.fields)
            link.process.wait(1.0)
        link.close()

    # -- the worker's life

    def _handle(self, worker: Worker, message: Message) -> None:
        if message.kind == wire.LOG:
            log_message(self.name, message.fields)
        elif message.kind == wire.PROBED:
            self._probed(worker, message)
        else:
            worker.exchange.handle(message)
            worker.answered = True

    def _refuse(self, executions: Sequence[Execution], error: InferenceError) -> None:
        """Fail batches that no worker has."""
        self._stranded = []
        for execution in executions:
            execution.results = [error] * len(execution.requests)
            self._events.done(execution)

    def _listen(self, worker: Worker) -> None:
        loop = asyncio.get_running_loop()
        worker.exchange.events = self._events
        loop.add_reader(worker.link.socket.fileno(), self._readable, worker)
        loop.add_reader(worker.link.process.pidfd, self._ended, worker)
        if worker.has_probe:
            self._probe_timer = loop.call_later(_PROBE_EVERY_SECONDS, self._probe, worker)

    def _ignore(self, worker: Worker) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(worker.link.socket.fileno())
        loop.remove_writer(worker.link.socket.fileno())
        loop.remove_reader(worker.link.process.pidfd)
        for timer in (self._probe_timer, self._hurry_timer):
            if timer is not None:
                timer.cancel()
        self._probe_timer = self._hurry_timer = None
        self._probe_sent_ns = 0
        worker.exchange.calls.abandon()

    def _readable(self, worker: Worker) -> None:
        link, exchange = worker.link, worker.exchange
        try:
            for _ in range(_MESSAGES_PER_TURN):
                message = link.receive()
                if message is None:
                    break
                self._handle(worker, message)
                if not exchange.busy:
                    self._quiet_since_ns = time.monotonic_ns()
                    break  # nothing else is expected: asking would cost a system call
            link.release()
        except WorkerGone as error:
            self._died(worker, str(error))

    def _stay_awake(self, worker: Worker) -> None:
        """Keep the loop from sleeping until a short batch is over, and until the next one if such follow closely.

        To wake a core takes longer than the batch. The loop serves everybody else meanwhile. Where it does not help,
        because cores are busy, it is seldom tried.
        """
        now_ns = time.monotonic_ns()
        self._usual_pause_ns += (min(now_ns - self._quiet_since_ns, _LONGEST_PAUSE_NS) - self._usual_pause_ns) / 8
        if self._naps:
            self._naps -= 1
            return
        is_awake = self._awake_until_ns > 0
        self._awake_until_ns = now_ns + self._busy_poll_ns
        if not is_awake:
            asyncio.get_running_loop().call_soon(self._look_again, worker)

    def _look_again(self, worker: Worker) -> None:
        """Look for the answer of a batch; when it is there, wait for the next request for a moment."""
        if self._worker is not worker:
            self._awake_until_ns = 0
            return
        now_ns = time.monotonic_ns()
        if worker.exchange.busy and self._look(worker, now_ns + _LOOK_NS):
            now_ns = time.monotonic_ns()
            self._awake_until_ns = now_ns + _LONGEST_PAUSE_NS if self._usual_pause_ns < _LONGEST_PAUSE_NS / 2 else 0
        if now_ns > self._awake_until_ns:
            self._awake_until_ns = 0
            if worker.exchange.busy:
                self._naps = _NAPS
        elif self._yields():
            asyncio.get_running_loop().call_soon(self._look_again, worker)

    def _look(self, worker: Worker, until_ns: int) -> bool:
        """Read the socket of a worker again and again; the loop takes longer to see that something came.

        Returns whether the worker has answered everything.
        """
        while True:
            self._readable(worker)
            if self._worker is not worker or not worker.exchange.busy:
                return self._worker is worker
            if time.monotonic_ns() > until_ns or not self._yields():
                return False

    def _yields(self) -> bool:
        """Give the core away; False when somebody took it for long: then staying awake is tried again later."""
        before_ns = time.monotonic_ns()
        os.sched_yield()
        if time.monotonic_ns() - before_ns > wire.YIELDED_NS:
            self._awake_until_ns = 0
            self._naps = _NAPS
        return self._awake_until_ns > 0

    def _hurry(self, worker: Worker, oldest: int, waited_seconds: float) -> None:
        """Let no answer wait long for the batch after it: short batches are said to be over together."""
        self._hurry_timer = None
        now_oldest = worker.exchange.oldest
        if self._worker is not worker or not now_oldest:
            return
        seconds = _HURRY_SECONDS
        if now_oldest == oldest:
            worker.link.send_control(wire.HURRY, [])
            seconds = min(2 * waited_seconds, _HURRY_AT_MOST_EVERY_SECONDS)
        loop = asyncio.get_running_loop()
        self._hurry_timer = loop.call_later(seconds, self._hurry, worker, now_oldest, seconds)

    def _writable(self, worker: Worker) -> None:
        try:
            if worker.link.flush():
                asyncio.get_running_loop().remove_writer(worker.link.socket.fileno())
        except WorkerGone as error:
            self._died(worker, str(error))

    def _ended(self, worker: Worker) -> None:
        """The process is over: read what it still said, then replace it."""
        with contextlib.suppress(WorkerGone):
            while (message := worker.link.receive()) is not None:
                self._handle(worker, message)
        self._died(worker, worker.link.process.ending())

    def _died(self, worker: Worker, reason: str) -> None:
        if self._worker is not worker:
            return
        self._worker = None
        self._ignore(worker)
        worker.link.process.kill()
        self._failures = 0 if worker.answered else self._failures + 1
        log.error("python.worker_died", instance=self.name, pid=worker.link.process.pid, reason=reason)
        self._stranded = worker.exchange.abandon(self._unhealthy())
        self._replacing = asyncio.get_running_loop().create_task(self._replace(worker))
        self._events.changed()

    async def _replace(self, dead: Worker) -> None:
        """Make a new worker, with pauses between attempts."""
        await asyncio.to_thread(dead.link.close)
        while not self._detached:
            if self._failures > 1:
                pause = min(0.5 * 2 ** (self._failures - 2), _LONGEST_PAUSE_SECONDS)
                if pause >= 1.0:
                    self._give_up()
                await asyncio.sleep(pause)
            try:
                worker = await asyncio.to_thread(self._start_unless_detached)
            except InferenceError as error:
                self._failures = max(self._failures + 1, 2)
                log.error("python.worker_restart_failed", instance=self.name, reason=error.message)
                self._give_up()
                continue
            if worker is not None:
                log.warning("python.worker_restarted", instance=self.name, pid=worker.link.process.pid)
                self._worker, self._reason = worker, None
                self._listen(worker)
                stranded, self._stranded = self._stranded, []
                if stranded:
                    self.begin(stranded)
                self._events.changed()
            return

    def _start_unless_detached(self) -> Worker | None:
        worker = self._start()
        with self._lock:
            if not self._detached:
                return worker
        worker.exchange.calls.abandon()
        worker.link.close()
        return None

    def _give_up(self) -> None:
        """There will be no worker for a while: let nobody wait for it."""
        self._reason = self._unhealthy()
        self._refuse(self._stranded, self._reason)
        if not self._detached:
            self._events.changed()

    def _unhealthy(self) -> InferenceError:
        return InferenceError(ErrorCode.INTERNAL, f"Stub process '{self.name}' is not healthy.")

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
        write = _LEVELS.get(level, model_log.info)
    except (ValueError, TypeError) as error:
        raise WorkerGone("it sent a malformed message") from error
    write("python.logged", instance=instance, text=str(text)[:8192], at=f"{file}:{line}")
