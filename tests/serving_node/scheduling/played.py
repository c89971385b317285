"""A scheduler's world without threads and without time: instances, a clock and a loop that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from serving_node.contract.errors import ErrorCode
from serving_node.core.backend import InstanceEvents
from serving_node.core.errors import InferenceError
from serving_node.core.execution import Execution
from serving_node.scheduling import instances, scheduler
from serving_node.scheduling.batch import Batch
from serving_node.scheduling.instances import InstanceThread, LoopRunner


class PlayedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only by ``advance``, and whose threads run at once."""

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__()

    def time(self) -> float:
        return self.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = self.create_future()
        future.set_result(func(*args))
        return future

    def settle(self) -> None:
        """Run everything that is due now."""

        async def turns() -> None:
            for _ in range(12):
                await asyncio.sleep(0)

        self.run_until_complete(turns())

    def advance(self, seconds: float) -> None:
        """Let time pass; timers fire on the way, each at its time."""
        end = self.now + seconds
        for _ in range(1000):
            due = [timer.when() for timer in self._scheduled if not timer.cancelled() and timer.when() <= end]  # type: ignore[attr-defined]
            self.now = max(self.now, min(due, default=end))
            self.settle()
            if not due:
                return
        raise AssertionError("timers without end")

    def clock(self) -> Any:
        """Return what stands in for the module ``time``."""
        return SimpleNamespace(monotonic_ns=lambda: round(self.now * 1e9), monotonic=lambda: self.now)


def play_time(monkeypatch: Any, loop: PlayedLoop) -> None:
    """Let the scheduler live by the time of ``loop``."""
    for module in (scheduler, instances):
        monkeypatch.setattr(module, "time", loop.clock())


class PlayedThread(InstanceThread):
    """An instance thread that is none: the test ends its batches."""

    def __init__(self, name: str, began: Callable[[Batch], None]) -> None:
        self.name = name
        self.began = began
        self.batch: Batch | None = None
        self.stopped = False
        self.lives = True
        self._done: Any = None

    def start(self, on_done: Any) -> None:
        self._done = on_done

    def give(self, batch: Batch) -> None:
        assert self.batch is None and not self.stopped, "given to an instance that is not idle"
        self.batch = batch
        self.began(batch)

    def stop(self) -> None:
        self.stopped = True

    def join(self, timeout_seconds: float) -> bool:
        return True

    @property
    def running(self) -> list[Batch]:
        return [] if self.batch is None else [self.batch]

    def finish(self, error: InferenceError | None) -> None:
        """End the batch; the next one may follow at once, as on a real thread."""
        batch, self.batch = self.batch, None
        assert batch is not None
        self.batch = self._done(self, batch, _executed(batch, error))
        if self.batch is not None:
            self.began(self.batch)


class PlayedRunner(LoopRunner):
    """An instance that the loop drives, with the test in the place of the process."""

    def __init__(self, name: str, began: Callable[[Batch], None], depth: int = 1) -> None:
        self.process = _Process(depth)
        super().__init__(name, self.process)
        self.began = began
        self.stopped = False

    def give(self, *batches: Batch) -> None:
        assert not self.stopped and self.process.usable()
        super().give(*batches)
        for batch in batches:
            self.began(batch)

    def stop(self) -> None:
        self.stopped = True
        super().stop()

    @property
    def lives(self) -> bool:
        return self.process.lives

    @property
    def running(self) -> list[Batch]:
        return list(self._batches)

    def finish(self, error: InferenceError | None) -> None:
        execution = self.process.executions.pop(0)
        execution.results = _results(len(execution.requests), error)
        self.process.events.done(execution)

    def die(self, reason: InferenceError | None) -> None:
        """End the process, and all that it runs; with a reason none will be back soon."""
        self.process.lives, self.process.reason = False, reason
        self.process.fail()
        self.process.events.changed()

    def come_back(self) -> None:
        self.process.lives, self.process.reason = True, None
        self.process.events.changed()


class _Process:
    def __init__(self, depth: int) -> None:
        self.executions: list[Execution] = []
        self.lives = True
        self.reason: InferenceError | None = None
        self._depth = depth
        self.events = InstanceEvents(print, print, print)

    def execute(self, execution: Execution) -> None:
        raise AssertionError("only for warm-up")

    def attach(self, events: InstanceEvents) -> None:
        self.events = events

    def begin(self, executions: Sequence[Execution]) -> None:
        self.executions += executions

    def depth(self) -> int:
        return self._depth

    def usable(self) -> bool:
        return self.lives

    def busy(self) -> bool:
        return bool(self.executions)

    def gone(self) -> InferenceError | None:
        return self.reason

    def ready(self) -> bool:
        return self.lives

    def fail(self) -> None:
        executions, self.executions = self.executions, []
        for execution in executions:
            execution.results = _results(len(execution.requests), InferenceError(ErrorCode.INTERNAL, "it died"))
            self.events.done(execution)

    def detach(self) -> None:
        self.fail()

    def close(self) -> None:
        self.lives = False


def _results(count: int, error: InferenceError | None) -> list[Any]:
    return [error if error is not None else [] for _ in range(count)]


def _executed(batch: Batch, error: InferenceError | None) -> Execution:
    execution = Execution(batch.requests, batch.rows)
    execution.results = _results(len(batch.requests), error)
    return instances._completed(execution)
