"""Digests of uploads that are on their way, taken while the bytes pass, so that nobody reads them a second time."""

from __future__ import annotations

import hashlib
import os
import threading
import uuid
from collections import OrderedDict
from typing import Self

from xxhash import xxh3_128

READ_BYTES = 4 << 20
# What one request reads again to come into step: about half a second. A worker hashes what is further behind.
CATCH_UP_BYTES = 256 << 20
# Each is about 2 KB; one that was forgotten costs a second read, nothing else.
MOST_KEPT = 4096


class RunningDigest:
    """SHA-256 and XXH3 (128 bits) of the first ``offset`` bytes of an upload.

    Concurrency: one thread at a time, or one for each of the two.
    """

    def __init__(self) -> None:
        self._sha256, self._sha256_offset = hashlib.sha256(), 0
        self._xxh3, self._xxh3_offset = xxh3_128(), 0

    @property
    def offset(self) -> int:
        """How many bytes both have seen; -1 when one of them has seen more than the other."""
        return self._sha256_offset if self._sha256_offset == self._xxh3_offset else -1

    def update(self, piece: bytes | memoryview) -> None:
        """Go on with the bytes that follow."""
        self.update_sha256(piece)
        self.update_xxh3(piece)

    def update_sha256(self, piece: bytes | memoryview) -> None:
        """Go on with one of them."""
        self._sha256.update(piece)
        self._sha256_offset += len(piece)

    def update_xxh3(self, piece: bytes | memoryview) -> None:
        """Go on with the other one."""
        self._xxh3.update(piece)
        self._xxh3_offset += len(piece)

    def copy(self) -> Self:
        """Return one that goes its own way from here."""
        other = type(self)()
        other._sha256, other._sha256_offset = self._sha256.copy(), self._sha256_offset
        other._xxh3, other._xxh3_offset = self._xxh3.copy(), self._xxh3_offset
        return other

    def catch_up(self, descriptor: int, offset: int) -> bool:
        """Read an open file up to ``offset``, unless that is too much for one request; return whether it is in step."""
        stop = min(offset, self.offset + CATCH_UP_BYTES)
        while self.offset < stop:
            piece = os.pread(descriptor, min(READ_BYTES, stop - self.offset), self.offset)
            if not piece:
                return False
            self.update(piece)
        return self.offset == offset

    @property
    def sha256(self) -> bytes:
        """The SHA-256 so far."""
        return self._sha256.digest()

    @property
    def xxh3(self) -> bytes:
        """The XXH3 so far."""
        return self._xxh3.digest()


class KeptDigests:
    """Digests of unfinished uploads between two requests of theirs, in this process.

    They are lost with the process, and know nothing of what another process received: ``RunningDigest.catch_up``.
    """

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: OrderedDict[uuid.UUID, RunningDigest] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, upload_id: uuid.UUID, offset: int) -> RunningDigest:
        """Return the digest of an upload, to be kept again; a fresh one when none is known or it is ahead."""
        with self._lock:
            found = self._kept.pop(upload_id, None)
        return found if found is not None and found.offset <= offset else RunningDigest()

    def keep(self, upload_id: uuid.UUID, digest: RunningDigest) -> None:
        """Keep a digest until the next request; the one that was not used for longest goes when there are too many."""
        with self._lock:
            self._kept[upload_id] = digest
            self._kept.move_to_end(upload_id)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)

    def forget(self, upload_id: uuid.UUID) -> None:
        """Drop the digest of an upload that has ended."""
        with self._lock:
            self._kept.pop(upload_id, None)
