"""CUDA device memory of another process, opened by its IPC handle.

The driver's library is loaded when the first region is registered. Reading and writing copy between device and host.
"""

from __future__ import annotations

import ctypes
import logging
from functools import cache
from typing import Any, Protocol

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError

_log = logging.getLogger(__name__)

HANDLE_BYTES = 64
_LAZY_PEER_ACCESS = 1


class CudaError(Exception):
    """The driver refused; the text names the call and its result."""


class Driver(Protocol):
    """The few calls of the CUDA driver that regions need. All raise ``CudaError``."""

    def open_handle(self, handle: bytes, device: int) -> int:
        """Return the address of the memory behind an IPC handle."""

    def allocation_bytes(self, address: int) -> int:
        """Return the size of the allocation that begins at an address."""

    def read(self, device: int, address: int, size: int) -> bytearray:
        """Copy from the device."""

    def write(self, device: int, address: int, data: bytes | bytearray | memoryview) -> None:
        """Copy to the device."""

    def close_handle(self, device: int, address: int) -> None:
        """Give the memory up."""


class CudaRegion:
    """``byte_size`` bytes of device memory."""

    __slots__ = ("_address", "_driver", "byte_size", "device_id")

    def __init__(self, name: str, handle: bytes, device: int, byte_size: int, driver: Driver | None = None) -> None:
        """Open a handle.

        Raises:
            InferenceError: INVALID_ARG: no driver or device, a handle that is none, memory that is too small.
        """
        try:
            if len(handle) != HANDLE_BYTES:
                raise CudaError(f"a handle has {HANDLE_BYTES} bytes, not {len(handle)}")
            self._driver = driver or _driver()
            self._address = self._driver.open_handle(handle, device)
        except CudaError as error:
            _log.warning("cannot open CUDA IPC handle of region %r: %s", name, error)
            sentence = "failed to register shared memory region: invalid args"
            raise InferenceError(ErrorCode.INVALID_ARG, sentence) from None
        self.device_id = device
        self.byte_size = byte_size
        try:
            is_large_enough = byte_size <= self._driver.allocation_bytes(self._address)
        except CudaError as error:
            _log.warning("cannot ask for the size of region %r: %s", name, error)
            is_large_enough = False
        if not is_large_enough:
            self.close()
            sentence = f"failed to register shared memory region '{name}': invalid args"
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)

    def read(self, offset: int, size: int) -> memoryview:
        """Return a copy of the bytes on the host. Raises InferenceError INTERNAL."""
        try:
            return memoryview(self._driver.read(self.device_id, self._address + offset, size)).toreadonly()
        except CudaError as error:
            raise InferenceError(ErrorCode.INTERNAL, f"failed to read CUDA shared memory: {error}") from error

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> bool:
        """Copy bytes to the device. Raises InferenceError INTERNAL."""
        try:
            self._driver.write(self.device_id, self._address + offset, data)
        except CudaError as error:
            raise InferenceError(ErrorCode.INTERNAL, f"failed to write CUDA shared memory: {error}") from error
        return True

    def details(self) -> dict[str, str | int]:
        """Return what a status says of it."""
        return {"device_id": self.device_id, "byte_size": self.byte_size}

    def close(self) -> None:
        """Close the handle. Idempotent."""
        address, self._address = self._address, 0
        if address:
            try:
                self._driver.close_handle(self.device_id, address)
            except CudaError as error:
                _log.warning("cannot close a CUDA IPC handle: %s", error)


class _Handle(ctypes.Structure):
    # by value in calls, so it must be a structure
    _fields_ = [("reserved", ctypes.c_char * HANDLE_BYTES)]


class LibCuda:
    """The installed driver, in the primary context of each device.

    Raises:
        CudaError: there is no driver or no device.
    """

    def __init__(self) -> None:
        try:
            self._library: Any = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CudaError(f"no CUDA driver: {error}") from None
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self._call("cuInit", 0)

    def _call(self, name: str, *arguments: Any) -> None:
        result = getattr(self._library, name)(*arguments)
        if result:
            raise CudaError(f"{name} returned {result}")

    def _enter(self, device: int) -> None:
        """Make the device's primary context current on this thread."""
        context = self._contexts.get(device)
        if context is None:
            number = ctypes.c_int()
            self._call("cuDeviceGet", ctypes.byref(number), ctypes.c_int(device))
            context = ctypes.c_void_p()
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
            self._contexts[device] = context
        self._call("cuCtxSetCurrent", context)

    def open_handle(self, handle: bytes, device: int) -> int:
        """Return the address of the memory behind an IPC handle."""
        if not 0 <= device <= 2**31 - 1:
            raise CudaError(f"no device {device}")
        self._enter(device)
        passed = _Handle.from_buffer_copy(handle)
        address = ctypes.c_uint64()
        self._call("cuIpcOpenMemHandle_v2", ctypes.byref(address), passed, ctypes.c_uint(_LAZY_PEER_ACCESS))
        return address.value

    def allocation_bytes(self, address: int) -> int:
        """Return the size of the allocation that begins at an address."""
        size = ctypes.c_size_t()
        self._call("cuMemGetAddressRange_v2", None, ctypes.byref(size), ctypes.c_uint64(address))
        return size.value

    def read(self, device: int, address: int, size: int) -> bytearray:
        """Copy from the device."""
        target = bytearray(size)
        if size:
            self._enter(device)
            place = (ctypes.c_char * size).from_buffer(target)
            self._call("cuMemcpyDtoH_v2", place, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return target

    def write(self, device: int, address: int, data: bytes | bytearray | memoryview) -> None:
        """Copy to the device."""
        source = bytes(data)
        if source:
            self._enter(device)
            self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), source, ctypes.c_size_t(len(source)))

    def close_handle(self, device: int, address: int) -> None:
        """Give the memory up."""
        self._enter(device)
        self._call("cuIpcCloseMemHandle", ctypes.c_uint64(address))


@cache
def _driver() -> Driver:
    return LibCuda()
