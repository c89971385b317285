"""How a node and its worker processes talk: datagrams on a socket pair, large tensors in shared memory.

A datagram is a prefix, a header in JSON, padding to 16 bytes, and a payload with the tensors when they are small.
Otherwise all tensors of a message lie in one block: a sealed memory file that is passed once and used again as soon
as the receiver holds no view on it. This file is used on both sides; it needs numpy and the standard library only.

Every header is a list ``[freed, dropped, block, ...]``: numbers of the receiver's blocks that the sender holds no
more; numbers of the sender's blocks that will not be used again; ``[number, size]`` of the block of this message or
null. What follows belongs to the kind of message.

The tensors of a message follow each other in the order in which it speaks of them, each at the next multiple of 16 in
a payload or of 64 in a block. What they look like is said once and then named by a number: *look* below is a number
that was explained before, or a list that explains it, ``[number, outputs, inputs]`` for a request with the names of its
outputs and ``[name, datatype, shape, size]`` of each input, and ``[number, outputs]`` for a response. A result is the
look of a response, or ``[look, parameters]``, or ``[text, code]`` for an error, or null when it comes apart.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import os
import socket
import struct
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

PREFIX = struct.Struct("<IHH")

# What is said. Node to worker, on the first socket:
START = 1  # [..., {module, args...}]: import the model and initialise it
# requests are [look, id, sequence, flags, timeout, parameters, trace] each, without what is not set at the end, or but
# the number of a look; those of all batches have handles one after the other
EXECUTE = 2  # [..., handle of the first request, batches of requests, 1 while they come one by one]
FINALIZE = 3
COMPLETE = 4  # [..., {...}]: run auto_complete_config
# Node to worker, on the second socket, which a thread of the worker reads:
PROBE = 8  # [..., number]: ask the model's is_ready()
RELEASE = 9  # [...]: nothing but freed and dropped blocks
HURRY = 11  # [...]: say which batches are over
# an answer to a CALL or ASK; outputs are [name, datatype, shape, size] each, null when the response has only its end;
# of an ASK, the value stands in the place of the outputs
ANSWER = 10  # [..., number, final, [text, code] or null, outputs, parameters]
# Worker to node:
STARTED = 16  # [..., error or null, {...}]
BATCHES = 17  # [..., inputs ready ns, computed ns, results, of each batch that is over, one after the other]
RESPONSE = 18  # [..., handle, flags, result or null]
LOG = 19  # [..., level, text, file, line]
PROBED = 20  # [..., number, ready, reason]
COMPLETED = 21  # [..., error or null, config text or null]
BATCH_FAILED = 22  # [..., inputs ready ns, computed ns, text, handles already closed]
FINALIZED = 23
CLOSED = 24  # [..., handle]: nothing holds the response sender any more
# a request to another model; owner: handles of the requests that it belongs to, null for those of the batch that runs
CALL = 25  # [..., number, owner, decoupled, model, version, id, sequence, flags, timeout, outputs, trace, result]
CANCEL_CALL = 26  # [..., number]
ASK = 27  # [..., number, verb, model, more, files]: load, unload or ready; files are [name, size] each
# a deed on a metric of the model's own; a question of 0 wants no ANSWER
METRIC = 28  # [..., question, verb, number, details]
METRIC_DROPPED = 29  # [..., number]: of a family

# How a worker ends whose interpreter has no numpy.
NO_NUMPY = 90

# How many looks of requests, and of responses, have numbers at the same time.
TABLE_ENTRIES = 256

# One byte for each request that a worker holds, at its handle modulo this: 1 when the client has left.
FLAG_SLOTS = 65536
# After them, by the worker: the handle of the first request of the batch that it began last.
BEGUN = struct.Struct("<Q")
FLAGS_BYTES = FLAG_SLOTS + BEGUN.size

# Who gives the core away and has it back only after that long shares it: staying awake takes it from others.
YIELDED_NS = 20_000

SPILLED = 1  # flag: the header itself lies in the block, the datagram says where

# A datagram must fit the socket's buffer, of which every system allows 200 KiB.
LARGEST_DATAGRAM = 96 * 1024
# Tensors of a message up to this size in all travel in the datagram: measured, copying them twice costs less than
# keeping books about a block.
INLINE_BYTES = 16 * 1024
_INLINE_HEADER = 48 * 1024

_ALIGN = 64
_SMALLEST_BLOCK = 64 * 1024
_CACHED_BYTES = 64 * 1024 * 1024

_SEALS = 1033  # fcntl.F_ADD_SEALS; older Pythons do not name them
_GET_SEALS = 1034
_SEAL_SEAL, _SEAL_SHRINK, _SEAL_GROW = 1, 2, 4
_WANTED_SEALS = _SEAL_SEAL | _SEAL_SHRINK | _SEAL_GROW


class WireError(Exception):
    """The other side sent what nobody understands."""


def aligned(position: int, to: int = _ALIGN) -> int:
    """Return the next position that is a multiple of ``to``."""
    return (position + to - 1) & -to


def block_size(size: int) -> int:
    """Return the size of the block for ``size`` bytes: few sizes, so that blocks fit again."""
    if size <= _SMALLEST_BLOCK:
        return _SMALLEST_BLOCK
    power = 1 << (size - 1).bit_length()
    if power <= 4 << 20:
        return power
    return aligned(size, power >> 3)


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_PROT_READ, _PROT_WRITE, _MAP_SHARED = 1, 2, 1


def map_memory(fd: int, size: int, *, writable: bool) -> ctypes.Array[ctypes.c_ubyte]:
    """Return the memory of a file, which is unmapped with the last reference. The file may be closed.

    Not the mmap module: its objects keep a copy of the file open, and there may be many blocks.
    """
    protection = _PROT_READ | (_PROT_WRITE if writable else 0)
    address = _libc.mmap(None, size, protection, _MAP_SHARED, fd, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    memory = (ctypes.c_ubyte * size).from_address(address)
    # not at the end of the process, where somebody may still look
    weakref.finalize(memory, _libc.munmap, address, size).atexit = False
    return memory


def _bytes_of(memory: Any) -> Any:
    """Return memory as an array of bytes, which keeps it."""
    return np.frombuffer(memory, np.uint8)


class Block:
    """One memory file of the sender. ``fd`` is -1 once it was passed."""

    __slots__ = ("array", "bytes", "fd", "number", "size")

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        self.fd = os.memfd_create("flotilla", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, size)
            fcntl.fcntl(self.fd, _SEALS, _WANTED_SEALS)
            self.array = _bytes_of(map_memory(self.fd, size, writable=True))
        except BaseException:
            self.forget_fd()
            raise
        self.bytes = memoryview(self.array)

    def forget_fd(self) -> None:
        """Close the file; the memory stays."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class BlockPool:
    """The sender's blocks. Not safe for several threads at once."""

    def __init__(self) -> None:
        self._numbers = 0
        self._used: dict[int, Block] = {}
        self._free: dict[int, list[Block]] = {}
        self._free_bytes = 0
        self.dropped: list[int] = []

    @property
    def used(self) -> int:
        """How many blocks the receiver holds."""
        return len(self._used)

    def take(self, size: int) -> Block:
        """Return a block of at least ``size`` bytes; it is used until the receiver frees it."""
        wanted = block_size(size)
        free = self._free.get(wanted)
        if free:
            block = free.pop()
            self._free_bytes -= wanted
        else:
            self._numbers += 1
            block = Block(self._numbers, wanted)
        self._used[block.number] = block
        return block

    def give_back(self, numbers: list[int]) -> None:
        """Take back what the receiver freed. Raises WireError for blocks that it does not have."""
        for number in numbers:
            block = self._used.pop(number, None)
            if block is None:
                raise WireError(f"block {number} was not passed")
            if self._free_bytes + block.size > _CACHED_BYTES:
                block.forget_fd()
                self.dropped.append(number)
                continue
            self._free.setdefault(block.size, []).append(block)
            self._free_bytes += block.size

    def take_dropped(self) -> list[int]:
        """Return the numbers of blocks that the receiver can forget."""
        dropped, self.dropped = self.dropped, []
        return dropped

    def close(self) -> None:
        """Forget everything."""
        for block in self._used.values():
            block.forget_fd()
        for blocks in self._free.values():
            for block in blocks:
                block.forget_fd()
        self._used.clear()
        self._free.clear()


class BlockMap:
    """The receiver's view of the other side's blocks.

    ``freed`` holds the numbers of blocks on which no view is left. It is filled by whichever thread drops the last
    view; only ``take_freed`` empties it.
    """

    def __init__(self, *, writable: bool) -> None:
        self._writable = writable
        self._mapped: dict[int, ctypes.Array[ctypes.c_ubyte]] = {}
        self._views: dict[int, weakref.ref[Any]] = {}
        self.freed: deque[int] = deque()
        self.freed_bytes = 0

    @property
    def viewed(self) -> int:
        """How many blocks are looked at."""
        return len(self._views)

    def attach(self, number: int, size: int, fd: int) -> None:
        """Map a new block; the file is closed. Raises WireError when it could be cut off later."""
        try:
            if fcntl.fcntl(fd, _GET_SEALS) & _WANTED_SEALS != _WANTED_SEALS or os.fstat(fd).st_size != size:
                raise WireError("a block is not sealed")
            if number in self._mapped:
                raise WireError("a block was passed twice")
            self._mapped[number] = map_memory(fd, size, writable=self._writable)
        except OSError as error:
            raise WireError(f"a block cannot be mapped: {error}") from error
        finally:
            os.close(fd)

    def view(self, number: int) -> Any:
        """Return the bytes of a block; when the last view on them is gone, the block is freed."""
        memory = self._mapped.get(number)
        if memory is None or number in self._views:
            raise WireError("an unknown block")
        base = _bytes_of(memory)
        base.flags.writeable = self._writable
        freed, views, size = self.freed, self._views, len(memory)

        def on_gone(_reference: object) -> None:
            views.pop(number, None)
            self.freed_bytes += size
            freed.append(number)

        views[number] = weakref.ref(base, on_gone)
        return base

    def take_freed(self) -> list[int]:
        """Return the numbers of blocks to give back."""
        freed = self.freed
        if not freed:
            return []
        self.freed_bytes = 0
        return [freed.popleft() for _ in range(len(freed))]

    def drop(self, numbers: list[int]) -> None:
        """Forget blocks; views on them stay valid."""
        for number in numbers:
            self._mapped.pop(number, None)


_ZEROS = [bytes(count) for count in range(16)]


def join(kind: int, header: bytes, payload: Sequence[bytes | bytearray | memoryview], flags: int = 0) -> bytes:
    """Return a datagram. The chunks of ``payload`` are already padded to 16 bytes."""
    end = 8 + len(header)
    if not payload:
        return PREFIX.pack(len(header), kind, flags) + header
    return b"".join((PREFIX.pack(len(header), kind, flags), header, _ZEROS[-end & 15], *payload))


def split(datagram: memoryview) -> tuple[int, int, memoryview, int]:
    """Return kind, flags, header and the position of the payload. Raises WireError."""
    if len(datagram) < 8:
        raise WireError("a message without a prefix")
    length, kind, flags = PREFIX.unpack_from(datagram)
    end = 8 + length
    if end > len(datagram):
        raise WireError("a message that is cut off")
    return kind, flags, datagram[8:end], (end + 15) & -16


# plain numbers: the flags of the socket module are enumerations, whose operators take microseconds
_CUT_OFF = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)
_CLOSE_ON_EXEC = int(socket.MSG_CMSG_CLOEXEC)
_ONE_FD = socket.CMSG_SPACE(array.array("i").itemsize)


def send_datagram(sock: socket.socket, datagram: bytes, fd: int = -1) -> None:
    """Send a datagram, with a file when ``fd`` is one."""
    if fd < 0:
        sock.send(datagram)
    else:
        sock.sendmsg((datagram,), ((socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", (fd,))),))


def receive_into(sock: socket.socket, buffer: bytearray, how: int = 0) -> tuple[int, int]:
    """Receive a datagram; return its length, 0 at the end, and the file that came with it or -1.

    ``how`` has further flags of the system call, such as MSG_DONTWAIT.
    """
    length, ancillary, flags, _ = sock.recvmsg_into((buffer,), _ONE_FD, _CLOSE_ON_EXEC | how)
    fd = -1
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds = array.array("i")
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
            for extra in fds[1:]:
                os.close(extra)
            fd = fds[0] if fds else -1
    if flags & _CUT_OFF:
        if fd >= 0:
            os.close(fd)
        raise WireError("a message that is too long")
    return length, fd
