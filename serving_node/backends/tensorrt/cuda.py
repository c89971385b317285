"""The few calls of the CUDA runtime that instances need, through its C library.

The library is that which TensorRT itself has loaded or brings with it, so that no further package is needed.
Calls release the GIL.
"""

from __future__ import annotations

import ctypes
import importlib.util
from functools import cache
from pathlib import Path
from typing import Any, Protocol

_NAMES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so")
_MAJOR, _MINOR = 75, 76  # cudaDevAttrComputeCapabilityMajor, ...Minor
_NON_BLOCKING = 1  # cudaStreamNonBlocking
_BLOCKING_SYNC, _NO_TIMING = 1, 2  # cudaEventBlockingSync, cudaEventDisableTiming
_TO_DEVICE, _TO_HOST = 1, 2  # cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost
_THREAD_LOCAL = 1  # cudaStreamCaptureModeThreadLocal: calls of other threads do not end the capture


class CudaError(Exception):
    """A call failed; the text names it and says why."""


class Cuda(Protocol):
    """What is needed of CUDA. Addresses, streams, events and graphs are plain numbers. All raise ``CudaError``."""

    def set_device(self, device: int) -> None:
        """Make a GPU the current one of this thread."""

    def capability(self, device: int) -> str:
        """Return the compute capability as ``8.6``."""

    def priorities(self) -> tuple[int, int]:
        """Return the least and the greatest priority of streams; greater is a smaller number."""

    def create_stream(self, priority: int) -> int:
        """Return a stream that does not wait for the default one."""

    def destroy_stream(self, stream: int) -> None:
        """Free a stream."""

    def create_event(self, *, busy_wait: bool) -> int:
        """Return an event; ``busy_wait``: who waits for it spins."""

    def destroy_event(self, event: int) -> None:
        """Free an event."""

    def record(self, event: int, stream: int) -> None:
        """Let an event happen when the stream has come here."""

    def hold(self, stream: int, event: int) -> None:
        """Let a stream wait for an event."""

    def wait(self, event: int) -> None:
        """Block until an event has happened."""

    def synchronize(self, stream: int) -> None:
        """Block until a stream is done."""

    def allocate(self, size: int) -> int:
        """Return device memory."""

    def free(self, address: int) -> None:
        """Free device memory."""

    def allocate_host(self, size: int) -> int:
        """Return page-locked memory of the host."""

    def free_host(self, address: int) -> None:
        """Free page-locked memory."""

    def copy_in(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy from the host to the device, in the stream."""

    def copy_out(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy from the device to the host, in the stream."""

    def begin_capture(self, stream: int) -> None:
        """Record what comes in a stream instead of running it."""

    def end_capture(self, stream: int) -> int:
        """Return what was recorded, ready to run."""

    def abandon_capture(self, stream: int) -> None:
        """End a recording that failed, and forget its error."""

    def launch(self, graph: int, stream: int) -> None:
        """Run what was recorded."""

    def destroy_graph(self, graph: int) -> None:
        """Free what was recorded."""


class LibCudart:
    """The installed CUDA runtime.

    Raises:
        CudaError: there is none.
    """

    def __init__(self, library: Any = None) -> None:
        self._library: Any = library or _open()
        self._library.cudaGetErrorString.restype = ctypes.c_char_p

    def _call(self, name: str, *arguments: Any) -> None:
        result = getattr(self._library, name)(*arguments)
        if result:
            text = self._library.cudaGetErrorString(ctypes.c_int(result)) or b"unknown error"
            raise CudaError(f"{name}: {text.decode()}")

    def set_device(self, device: int) -> None:
        self._call("cudaSetDevice", ctypes.c_int(device))

    def capability(self, device: int) -> str:
        parts = []
        for attribute in (_MAJOR, _MINOR):
            value = ctypes.c_int()
            self._call("cudaDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(attribute), ctypes.c_int(device))
            parts.append(str(value.value))
        return ".".join(parts)

    def priorities(self) -> tuple[int, int]:
        least, greatest = ctypes.c_int(), ctypes.c_int()
        self._call("cudaDeviceGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest))
        return least.value, greatest.value

    def create_stream(self, priority: int) -> int:
        stream = ctypes.c_void_p()
        self._call(
            "cudaStreamCreateWithPriority",
            ctypes.byref(stream),
            ctypes.c_uint(_NON_BLOCKING),
            ctypes.c_int(priority),
        )
        return stream.value or 0

    def destroy_stream(self, stream: int) -> None:
        self._call("cudaStreamDestroy", ctypes.c_void_p(stream))

    def create_event(self, *, busy_wait: bool) -> int:
        event = ctypes.c_void_p()
        flags = _NO_TIMING if busy_wait else _NO_TIMING | _BLOCKING_SYNC
        self._call("cudaEventCreateWithFlags", ctypes.byref(event), ctypes.c_uint(flags))
        return event.value or 0

    def destroy_event(self, event: int) -> None:
        self._call("cudaEventDestroy", ctypes.c_void_p(event))

    def record(self, event: int, stream: int) -> None:
        self._call("cudaEventRecord", ctypes.c_void_p(event), ctypes.c_void_p(stream))

    def hold(self, stream: int, event: int) -> None:
        self._call("cudaStreamWaitEvent", ctypes.c_void_p(stream), ctypes.c_void_p(event), ctypes.c_uint(0))

    def wait(self, event: int) -> None:
        self._call("cudaEventSynchronize", ctypes.c_void_p(event))

    def synchronize(self, stream: int) -> None:
        self._call("cudaStreamSynchronize", ctypes.c_void_p(stream))

    def allocate(self, size: int) -> int:
        address = ctypes.c_void_p()
        self._call("cudaMalloc", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value or 0

    def free(self, address: int) -> None:
        self._call("cudaFree", ctypes.c_void_p(address))

    def allocate_host(self, size: int) -> int:
        address = ctypes.c_void_p()
        self._call("cudaHostAlloc", ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_uint(0))
        return address.value or 0

    def free_host(self, address: int) -> None:
        self._call("cudaFreeHost", ctypes.c_void_p(address))

    def copy_in(self, target: int, source: int, size: int, stream: int) -> None:
        self._copy(target, source, size, _TO_DEVICE, stream)

    def copy_out(self, target: int, source: int, size: int, stream: int) -> None:
        self._copy(target, source, size, _TO_HOST, stream)

    def _copy(self, target: int, source: int, size: int, direction: int, stream: int) -> None:
        self._call(
            "cudaMemcpyAsync",
            ctypes.c_void_p(target),
            ctypes.c_void_p(source),
            ctypes.c_size_t(size),
            ctypes.c_int(direction),
            ctypes.c_void_p(stream),
        )

    def begin_capture(self, stream: int) -> None:
        self._call("cudaStreamBeginCapture", ctypes.c_void_p(stream), ctypes.c_int(_THREAD_LOCAL))

    def end_capture(self, stream: int) -> int:
        graph, ready = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cudaStreamEndCapture", ctypes.c_void_p(stream), ctypes.byref(graph))
        try:
            self._call("cudaGraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_ulonglong(0))
        finally:
            self._call("cudaGraphDestroy", graph)
        return ready.value or 0

    def abandon_capture(self, stream: int) -> None:
        graph = ctypes.c_void_p()
        self._library.cudaStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(graph))
        if graph.value:
            self._library.cudaGraphDestroy(graph)
        self._library.cudaGetLastError()

    def launch(self, graph: int, stream: int) -> None:
        self._call("cudaGraphLaunch", ctypes.c_void_p(graph), ctypes.c_void_p(stream))

    def destroy_graph(self, graph: int) -> None:
        self._call("cudaGraphExecDestroy", ctypes.c_void_p(graph))


@cache
def cudart() -> Cuda:
    """Return the CUDA runtime of this process. Raises CudaError."""
    return LibCudart()


def _open() -> Any:
    for name in [*_NAMES, *_in_packages()]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise CudaError(f"the CUDA runtime ({_NAMES[0]}) is not installed")


def _in_packages() -> list[str]:
    """Return the runtimes that NVIDIA's packages brought, the newest first."""
    spec = importlib.util.find_spec("nvidia")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    found = [path for folder in folders for path in Path(folder).glob("*/lib/libcudart.so.*")]
    return [str(path) for path in sorted(found, reverse=True)]
