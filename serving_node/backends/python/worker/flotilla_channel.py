"""The worker's end of its connection to the node. Needs numpy and the standard library only."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import flotilla_wire as wire  # type: ignore[import-not-found]
import numpy as np


def _json_writer() -> Any:
    """Return a function from lists to JSON bytes: the C encoder without what json.dumps does around it."""
    try:
        from json.encoder import c_make_encoder, encode_basestring_ascii  # type: ignore[attr-defined]

        encode = c_make_encoder(None, None, encode_basestring_ascii, None, ":", ",", False, False, True)
        encode([1], 0)
        return lambda value: "".join(encode(value, 0)).encode()
    except Exception:
        return lambda value: json.dumps(value, separators=(",", ":")).encode()


def _json_reader() -> Any:
    """Return a function from JSON bytes, as the node writes them, to lists: the C scanner without json.loads."""
    scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
    return lambda text: scan(text.decode(), 0)[0]


# So many short batches are said to be over in one message, and the first of them waits no longer than that for others.
_TOGETHER = 4
_LONGEST_WAIT_NS = 200_000
# messages for which this process sleeps after it took the core from somebody
_NAPS = 64


class Channel:
    """The worker's end of the sockets, and its blocks. ``send`` may be called from any thread."""

    def __init__(self, data: socket.socket, control: socket.socket) -> None:
        self.data = data
        self.control = control
        self._lock = threading.Lock()
        # kinds and numbers of messages that could not be sent where Python came upon them
        self._forgotten: deque[tuple[int, int]] = deque()
        self._pool = wire.BlockPool()
        self._map = wire.BlockMap(writable=True)
        self._buffer = bytearray(wire.LARGEST_DATAGRAM + 4096)
        self._view = memoryview(self._buffer)
        # Whether requests come one by one: nobody else needs the core then while this process waits for the next.
        self.is_one_by_one = False
        self._busy_poll_ns = 0
        self._naps = 0
        self._usual_wait_ns = 0.0
        # what responses look like: its number, and how many bytes they have
        self._looks: dict[Any, tuple[int, int]] = {}
        # batches that are over, which the node does not know yet, and their data: copied, as the model may change them
        self._ended: list[Any] = []
        self._ended_data: list[Any] = []
        self._ended_bytes = 0
        self._to_json = _json_writer()
        self._from_json = _json_reader()

    def poll_for(self, time_ns: int) -> None:
        """Look for messages without sleeping for that long, while they usually come sooner; 0 for never."""
        self._busy_poll_ns = time_ns
        self._usual_wait_ns = 4.0 * time_ns

    def receive(self) -> list[Any] | None:
        """Return kind, fields, payload and block of the next message, whose tensors are in the block if there is one;
        None at the end.
        """
        length, fd = self._next()
        return self._read(self._view[:length], fd) if length else None

    def receive_control(self, buffer: bytearray) -> list[Any] | None:
        """Return the next message on the second socket, as ``receive`` does. On one thread only."""
        length, fd = wire.receive_into(self.control, buffer)
        return self._read(memoryview(buffer)[:length], fd) if length else None

    def _read(self, datagram: memoryview, fd: int) -> list[Any]:
        kind, flags, text, start = wire.split(datagram)
        block = None
        if flags & wire.SPILLED:
            number, size, position, length = self._from_json(bytes(text))
            block = self._block(number, size, fd)
            datagram = memoryview(bytes(memoryview(block)[position : position + length]))
            kind, flags, text, start = wire.split(datagram)
        freed, dropped, place, *fields = self._from_json(bytes(text))
        if place is not None and block is None:
            block = self._block(place[0], place[1], fd)
        if freed or dropped:
            self.freed(freed, dropped)
        return [kind, fields, bytearray(datagram[start:]), None if place is None else block]

    def _next(self) -> Any:
        """Return length and file of the next datagram.

        A process that sleeps is woken by the node, which costs both more than a short batch takes. Others that want
        the core get it all the same.
        """
        longest_ns = self._busy_poll_ns
        if not longest_ns:
            return wire.receive_into(self.data, self._buffer)
        began_ns = now_ns = time.monotonic_ns()
        received = None
        if self._naps:
            self._naps -= 1
        elif self.is_one_by_one and self._usual_wait_ns < longest_ns:
            while received is None and now_ns - began_ns < longest_ns:
                try:
                    received = wire.receive_into(self.data, self._buffer, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    before_ns = time.monotonic_ns()
                    os.sched_yield()
                    now_ns = time.monotonic_ns()
                    if now_ns - before_ns > wire.YIELDED_NS:
                        self._naps = _NAPS
                        break
        if received is None:
            received = wire.receive_into(self.data, self._buffer)
            now_ns = time.monotonic_ns()
        self._usual_wait_ns += (min(now_ns - began_ns, 4 * longest_ns) - self._usual_wait_ns) / 8
        return received

    def _block(self, number: int, size: int, fd: int) -> Any:
        if fd >= 0:
            self._map.attach(number, size, fd)
        return self._map.view(number)

    def freed(self, freed: list[int], dropped: list[int]) -> None:
        """Note what the node said about blocks."""
        with self._lock:
            self._pool.give_back(freed)
            self._map.drop(dropped)

    def send(self, kind: int, fields: list[Any], data: Sequence[Any] = ()) -> None:
        """Send a message without results; perhaps with data."""
        with self._lock:
            if self._ended:
                self._tell_ended()
            self._send(kind, [self._map.take_freed(), self._pool.take_dropped(), None, *fields], data)
        if self._forgotten:
            self._tell_forgotten()

    def send_result(self, kind: int, fields: list[Any], result: Any) -> None:
        """Send a message that ends with a result; see ``end_batch``."""
        with self._lock:
            if self._ended:
                self._tell_ended()
            data: list[Any] = []
            said, _ = self._said((result,), data)
            self._send(kind, [self._map.take_freed(), self._pool.take_dropped(), None, *fields, *said], data)
        if self._forgotten:
            self._tell_forgotten()

    def end_batch(self, ready_ns: int, computed_ns: int, results: list[Any], is_last: bool) -> None:
        """Say that a batch is over: at once when it is the last one, else perhaps together with those that follow.

        Each result is None, True for a request that is to run once more, ``[text, code]``, or a tuple of the look of a
        response, its data (arrays or bytes) and its parameters.
        """
        with self._lock:
            data: list[Any] = []
            said, size = self._said(results, data)
            ended = self._ended
            ended += (ready_ns, computed_ns, said)
            self._ended_bytes += size
            if (
                is_last
                or self._ended_bytes > wire.INLINE_BYTES
                or len(ended) >= 3 * _TOGETHER
                or computed_ns - ended[1] > _LONGEST_WAIT_NS
            ):
                self._ended_data += data
                self._tell_ended()
            else:
                self._ended_data += [part if type(part) is bytes else part.tobytes() for part in data]
        if self._forgotten:
            self._tell_forgotten()

    def hurry(self) -> None:
        """Say now which batches are over."""
        with self._lock:
            if self._ended:
                self._tell_ended()

    def _tell_ended(self) -> None:
        ended, data = self._ended, self._ended_data
        self._ended, self._ended_data, self._ended_bytes = [], [], 0
        self._send(wire.BATCHES, [self._map.take_freed(), self._pool.take_dropped(), None, ended], data)

    def _said(self, results: Sequence[Any], data: list[Any]) -> tuple[list[Any], int]:
        """Return what is said of results, and the bytes of their data, which are added to ``data``."""
        said: list[Any] = []
        size = 0
        for result in results:
            if type(result) is not tuple:
                said.append(result)
                continue
            look, parts, parameters = result
            data += parts
            known = self._looks.get(look)
            if known is None:
                number, length = known = self._new_look(look)
                said.append([[number, look], parameters])
            else:
                number, length = known
                said.append([number, parameters] if parameters else number)
            size += length
        return said, size

    def _new_look(self, look: Any) -> tuple[int, int]:
        if len(self._looks) >= wire.TABLE_ENTRIES:
            self._looks.clear()
        known = self._looks[look] = len(self._looks), sum(tensor[3] for tensor in look)
        return known

    def forget(self, handle: int) -> None:
        """Tell the node that nothing can answer a request any more."""
        self.tell(wire.CLOSED, handle)

    def tell(self, kind: int, number: int) -> None:
        """Send a message that has but a number.

        For what Python finds out anywhere, when it frees an object: also amid a ``send`` of the same thread.
        """
        self._forgotten.append((kind, number))
        self._tell_forgotten()

    def _tell_forgotten(self) -> None:
        while self._forgotten and self._lock.acquire(blocking=False):
            try:
                kind, number = self._forgotten.popleft()
                if self._ended:
                    self._tell_ended()
                self._send(kind, [self._map.take_freed(), self._pool.take_dropped(), None, number], ())
            finally:
                self._lock.release()

    def _send(self, kind: int, header: list[Any], data: Sequence[Any]) -> None:
        block = None
        total = 0
        for part in data:
            total += len(part) if type(part) is bytes else part.nbytes
        if total <= wire.INLINE_BYTES:
            payload: list[Any] = []
            for part in data:
                text = part if type(part) is bytes else part.tobytes()
                payload.append(text)
                if len(text) & 15:
                    payload.append(bytes(-len(text) & 15))
            datagram = wire.join(kind, self._to_json(header), payload)
            if len(datagram) > wire.LARGEST_DATAGRAM:
                block = self._pool.take(len(datagram))
                datagram = self._spill(datagram, block, 0)
        else:
            places, end = _places(data)
            header[2] = [0, 0]
            length = len(self._to_json(header))
            is_long = length > wire.LARGEST_DATAGRAM - 4096
            block = self._pool.take(end + (length + 64 if is_long else 0))
            _fill(block, data, places)
            header[2] = [block.number, block.size]
            datagram = wire.join(kind, self._to_json(header), [])
            if is_long:
                datagram = self._spill(datagram, block, end)
        wire.send_datagram(self.data, datagram, -1 if block is None else block.fd)
        if block is not None:
            block.forget_fd()

    def _spill(self, datagram: bytes, block: wire.Block, position: int) -> Any:
        block.bytes[position : position + len(datagram)] = datagram
        where = self._to_json([block.number, block.size, position, len(datagram)])
        return wire.join(0, where, [], wire.SPILLED)


def _places(data: Sequence[Any]) -> tuple[list[tuple[int, int]], int]:
    """Return position and size of each part in a block, and where they end."""
    places: list[tuple[int, int]] = []
    end = 0
    for part in data:
        size = len(part) if type(part) is bytes else part.nbytes
        places.append((end, size))
        end = wire.aligned(end + size)
    return places, end


def _fill(block: wire.Block, data: Sequence[Any], places: Sequence[tuple[int, int]]) -> None:
    whole = block.array
    for part, (start, size) in zip(data, places):  # noqa: B905  interpreters of models may be older
        if type(part) is bytes:
            block.bytes[start : start + size] = part
        elif size:
            # one copy, also of arrays that are not contiguous
            np.copyto(whole[start : start + size].view(part.dtype).reshape(part.shape), part)
