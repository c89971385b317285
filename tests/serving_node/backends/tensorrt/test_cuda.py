"""Calls of the CUDA runtime as they leave this process, held against a library that only listens."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from serving_node.backends.tensorrt.cuda import CudaError, LibCudart

POINTER = 0x7F00_1234_5678_9000


class Listener:
    """Notes each call with plain values, fills what is asked for, and returns the results it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.results: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cuda"):
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            if name == "cudaGetErrorString":
                return b"out of memory"
            plain = []
            for argument in arguments:
                target = getattr(argument, "_obj", None)  # what byref refers to
                if target is not None:
                    target.value = POINTER if isinstance(target, ctypes.c_void_p) else 9
                    plain.append("out")
                else:
                    plain.append(argument.value)
            self.calls.append((name, tuple(plain)))
            return self.results.get(name, 0)

        call.restype = None  # type: ignore[attr-defined]
        self.__dict__[name] = call
        return call


@pytest.fixture
def library() -> Listener:
    return Listener()


@pytest.fixture
def cuda(library: Listener) -> LibCudart:
    return LibCudart(library)


def test_addresses_keep_all_their_bits(cuda: LibCudart, library: Listener) -> None:
    assert cuda.allocate(3 << 32) == POINTER
    cuda.copy_in(POINTER, POINTER + 64, 5 << 32, POINTER + 128)
    cuda.copy_out(1, 2, 3, 4)
    assert library.calls == [
        ("cudaMalloc", ("out", 3 << 32)),
        ("cudaMemcpyAsync", (POINTER, POINTER + 64, 5 << 32, 1, POINTER + 128)),
        ("cudaMemcpyAsync", (1, 2, 3, 2, 4)),
    ]


def test_events_sleep_or_spin_and_never_measure(cuda: LibCudart, library: Listener) -> None:
    cuda.create_event(busy_wait=True)
    cuda.create_event(busy_wait=False)
    assert [arguments for _, arguments in library.calls] == [("out", 2), ("out", 3)]


def test_a_capability_is_two_attributes(cuda: LibCudart) -> None:
    assert cuda.capability(0) == "9.9"


def test_what_was_recorded_is_freed_when_it_cannot_run(cuda: LibCudart, library: Listener) -> None:
    library.results["cudaGraphInstantiateWithFlags"] = 2
    with pytest.raises(CudaError, match=r"^cudaGraphInstantiateWithFlags: out of memory$"):
        cuda.end_capture(1)
    assert [name for name, _ in library.calls][-1] == "cudaGraphDestroy"


def test_a_failed_recording_leaves_no_error_behind(cuda: LibCudart, library: Listener) -> None:
    cuda.abandon_capture(1)
    assert [name for name, _ in library.calls] == ["cudaStreamEndCapture", "cudaGraphDestroy", "cudaGetLastError"]


def test_without_a_runtime_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", no_library)
    with pytest.raises(CudaError, match=r"the CUDA runtime .* is not installed"):
        LibCudart()
