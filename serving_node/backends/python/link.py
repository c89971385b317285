"""The node's end of one worker process: messages out, messages in, and the blocks that they use."""

from __future__ import annotations

import os
import select
import socket
import time
from collections import deque
from typing import Any

import orjson

from serving_node.backends.python.messages import Data
from serving_node.backends.python.processes import WorkerProcess
from serving_node.backends.python.worker import flotilla_wire as wire
from serving_node.backends.python.worker.flotilla_wire import WireError

# When the worker holds nothing back of so many bytes or blocks, it is told what was freed although there is no batch.
_RELEASE_BYTES = 8 * 1024 * 1024
_RELEASE_BLOCKS = 16
_HEADER_SLACK = 64


class WorkerGone(Exception):
    """The process ended, or said what nobody understands. The text says which, for the log."""


class Message:
    """One message of a worker. ``fields`` belong to its kind; tensors are in ``block`` if there is one."""

    __slots__ = ("block", "fields", "kind", "payload")

    # written out, not made by ``dataclass``: see core.request
    def __init__(self, kind: int, fields: list[Any], payload: bytes, block: Any) -> None:
        self.kind = kind
        self.fields = fields
        self.payload = payload
        self.block = block


class Outbox:
    """One socket to a worker, and what it did not take yet: messages, each with its block if that is new to it."""

    __slots__ = ("socket", "unsent")

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self.unsent: deque[tuple[bytes, wire.Block | None]] = deque()

    def put(self, text: bytes, block: wire.Block | None) -> None:
        """Send a message, or keep it when others wait. Raises WorkerGone."""
        if not self.unsent:
            try:
                self._send(text, block)
            except BlockingIOError:
                pass
            else:
                return
        self.unsent.append((text, block))

    def flush(self) -> bool:
        """Send what waits. Returns whether nothing waits any more. Raises WorkerGone."""
        while self.unsent:
            try:
                self._send(*self.unsent[0])
            except BlockingIOError:
                return False
            self.unsent.popleft()
        return True

    def _send(self, text: bytes, block: wire.Block | None) -> None:
        try:
            wire.send_datagram(self.socket, text, -1 if block is None else block.fd)
        except BlockingIOError:
            raise
        except OSError as error:
            raise WorkerGone(str(error)) from error
        if block is not None:
            block.forget_fd()


class Link:
    """Sends and receives. Used by one thread at a time: first the loading one, then that of the event loop."""

    def __init__(self, process: WorkerProcess) -> None:
        self.process = process
        self.socket = process.data
        self._outbox = Outbox(process.data)
        # answers to what the model asks go to the worker's second thread, as its first one waits for them
        self.answers = Outbox(process.control)
        self.unsent = self._outbox.unsent
        self._control = process.control
        for end in (process.data, process.control):
            end.setblocking(False)
        self._pool = wire.BlockPool()
        self._map = wire.BlockMap(writable=False)
        self._buffer = bytearray(wire.LARGEST_DATAGRAM + 4096)
        self._view = memoryview(self._buffer)

    @property
    def blocks_in_use(self) -> tuple[int, int]:
        """How many blocks the worker holds of the node's, and the node of the worker's."""
        return self._pool.used, self._map.viewed

    def send(
        self,
        kind: int,
        fields: list[Any],
        payload: list[Data] | None = None,
        placed: list[tuple[int, Data]] | None = None,
        placed_bytes: int = 0,
        outbox: Outbox | None = None,
    ) -> None:
        """Send a message; what the socket does not take now stays in its outbox.

        Raises:
            WorkerGone: the process ended.
        """
        header: list[Any] = [self._map.take_freed(), self._pool.take_dropped(), None]
        header += fields
        if placed:
            text, block = self._place(kind, header, placed, placed_bytes)
        else:
            text, block = wire.join(kind, orjson.dumps(header), payload or []), None
            if len(text) > wire.LARGEST_DATAGRAM:
                text, block = self._spill(text, self._pool.take(len(text)), 0)
        (outbox or self._outbox).put(text, block)

    def _place(
        self, kind: int, header: list[Any], placed: list[tuple[int, Data]], placed_bytes: int
    ) -> tuple[bytes, wire.Block]:
        """Write tensors into a block; the header goes there too when it is too long for a datagram."""
        header[2] = [0, 0]
        text = orjson.dumps(header)
        is_long = len(text) > wire.LARGEST_DATAGRAM - 4096
        block = self._pool.take(placed_bytes + (len(text) + _HEADER_SLACK if is_long else 0))
        memory = block.bytes
        for position, data in placed:
            memory[position : position + len(data)] = data
        header[2] = [block.number, block.size]
        text = wire.join(kind, orjson.dumps(header), [])
        return self._spill(text, block, placed_bytes) if is_long else (text, block)

    @staticmethod
    def _spill(text: bytes, block: wire.Block, position: int) -> tuple[bytes, wire.Block]:
        block.bytes[position : position + len(text)] = text
        where = orjson.dumps([block.number, block.size, position, len(text)])
        return wire.join(0, where, [], wire.SPILLED), block

    def flush(self) -> bool:
        """Send the messages that wait, but for answers. Returns whether none waits any more. Raises WorkerGone."""
        return self._outbox.flush()

    def send_control(self, kind: int, fields: list[Any]) -> bool:
        """Say something to the worker's second thread. Returns False when it does not listen."""
        text = wire.join(kind, orjson.dumps([self._map.take_freed(), self._pool.take_dropped(), None, *fields]), [])
        try:
            self._control.send(text)
        except OSError:
            return False
        return True

    def release(self) -> None:
        """Tell the worker what was freed when it waits for much."""
        freed = self._map
        if freed.freed_bytes > _RELEASE_BYTES or len(freed.freed) > _RELEASE_BLOCKS:
            self.send_control(wire.RELEASE, [])

    def receive(self) -> Message | None:
        """Return the next message, None when there is none now (and the socket does not block).

        Raises:
            WorkerGone: the process ended or cannot be trusted any more.
        """
        try:
            length, fd = wire.receive_into(self.socket, self._buffer)
            if not length:
                raise WorkerGone("it closed its socket")
            return self._message(self._view[:length], fd)
        except BlockingIOError:
            return None
        except OSError as error:
            raise WorkerGone(str(error)) from error
        except (WireError, ValueError, TypeError) as error:
            raise WorkerGone(f"it sent a malformed message: {error}") from error

    def _message(self, datagram: memoryview, fd: int) -> Message:
        kind, flags, text, start = wire.split(datagram)
        block: Any = None
        if flags & wire.SPILLED:
            number, size, position, length = orjson.loads(text)
            block = self._block(number, size, fd)
            datagram = memoryview(bytes(memoryview(block)[position : position + length]))
            kind, flags, text, start = wire.split(datagram)
            fd = -1
        freed, dropped, place, *fields = orjson.loads(text)
        if place is not None and block is None:
            number, size = place
            block = self._block(number, size, fd)
            fd = -1
        if fd >= 0:
            os.close(fd)
        self._pool.give_back(freed)
        self._map.drop(dropped)
        return Message(kind, fields, bytes(datagram[start:]), None if place is None else block)

    def _block(self, number: int, size: int, fd: int) -> Any:
        if type(number) is not int or type(size) is not int:
            raise WireError("a block that makes no sense")
        if fd >= 0:
            self._map.attach(number, size, fd)
        return self._map.view(number)

    def receive_within(self, seconds: float) -> Message:
        """Return the next message; blocks. Raises WorkerGone, also when the time is over."""
        deadline = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise WorkerGone(f"it did not answer within {seconds:.0f} seconds")
            if poll.poll(left * 1000):
                message = self.receive()
                if message is not None:
                    return message

    def close(self) -> None:
        """End the process; blocks for some seconds at most. Views on what it sent stay valid. Idempotent."""
        self.process.close()
        self._pool.close()
        self.unsent.clear()
        self.answers.unsent.clear()
