"""Room on the disk of the staging folder: looked at and taken when an upload begins, so that it can be finished."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

from django.conf import settings
from django.utils.translation import gettext as _

from console.uploads.protocol import ProtocolError

# Names of files run out, too, and the database may share them.
LEAST_FREE_NAMES = 10_000
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE: blocks are taken, and the file is as long as before
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong]
# The file system cannot do it, or nobody lets us: then only what is free at the beginning counts.
_UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.ENODEV})


def require_room(folder: Path, length: int) -> None:
    """Do nothing when ``length`` bytes more fit beside what is to stay free (``FLOTILLA_STAGING_FREE_BYTES``).

    Raises:
        ProtocolError: 507, they do not.
        OSError: the folder cannot be looked at.
    """
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize - settings.STAGING_FREE_BYTES
    if free < length:
        detail = _("The server's disk has room for %(free)d bytes more of uploads; this takes %(length)d.")
        raise ProtocolError(507, detail % {"free": max(0, free), "length": length}, "storage_full")
    # Some file systems make names as they need them, and say 0 of 0.
    if found.f_files and found.f_favail < LEAST_FREE_NAMES:
        raise ProtocolError(507, _("The server's disk has no room for more files."), "storage_full")


def take_room(descriptor: int, length: int) -> None:
    """Reserve the blocks of the first ``length`` bytes of an open file, whose size stays as it is.

    They go back when the file is deleted or cut short. Nothing happens where the file system cannot reserve.

    Raises:
        OSError: there is no room, or no quota.
    """
    if length and _LIBC.fallocate(descriptor, _KEEP_SIZE, 0, length):
        number = ctypes.get_errno()
        if number not in _UNSUPPORTED:
            raise OSError(number, os.strerror(number))
