"""Memory for large messages."""

from __future__ import annotations

import ctypes

# Source: glibc's malloc.h. 32 MiB is the largest threshold that it accepts on 64-bit machines.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_MMAP_BYTES = 32 * 1024 * 1024
_TRIM_BYTES = 256 * 1024 * 1024


def keep_large_buffers() -> bool:
    """Make malloc reuse memory of large buffers instead of mapping and unmapping each. Return whether it obeyed.

    By default glibc asks the kernel for each buffer above a threshold, and every page of it is then faulted in anew:
    for tensors of a megabyte that costs more than receiving them. Other C libraries are left as they are. Idempotent;
    concerns the whole process.
    """
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018  # only glibc has it
        mallopt = libc.mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES))
