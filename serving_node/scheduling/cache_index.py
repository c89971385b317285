"""Which answers a cache holds, and which it gives up first: the least recently used, bounded by bytes. Pure."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import Generic, TypeVar

Entry = TypeVar("Entry")

# What a key and its place in the index take besides the entry's own bytes: many small entries must count, too.
OVERHEAD_BYTES = 512


class CacheIndex(Generic[Entry]):
    """Entries by key. An entry counts for its size and ``OVERHEAD_BYTES``; all together never exceed ``capacity``."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self.evictions = 0
        # an entry, the bytes that it counts for, and whose it is: tuples, which the garbage collector need not visit
        self._held: OrderedDict[bytes, tuple[Entry, int, bytes]] = OrderedDict()
        self._owned: dict[bytes, dict[bytes, None]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def fits(self, size: int) -> bool:
        """Return whether an entry of ``size`` bytes can be held at all."""
        return size + OVERHEAD_BYTES <= self.capacity

    def get(self, key: bytes) -> Entry | None:
        """Return an entry, which is the most recently used from now on."""
        held = self._held.get(key)
        if held is None:
            return None
        self._held.move_to_end(key)
        return held[0]

    def put(self, key: bytes, entry: Entry, size: int, owner: bytes) -> bool:
        """Hold an entry in place of one with the same key, and give up others until there is room.

        Returns False, and changes nothing, when it would not fit into an empty cache.
        """
        if not self.fits(size):
            return False
        if key in self._held:
            self._remove(key)
        cost = size + OVERHEAD_BYTES
        while self.used + cost > self.capacity:
            self._remove(next(iter(self._held)))
            self.evictions += 1
        self._held[key] = (entry, cost, owner)
        self._owned.setdefault(owner, {})[key] = None
        self.used += cost
        return True

    def forget(self, owner: bytes, at_most: int) -> bool:
        """Drop entries of an owner, so many at a time. Returns whether there are more."""
        for key in list(islice(self._owned.get(owner, ()), at_most)):
            self._remove(key)
        return owner in self._owned

    def _remove(self, key: bytes) -> None:
        _, cost, owner = self._held.pop(key)
        self.used -= cost
        keys = self._owned[owner]
        del keys[key]
        if not keys:
            del self._owned[owner]
