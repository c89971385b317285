"""What runs batches: a thread for each instance that blocks, nothing for instances that the event loop drives."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable

import structlog

from serving_node.contract.errors import ErrorCode
from serving_node.core.backend import BackendInstance, InstanceEvents, LoopInstance
from serving_node.core.errors import InferenceError
from serving_node.core.execution import Execution
from serving_node.core.host_policy import ANYWHERE, HostPolicy
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.scheduling.batch import Batch

log = structlog.get_logger(__name__)

# Called on the instance's thread when a batch is done; returns the next batch, or None to go idle.
BatchDone = Callable[["InstanceThread", Batch, Execution], Batch | None]


class InstanceThread:
    """One instance and the thread that runs it.

    Concurrency: ``start``, ``give`` and ``stop`` are called on the loop; the instance is used by its thread only.
    A thread that is given a batch keeps taking further ones through ``on_done`` without any wake-up in between.
    """

    def __init__(self, name: str, instance: BackendInstance, host: HostPolicy = ANYWHERE) -> None:
        self.name = name
        self._instance = instance
        self._host = host
        self._on_done: BatchDone | None = None
        self._batch: Batch | None = None
        self._wake = threading.Lock()
        self._wake.acquire()
        # daemon: an engine call that never returns must not keep the process from ending
        self._runs_in = threading.Thread(target=self._run, name=f"instance {name}", daemon=True)

    def start(self, on_done: BatchDone) -> None:
        """Start the thread, idle."""
        self._on_done = on_done
        self._runs_in.start()

    def give(self, batch: Batch) -> None:
        """Hand a batch to the idle thread."""
        self._batch = batch
        self._wake.release()

    def stop(self) -> None:
        """Ask the idle thread to close its instance and end."""
        self._batch = None
        self._wake.release()

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the thread's end; blocks. Returns False when it still runs."""
        if self._runs_in.ident is not None:
            self._runs_in.join(timeout_seconds)
        return not self._runs_in.is_alive()

    def _run(self) -> None:
        on_done = self._on_done
        if on_done is None:
            return
        with contextlib.suppress(InferenceError):  # it held when the instance was made
            self._host.apply()
        while True:
            self._wake.acquire()
            batch, self._batch = self._batch, None
            if batch is None:
                self._close()
                return
            while batch is not None:
                execution = execute(self._instance, batch)
                batch = on_done(self, batch, execution)
                del execution

    def _close(self) -> None:
        try:
            self._instance.close()
        except Exception:
            log.exception("instance.close_failed", instance=self.name)


class LoopRunner:
    """One instance that the event loop drives.

    Concurrency: all methods but ``join`` are called on the loop.
    """

    def __init__(self, name: str, instance: LoopInstance) -> None:
        self.name = name
        self.instance = instance
        self._batches: deque[Batch] = deque()

    def start(
        self,
        on_done: Callable[[LoopRunner, Batch, Execution], None],
        on_responded: Callable[[InferenceRequest, InferenceResponse], None],
        on_changed: Callable[[LoopRunner], None],
    ) -> None:
        """Attach the instance to the running loop."""

        def done(execution: Execution) -> None:
            on_done(self, self._batches.popleft(), _completed(execution))

        self.instance.attach(InstanceEvents(done, on_responded, lambda: on_changed(self)))

    @property
    def busy(self) -> bool:
        """Whether a batch runs."""
        return bool(self._batches)

    @property
    def owes(self) -> bool:
        """Whether a batch runs, or a request of an earlier one has not had its final response."""
        return bool(self._batches) or self.instance.busy()

    def room(self) -> int:
        """Return how many batches the instance should be given now: one when it is idle, or enough to stay busy."""
        running, depth = len(self._batches), self.instance.depth()
        # several at once, when half of them are done: one message instead of many
        return depth - running if (2 * running <= depth or not running) and self.instance.usable() else 0

    def give(self, *batches: Batch) -> None:
        """Start batches."""
        now_ns = time.monotonic_ns()
        executions: list[Execution] = []
        for batch in batches:
            self._batches.append(batch)
            execution = Execution(batch.requests, batch.rows)
            execution.started_ns = now_ns
            executions.append(execution)
        self.instance.begin(executions)

    def stop(self) -> None:
        """End what runs, so that ``join`` can free the instance."""
        self.instance.detach()

    def join(self, timeout_seconds: float) -> bool:
        """Free the instance; blocks, for as long as the instance itself allows."""
        try:
            self.instance.close()
        except Exception:
            log.exception("instance.close_failed", instance=self.name)
        return True


def execute(instance: BackendInstance | LoopInstance, batch: Batch) -> Execution:
    """Run a batch and return its execution, which always has one result for each request.

    Whatever goes wrong in the engine fails this batch only, with INTERNAL.
    """
    execution = Execution(batch.requests, batch.rows)
    execution.started_ns = time.monotonic_ns()
    try:
        instance.execute(execution)
        if len(execution.results) != len(batch.requests):
            raise InferenceError(
                ErrorCode.INTERNAL,
                f"the backend gave {len(execution.results)} results for {len(batch.requests)} requests",
            )
    except Exception as error:
        if not isinstance(error, InferenceError):
            log.exception("instance.execute_failed", model=batch.requests[0].model_name, rows=batch.rows)
            error = InferenceError(ErrorCode.INTERNAL, str(error) or type(error).__name__)
        execution.results = [error] * len(batch.requests)
    return _completed(execution)


def _completed(execution: Execution) -> Execution:
    """Note the end of an execution; marks that the instance did not set are guessed."""
    execution.finished_ns = time.monotonic_ns()
    execution.inputs_ready_ns = execution.inputs_ready_ns or execution.started_ns
    execution.computed_ns = execution.computed_ns or execution.finished_ns
    return execution
