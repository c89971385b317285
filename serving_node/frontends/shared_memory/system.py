"""POSIX shared memory, mapped into the node."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError

_FOLDER = Path("/dev/shm")  # noqa: S108  where shm_open(3) keeps its objects
# Source: Triton. The Python backend's own memory must not be reachable through a client's region.
RESERVED_PREFIX = "triton_python_backend_shm_region_"


class SystemRegion:
    """``byte_size`` bytes of a shared memory object, from ``offset`` on.

    Ownership: views that were handed out keep the mapping alive after ``close``.
    """

    __slots__ = ("_mapping", "byte_size", "key", "offset")

    def __init__(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Map the object ``key``.

        Raises:
            InferenceError: INTERNAL, there is no such object; INVALID_ARG, the key is reserved or the object too small.
        """
        _check_key(name, key)
        try:
            descriptor = _open(key)
        except (OSError, ValueError):
            sentence = f"Unable to open shared memory region: '{key}'"
            raise InferenceError(ErrorCode.INTERNAL, sentence) from None
        try:
            if offset + byte_size > os.fstat(descriptor).st_size:
                raise _refused(name, "invalid args")
            if byte_size == 0:  # mmap(2) refuses it, Python's takes it for the whole object
                raise _refused(name, "unable to process address spaceInvalid argument")
            self._mapping: mmap.mmap | None = mmap.mmap(descriptor, byte_size, offset=offset)
        except OSError as error:
            raise _refused(name, f"unable to process address space{error.strerror}") from None
        finally:
            os.close(descriptor)
        self.key = key
        self.offset = offset
        self.byte_size = byte_size

    def view(self, offset: int, size: int) -> memoryview | None:
        """Return a writable view, or None when the object was cut shorter since it was mapped.

        Touching pages past the object's end would kill the process, so its size is asked each time.
        """
        assert self._mapping is not None
        if self._mapping.size() < self.offset + offset + size:
            return None
        return memoryview(self._mapping)[offset : offset + size]

    def read(self, offset: int, size: int) -> memoryview | None:
        """Return a view that cannot be written through, or None as ``view`` does."""
        view = self.view(offset, size)
        return None if view is None else view.toreadonly()

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> bool:
        """Copy bytes into the region; tell whether it still has room for them."""
        view = self.view(offset, len(data))
        if view is None:
            return False
        view[:] = data
        return True

    def details(self) -> dict[str, str | int]:
        """Return what a status says of it."""
        return {"key": self.key, "offset": self.offset, "byte_size": self.byte_size}

    def close(self) -> None:
        """Unmap when the last view is gone. Idempotent."""
        self._mapping = None


def _check_key(name: str, key: str) -> None:
    bare = key.lstrip("/")
    if not bare:
        sentence = f"cannot register shared memory region '{name}' - invalid shm key '{key}'"
        raise InferenceError(ErrorCode.INVALID_ARG, sentence)
    if bare.startswith(RESERVED_PREFIX):
        sentence = (
            f"cannot register shared memory region '{name}' with key '{key}' as the key contains the reserved prefix"
            f" '{RESERVED_PREFIX}'"
        )
        raise InferenceError(ErrorCode.INVALID_ARG, sentence)


def _open(key: str) -> int:
    """Open as shm_open(3) does: one name in one folder, links not followed; regular files only."""
    bare = key.lstrip("/")
    if "/" in bare:
        raise ValueError(key)
    descriptor = os.open(_FOLDER / bare, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(key)
    return descriptor


def _refused(name: str, why: str) -> InferenceError:
    return InferenceError(ErrorCode.INVALID_ARG, f"failed to register shared memory region '{name}': {why}")
