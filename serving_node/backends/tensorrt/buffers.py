"""Memory of one instance: for each tensor a place on the device and one in the host, taken once and only ever grown.

A tensor's requests are written one after the other into the host's place and copied to the device at once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from serving_node.backends.tensorrt.cuda import Cuda
from serving_node.core.rows import Array
from serving_node.core.tensor import NUMPY_DTYPES, Tensor

# TensorRT wants addresses that are multiples of this; both allocators of CUDA give such.
_ALIGNMENT = 256


class HostBuffer:
    """Memory of the host, page-locked when ``pinned``. ``address`` changes only in ``reserve``."""

    def __init__(self, cuda: Cuda, *, pinned: bool) -> None:
        self._cuda = cuda
        self._pinned = pinned
        self._owned = 0
        self._bytes: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self.address = 0

    def reserve(self, size: int) -> None:
        """Have room for ``size`` bytes. What was in it is lost when it must grow."""
        if size <= len(self._bytes) and self.address:
            return
        self.close()
        room = max(size, 1)
        if self._pinned:
            self._owned = self.address = self._cuda.allocate_host(room)
            self._bytes = np.frombuffer(memoryview((ctypes.c_uint8 * room).from_address(self.address)), np.uint8)
        else:
            whole = np.empty(room + _ALIGNMENT, np.uint8)
            start = -whole.ctypes.data % _ALIGNMENT
            self._bytes = whole[start : start + room]
            self.address = self._bytes.ctypes.data

    def view(self, shape: Sequence[int], dtype: np.dtype[np.generic]) -> Array:
        """Return the beginning of the memory as an array."""
        size = prod(shape) * dtype.itemsize
        return self._bytes[:size].view(dtype).reshape(shape)

    def close(self) -> None:
        """Free the memory. Idempotent."""
        self._bytes = np.empty(0, np.uint8)
        owned, self._owned, self.address = self._owned, 0, 0
        if owned:
            self._cuda.free_host(owned)


class DeviceBuffer:
    """Memory of the current GPU. ``address`` changes only in ``reserve``, which calls ``moved`` when it was another."""

    def __init__(self, cuda: Cuda, moved: Callable[[], None]) -> None:
        self._cuda = cuda
        self._moved = moved
        self.size = 0
        self.address = 0

    def reserve(self, size: int) -> None:
        """Have room for ``size`` bytes. What was in it is lost when it must grow."""
        if size <= self.size and self.address:
            return
        is_new = not self.address
        self.close()
        self.address = self._cuda.allocate(max(size, 1))
        self.size = size
        if not is_new:
            self._moved()

    def close(self) -> None:
        """Free the memory. Idempotent."""
        address, self.address, self.size = self.address, 0, 0
        if address:
            self._cuda.free(address)


def write_rows(target: Array, tensors: Sequence[Tensor], *, exact: bool) -> None:
    """Write the tensors of a batch into an array, one after the other along its first dimension.

    ``exact``: they fill it. Otherwise the array is larger in some dimension, and the rest of it becomes zero.
    """
    if exact:
        flat, start = target.reshape(-1), 0
        for tensor in tensors:
            part = _flat(tensor)
            flat[start : start + part.size] = part
            start += part.size
        return
    target[...] = 0
    start = 0
    for tensor in tensors:
        part = _flat(tensor).reshape(tensor.shape)
        rows = part.shape[0] if part.ndim else 0
        place = (slice(start, start + rows), *(slice(0, size) for size in part.shape[1:]))
        target[place if part.ndim else ()] = part
        start += rows


def _flat(tensor: Tensor) -> Array:
    return np.frombuffer(tensor.data, NUMPY_DTYPES[tensor.datatype])
