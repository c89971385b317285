"""Threads and memory for the bytes of uploads: few of both, whatever number of requests there is."""

from __future__ import annotations

import itertools
import mmap
from concurrent.futures import ThreadPoolExecutor

_LANES = 4
_KEPT_BUFFERS = 12


class Lane:
    """Two threads that each do things one after the other, in the order in which they were given.

    Pieces of one upload go to one lane, so that nothing has to wait for a piece before the next one is handed over.
    """

    def __init__(self, number: int) -> None:
        self.writing = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"upload-{number}-write")
        self.hashing = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"upload-{number}-hash")


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
