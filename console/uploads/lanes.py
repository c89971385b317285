"""Threads and memory for the bytes of uploads: few of both, whatever number of requests there is."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import mmap
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")

_LANES = 4
_KEPT_BUFFERS = 9


class OrderedThread:
    """Calls functions one after the other in a thread of its own, which begins with the first of them.

    An executor's futures cost more than what is done here for a piece of an upload. The thread ends with the process.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._is_running = False

    def put(self, function: Callable[[], object]) -> None:
        """Call ``function`` later; it raises nothing. On the event loop."""
        if not self._is_running:
            self._is_running = True
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        self._calls.put(function)

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Return a future of what ``function`` returns or raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                found = function(*args, **kwargs)
            except BaseException as error:
                _settle_soon(loop, future, future.set_exception, error)
            else:
                _settle_soon(loop, future, future.set_result, found)

        self.put(run)
        return future

    def _run(self) -> None:
        while True:
            self._calls.get()()


def _settle_soon(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[T], settle: Callable[[V], None], value: V
) -> None:
    def settle_unless_cancelled() -> None:
        if not future.done():
            settle(value)

    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(settle_unless_cancelled)


class Lane:
    """Two threads that each do things one after the other, in the order in which they were given.

    Pieces of one upload go to one lane, so that nothing has to wait for a piece before the next one is handed over.
    """

    def __init__(self, number: int) -> None:
        self.writing = OrderedThread(f"upload-{number}-write")
        self.hashing = OrderedThread(f"upload-{number}-hash")


class Lanes:
    """Hands out lanes in turn; uploads beyond their number share them."""

    def __init__(self) -> None:
        self._turn = itertools.cycle([Lane(number) for number in range(_LANES)])

    def next(self) -> Lane:
        """Return the lane whose turn it is."""
        return next(self._turn)


class BufferPool:
    """Buffers of one size, which begin at a page. New ones cost the kernel a page at a time, so some are kept.

    Concurrency: on the event loop. A buffer that is not given back is garbage, nothing worse.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._free: list[memoryview] = []

    def take(self) -> memoryview:
        """Return a buffer with anything in it."""
        return self._free.pop() if self._free else memoryview(mmap.mmap(-1, self._size))

    def give(self, buffer: memoryview) -> None:
        """Take a buffer back that nobody uses any more."""
        if len(self._free) < _KEPT_BUFFERS:
            self._free.append(buffer)
