"""A CUDA of the host's memory, as lazy as a real one: nothing in a stream runs before somebody waits for it.

Device and host memory are told apart, so that a copy in the wrong direction fails, and everything is counted.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from serving_node.backends.tensorrt.cuda import CudaError

Operation = Callable[[], None]


@dataclass
class FakeEvent:
    stream: int = 0
    has_happened: bool = True


@dataclass
class FakeCuda:
    """See ``serving_node.backends.tensorrt.cuda.Cuda``. ``limit``: bytes of device memory."""

    limit: int = 1 << 30
    gpus: int = 1
    copies: list[str] = field(default_factory=list)
    launched: int = 0
    fails: str = ""

    def __post_init__(self) -> None:
        self.device_memory: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self.host_memory: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self.streams: dict[int, deque[Operation]] = {}
        self.events: dict[int, FakeEvent] = {}
        self.graphs: dict[int, list[Operation]] = {}
        self.capturing: dict[int, list[Operation]] = {}
        self.busy_events = 0
        self._numbers = iter(range(1, 1 << 30))

    def open_things(self) -> int:
        return sum(
            map(len, (self.device_memory, self.host_memory, self.streams, self.events, self.graphs, self.capturing))
        )

    def put(self, stream: int, operation: Operation) -> None:
        """What TensorRT's own work does."""
        if stream in self.capturing:
            self.capturing[stream].append(operation)
        else:
            self.streams[stream].append(operation)

    def _check(self, name: str) -> None:
        if self.fails == name:
            raise CudaError(f"{name}: an illegal memory access was encountered")

    def set_device(self, device: int) -> None:
        if not 0 <= device < self.gpus:
            raise CudaError("cudaSetDevice: invalid device ordinal")

    def capability(self, device: int) -> str:
        return "9.0"

    def priorities(self) -> tuple[int, int]:
        return 0, -5

    def create_stream(self, priority: int) -> int:
        assert -5 <= priority <= 0
        number = next(self._numbers)
        self.streams[number] = deque()
        return number

    def destroy_stream(self, stream: int) -> None:
        del self.streams[stream]

    def create_event(self, *, busy_wait: bool) -> int:
        number = next(self._numbers)
        self.events[number] = FakeEvent()
        self.busy_events += busy_wait
        return number

    def destroy_event(self, event: int) -> None:
        del self.events[event]

    def record(self, event: int, stream: int) -> None:
        one = self.events[event]
        one.stream, one.has_happened = stream, False

        def happen() -> None:
            one.has_happened = True

        self.put(stream, happen)

    def hold(self, stream: int, event: int) -> None:
        self.put(stream, lambda: self.wait(event))

    def wait(self, event: int) -> None:
        self._check("cudaEventSynchronize")
        one = self.events[event]
        while not one.has_happened:
            self.streams[one.stream].popleft()()

    def synchronize(self, stream: int) -> None:
        while self.streams[stream]:
            self.streams[stream].popleft()()

    def allocate(self, size: int) -> int:
        used = sum(len(one) for one in self.device_memory.values())
        if used + size > self.limit:
            raise CudaError("cudaMalloc: out of memory")
        return self._taken(self.device_memory, size)

    def free(self, address: int) -> None:
        for stream in self.streams:
            self.synchronize(stream)
        del self.device_memory[address]

    def allocate_host(self, size: int) -> int:
        return self._taken(self.host_memory, size)

    def free_host(self, address: int) -> None:
        del self.host_memory[address]

    def _taken(self, memory: dict[int, ctypes.Array[ctypes.c_char]], size: int) -> int:
        assert size > 0
        one = (ctypes.c_char * size)()
        ctypes.memset(one, 0xAB, size)
        memory[ctypes.addressof(one)] = one
        return ctypes.addressof(one)

    def device_bytes(self, address: int, size: int) -> bytes:
        assert size <= len(self.device_memory[address])
        return self.device_memory[address].raw[:size]

    def write_device(self, address: int, data: bytes) -> None:
        assert len(data) <= len(self.device_memory[address])
        ctypes.memmove(address, data, len(data))

    def copy_in(self, target: int, source: int, size: int, stream: int) -> None:
        assert size <= len(self.device_memory[target])
        assert source not in self.device_memory
        self.copies.append("in")

        def copy() -> None:
            ctypes.memmove(target, source, size)

        self.put(stream, copy)

    def copy_out(self, target: int, source: int, size: int, stream: int) -> None:
        self._check("cudaMemcpyAsync")
        assert size <= len(self.device_memory[source])
        assert target not in self.device_memory
        self.copies.append("out")

        def copy() -> None:
            ctypes.memmove(target, source, size)

        self.put(stream, copy)

    def begin_capture(self, stream: int) -> None:
        self.capturing[stream] = []

    def end_capture(self, stream: int) -> int:
        number = next(self._numbers)
        self.graphs[number] = self.capturing.pop(stream)
        self._check("cudaStreamEndCapture")
        return number

    def abandon_capture(self, stream: int) -> None:
        self.capturing.pop(stream, None)
        if self.fails == "cudaStreamEndCapture":
            self.graphs.clear()

    def launch(self, graph: int, stream: int) -> None:
        self.launched += 1
        for operation in self.graphs[graph]:
            self.put(stream, operation)

    def destroy_graph(self, graph: int) -> None:
        del self.graphs[graph]
