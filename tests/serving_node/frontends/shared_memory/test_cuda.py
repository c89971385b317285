"""CUDA regions: without a driver as Triton answers without a device, with one by a driver made of bytes."""

from __future__ import annotations

import subprocess
import sys
from ctypes.util import find_library

import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.tensor import Tensor
from serving_node.frontends.shared_memory import HANDLE_BYTES, RegionKind, SharedMemory, Slice, cuda
from serving_node.frontends.shared_memory.cuda import CudaError, CudaRegion

BASE = 0x7000_0000
HANDLE = b"h" * HANDLE_BYTES


class BytesDriver:
    """One allocation of 64 bytes on device 0."""

    def __init__(self) -> None:
        self.memory = bytearray(range(64))
        self.closed = 0
        self.failing = False

    def open_handle(self, handle: bytes, device: int) -> int:
        if handle != HANDLE or device:
            raise CudaError("cuIpcOpenMemHandle_v2 returned 1")
        return BASE

    def allocation_bytes(self, address: int) -> int:
        assert address == BASE
        return len(self.memory)

    def read(self, device: int, address: int, size: int) -> bytearray:
        if self.failing:
            raise CudaError("cuMemcpyDtoH_v2 returned 700")
        return self.memory[address - BASE : address - BASE + size]

    def write(self, device: int, address: int, data: bytes | bytearray | memoryview) -> None:
        if self.failing:
            raise CudaError("cuMemcpyHtoD_v2 returned 700")
        self.memory[address - BASE : address - BASE + len(data)] = data

    def close_handle(self, device: int, address: int) -> None:
        self.closed += 1


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> BytesDriver:
    driver = BytesDriver()
    monkeypatch.setattr(cuda, "_driver", lambda: driver)
    return driver


@pytest.fixture
def memory(driver: BytesDriver) -> SharedMemory:
    return SharedMemory()


def test_without_a_driver_registering_is_refused_as_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> None:
        raise CudaError("no CUDA driver")

    monkeypatch.setattr(cuda, "_driver", no_driver)
    with pytest.raises(InferenceError) as caught:
        SharedMemory().register_cuda("c", HANDLE, 0, 4)
    assert caught.value.code is ErrorCode.INVALID_ARG
    assert caught.value.message == "failed to register shared memory region: invalid args"


@pytest.mark.parametrize(
    ("handle", "device", "size", "text"),
    [
        (b"short", 0, 4, "failed to register shared memory region: invalid args"),
        (b"x" * HANDLE_BYTES, 0, 4, "failed to register shared memory region: invalid args"),
        (HANDLE, 7, 4, "failed to register shared memory region: invalid args"),
        (HANDLE, 0, 65, "failed to register shared memory region 'c': invalid args"),
    ],
)
def test_bad_registrations_are_refused(memory: SharedMemory, handle: bytes, device: int, size: int, text: str) -> None:
    with pytest.raises(InferenceError) as caught:
        memory.register_cuda("c", handle, device, size)
    assert caught.value.message == text
    assert memory.status(RegionKind.CUDA, "") == []


def test_memory_that_is_too_small_is_given_back(memory: SharedMemory, driver: BytesDriver) -> None:
    with pytest.raises(InferenceError):
        memory.register_cuda("c", HANDLE, 0, 65)
    assert driver.closed == 1


def test_tensors_are_copied_between_device_and_host(memory: SharedMemory, driver: BytesDriver) -> None:
    memory.register_cuda("c", HANDLE, 0, 64)
    assert memory.status(RegionKind.CUDA, "c")[0].details == {"device_id": 0, "byte_size": 64}
    lease = memory.lease()
    assert bytes(lease.read(Slice("c", 8, 4))) == bytes(range(8, 12))
    lease.direct("y", Slice("c", 32, 8))
    assert lease.store(Tensor("y", "UINT8", (4,), memoryview(b"abcd")))
    assert driver.memory[32:36] == b"abcd"
    memory.unregister(RegionKind.CUDA, "")
    assert driver.closed == 0
    lease.release()
    assert driver.closed == 1
    assert memory.status(RegionKind.CUDA, "") == []


def test_a_driver_that_fails_later_fails_the_request(memory: SharedMemory, driver: BytesDriver) -> None:
    memory.register_cuda("c", HANDLE, 0, 64)
    driver.failing = True
    lease = memory.lease()
    with pytest.raises(InferenceError, match="failed to read CUDA shared memory: cuMemcpyDtoH_v2 returned 700"):
        lease.read(Slice("c", 0, 4))
    lease.direct("y", Slice("c", 0, 4))
    with pytest.raises(InferenceError, match="failed to write CUDA shared memory"):
        lease.store(Tensor("y", "UINT8", (4,), b"abcd"))


def test_close_is_idempotent(driver: BytesDriver) -> None:
    region = CudaRegion("c", HANDLE, 0, 64)
    region.close()
    region.close()
    assert driver.closed == 1


_OTHER_PROCESS = """
import ctypes, sys
from serving_node.frontends.shared_memory import cuda

library = cuda.LibCuda()
library._enter(0)
address, handle = ctypes.c_uint64(), cuda._Handle()
library._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(4096))
library.write(0, address.value + 16, b"hello")
library._call("cuIpcGetMemHandle", ctypes.byref(handle), address)
print(bytes(handle).hex(), flush=True)
sys.stdin.readline()
print(bytes(library.read(0, address.value + 64, 5)).decode(), flush=True)
"""


@pytest.mark.gpu
@pytest.mark.skipif(find_library("cuda") is None, reason="there is no CUDA driver")
def test_memory_of_another_process_is_read_and_written() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _OTHER_PROCESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        handle = bytes.fromhex(other.stdout.readline())
        memory = SharedMemory()
        memory.register_cuda("c", handle, 0, 4096)
        lease = memory.lease()
        assert bytes(lease.read(Slice("c", 16, 5))) == b"hello"
        lease.direct("y", Slice("c", 64, 5))
        assert lease.store(Tensor("y", "UINT8", (5,), b"world"))
        assert other.communicate("\n", timeout=60)[0] == "world\n"
        memory.close()
