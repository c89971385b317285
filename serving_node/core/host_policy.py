"""Which CPU cores, and the memory of which NUMA node, an instance uses. Source: Triton's ``--host-policy``."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError

# The most cores, and nodes, that the kernel's masks have room for here.
_MOST = 1024
# Linux's set_mempolicy, which the standard library does not have: its number by machine, and two of its modes.
_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
_DEFAULT_MEMORY, _BIND_MEMORY = 0, 2


@dataclass(frozen=True, slots=True)
class HostPolicy:
    """``cores``: the first and the last core; ``memory_node``: the NUMA node. None: as the system likes."""

    cores: tuple[int, int] | None = None
    memory_node: int | None = None

    def apply(self) -> None:
        """Bind the calling thread, and what it starts from now on.

        Raises:
            InferenceError: INTERNAL, the machine has no such cores or node.
        """
        if self.cores is not None:
            first, last = self.cores
            _set_cores(set(range(max(first, 0), min(last, _MOST - 1) + 1)))
        if self.memory_node is not None:
            _set_memory(_BIND_MEMORY, self.memory_node)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Bind the calling thread for a while. Raises InferenceError: see ``apply``."""
        before = os.sched_getaffinity(0) if self.cores is not None else None
        try:
            self.apply()
            yield
        finally:
            if before is not None:
                _set_cores(before)
            if self.memory_node is not None:
                _set_memory(_DEFAULT_MEMORY)


ANYWHERE = HostPolicy()


def _set_cores(cores: set[int]) -> None:
    try:
        os.sched_setaffinity(0, cores)
    except OSError as error:
        sentence = f"Unable to set NUMA thread affinity: {error.strerror}"
        raise InferenceError(ErrorCode.INTERNAL, sentence) from error


def _set_memory(mode: int, node: int | None = None) -> None:
    number = _SET_MEMPOLICY.get(platform.machine())
    if number is None:
        sentence = f"Unable to set NUMA memory policy: not known how on {platform.machine()}"
        raise InferenceError(ErrorCode.INTERNAL, sentence)
    mask = (ctypes.c_ubyte * (_MOST // 8))()
    if node is not None:
        if not 0 <= node < _MOST:
            raise InferenceError(ErrorCode.INTERNAL, f"Unable to set NUMA memory policy: there is no node {node}")
        mask[node // 8] = 1 << node % 8
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, mode, None if node is None else mask, 0 if node is None else _MOST):
        sentence = f"Unable to set NUMA memory policy: {os.strerror(ctypes.get_errno())}"
        raise InferenceError(ErrorCode.INTERNAL, sentence)
