"""A process that parses what would hold up the event loop.

Parsers keep the interpreter lock, so a thread does not help: a JSON body of 61 MiB stalls the loop for a quarter of
a second even when parsed in one.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Generic, TypeVar

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError

Result = TypeVar("Result")


class CodecPool:
    """Runs functions in another process, which is started when first needed.

    Concurrency: used on the event loop's thread; ``done`` is called there.
    """

    def __init__(self, *, deadline_seconds: float = 60.0, max_waiting: int = 16) -> None:
        self._deadline_seconds = deadline_seconds
        self._max_waiting = max_waiting
        self._waiting = 0
        self._executor: ProcessPoolExecutor | None = None

    def submit(
        self,
        function: Callable[[bytes], Result],
        data: bytes | memoryview,
        done: Callable[[Result | None, Exception | None], None],
    ) -> None:
        """Run ``function(data)`` and call ``done`` with its result or the exception it raised (one that pickles).

        Raises:
            InferenceError: UNAVAILABLE, too many are waiting.
        """
        if self._waiting >= self._max_waiting:
            raise InferenceError(ErrorCode.UNAVAILABLE, "too many large requests are being parsed")
        loop = asyncio.get_running_loop()
        if self._executor is None:
            # "spawn": a fork of a process with threads and an event loop is not safe
            context = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(max_workers=1, mp_context=context)
        try:
            future = self._executor.submit(function, bytes(data))
        except BrokenProcessPool:
            self.close()
            raise InferenceError(ErrorCode.INTERNAL, "the parsing process has ended unexpectedly") from None
        self._waiting += 1
        job: _Job[Result] = _Job(self, done, loop.call_later(self._deadline_seconds, self._expire, future))
        future.add_done_callback(lambda finished: _hand_over(loop, job, finished))

    def close(self) -> None:
        """End the process. What runs in it fails."""
        executor, self._executor = self._executor, None
        if executor is not None:
            processes = list((executor._processes or {}).values())
            executor.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()

    def _expire(self, future: Future[Result]) -> None:
        if not future.done() and not future.cancel():
            self.close()  # it runs: only the end of the process stops it, and fails what waits behind it

    def release(self) -> None:
        """One job less is waiting."""
        self._waiting -= 1


class _Job(Generic[Result]):
    """Hands one result over, on the event loop."""

    def __init__(
        self,
        pool: CodecPool,
        done: Callable[[Result | None, Exception | None], None],
        timer: asyncio.TimerHandle,
    ) -> None:
        self._pool = pool
        self._done = done
        self._timer = timer

    def finish(self, future: Future[Result]) -> None:
        self._timer.cancel()
        self._pool.release()
        if future.cancelled():
            self._done(None, InferenceError(ErrorCode.UNAVAILABLE, "parsing the request took too long"))
            return
        error = future.exception()
        if isinstance(error, BrokenProcessPool):
            self._pool.close()
            error = InferenceError(ErrorCode.INTERNAL, "the parsing process has ended unexpectedly")
        if error is not None:
            self._done(None, error if isinstance(error, Exception) else RuntimeError(repr(error)))
        else:
            self._done(future.result(), None)


def _hand_over(loop: asyncio.AbstractEventLoop, job: _Job[Result], future: Future[Result]) -> None:
    """Called on the executor's thread."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(job.finish, future)
