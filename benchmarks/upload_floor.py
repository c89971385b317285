"""What the steps of an upload cost alone: the least that a sender and a receiver on these processors can take."""

from __future__ import annotations

import hashlib
import mmap
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from xxhash import xxh3_128

_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Floor:
    """Processor seconds for a GB of each step. Sender: read, XXH3, send; receiver: receive, both digests, write."""

    read: float
    send: float
    receive: float
    xxh3: float
    sha256: float
    write: float

    @property
    def seconds(self) -> float:
        """Return the least time for a GB: all of it shared by the processors, no faster than its longest step."""
        total = self.read + self.send + self.receive + 2 * self.xxh3 + self.sha256 + self.write
        return max(total / len(os.sched_getaffinity(0)), self.sha256)

    def __str__(self) -> str:
        steps = ", ".join(f"{name} {getattr(self, name):.2f}" for name in self.__slots__)
        return f"{steps} CPU s/GB | at best {self.sha256 / self.seconds:.2f} of SHA-256 alone"


def measure(file: Path, size: int) -> Floor:
    """Take the first ``size`` bytes of ``file``, which are in the page cache; a file beside it is written."""
    piece = memoryview(mmap.mmap(-1, _PIECE))
    count = size // _PIECE

    def for_a_gb(step: Callable[[], object]) -> float:
        start = time.thread_time()
        for _turn in range(count):
            step()
        return (time.thread_time() - start) * 1e9 / (count * _PIECE)

    with file.open("rb", buffering=0) as source:
        read = for_a_gb(lambda: source.readinto(piece))
    first, second = xxh3_128(), hashlib.sha256()
    send, receive = _loopback(piece, for_a_gb)
    return Floor(
        read=read,
        send=send,
        receive=receive,
        xxh3=for_a_gb(lambda: first.update(piece)),
        sha256=for_a_gb(lambda: second.update(piece)),
        write=_write(file.with_suffix(".floor"), piece, count, for_a_gb),
    )


def _loopback(piece: memoryview, for_a_gb: Callable[[Callable[[], object]], float]) -> tuple[float, float]:
    taken: list[float] = []
    into = memoryview(mmap.mmap(-1, _PIECE))

    def take(connection: socket.socket) -> None:
        taken.append(for_a_gb(lambda: connection.recv_into(into, _PIECE, socket.MSG_WAITALL)))

    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as sender:
        receiver, _address = listener.accept()
        with receiver:
            thread = threading.Thread(target=take, args=(receiver,))
            thread.start()
            sent = for_a_gb(lambda: sender.sendall(piece))
            thread.join()
    return sent, taken[0]


def _write(path: Path, piece: memoryview, count: int, for_a_gb: Callable[[Callable[[], object]], float]) -> float:
    """Past the page cache where the file system can do that."""
    offset = 0

    def write() -> None:
        nonlocal offset
        offset += os.pwrite(descriptor, piece, offset)

    flags = os.O_WRONLY | os.O_CREAT
    try:
        descriptor = os.open(path, flags | os.O_DIRECT)
    except OSError:
        descriptor = os.open(path, flags)
    try:
        os.posix_fallocate(descriptor, 0, count * _PIECE)
        return for_a_gb(write)
    finally:
        os.close(descriptor)
        path.unlink()
