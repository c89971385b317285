"""Which regions clients have registered, and which of them requests are using.

Everything runs on the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceResponse
from serving_node.core.tensor import Tensor
from serving_node.frontends.shared_memory.cuda import CudaRegion
from serving_node.frontends.shared_memory.system import SystemRegion

DISABLED = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
_SIZE_MAX = 2**64 - 1


class RegionKind(StrEnum):
    """What memory a region is in. The values are the words of the error texts."""

    SYSTEM = "system"
    CUDA = "cuda"


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a region, as a request names it. Units: bytes, from the region's beginning."""

    region: str
    offset: int
    byte_size: int


class Region(Protocol):
    """Registered memory. ``read`` and ``write`` tell by None and False that it has become too small."""

    byte_size: int

    def read(self, offset: int, size: int) -> memoryview | None:
        """Return the bytes."""

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> bool:
        """Copy bytes into it."""

    def details(self) -> dict[str, str | int]:
        """Return what a status says of it."""

    def close(self) -> None:
        """Give it up."""


@dataclass(frozen=True, slots=True)
class RegionFacts:
    """What a status says of a region: ``details`` by the names of the protocols' fields."""

    name: str
    details: dict[str, str | int]


@dataclass(slots=True)
class _Entry:
    name: str
    kind: RegionKind
    region: Region
    users: int = 0
    leaving: bool = False


class SharedMemory:
    """The regions of one node. ``refusal`` is the error for every attempt to change them, None when they may be."""

    def __init__(self, refusal: InferenceError | None = None) -> None:
        self._refusal = refusal
        self._entries: dict[str, _Entry] = {}

    @classmethod
    def disabled(cls) -> SharedMemory:
        """Return one in which nothing can be registered, as clients find it unless the node is told otherwise."""
        return cls(InferenceError(ErrorCode.UNSUPPORTED, DISABLED))

    # -- management

    def check_registration(self, kind: RegionKind, name: str) -> None:
        """Refuse what can be refused before the rest of a registration is looked at. Raises InferenceError."""
        self._check_changeable()
        if not name:
            sentence = f"'region name' is necessary to register {kind} shared memory region"
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)

    def _check_changeable(self) -> None:
        if self._refusal is not None:
            raise InferenceError(self._refusal.code, self._refusal.message)

    def register_system(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Map a shared memory object under a name.

        Raises:
            InferenceError: with Triton's code and text.
        """
        self._register(name, RegionKind.SYSTEM, lambda: SystemRegion(name, key, offset, byte_size))

    def register_cuda(self, name: str, handle: bytes, device: int, byte_size: int) -> None:
        """Open the memory of a CUDA IPC handle under a name.

        Raises:
            InferenceError: with Triton's code and text.
        """
        self._register(name, RegionKind.CUDA, lambda: CudaRegion(name, handle, device, byte_size))

    def _register(self, name: str, kind: RegionKind, open_region: Callable[[], Region]) -> None:
        self.check_registration(kind, name)
        if name in self._entries:
            sentence = f"shared memory region '{name}' already in manager"
            raise InferenceError(ErrorCode.ALREADY_EXISTS, sentence)
        self._entries[name] = _Entry(name, kind, open_region())

    def unregister(self, kind: RegionKind, name: str) -> None:
        """Forget one region, all of the kind without a name, each when its last request is answered. Unknown: no-op.

        Raises:
            InferenceError: regions may not be changed.
        """
        self._check_changeable()
        chosen = [entry for entry in self._entries.values() if not name or entry.name == name]
        for entry in chosen:
            if entry.kind is kind:
                entry.leaving = True
                self._remove_if_left(entry)

    def status(self, kind: RegionKind, name: str) -> list[RegionFacts]:
        """Return the regions of a kind in the order of their names, or the named one.

        Raises:
            InferenceError: NOT_FOUND, with a name.
        """
        if not name:
            entries = sorted(self._entries.values(), key=lambda entry: entry.name)
            return [RegionFacts(entry.name, entry.region.details()) for entry in entries if entry.kind is kind]
        found = self._entries.get(name)
        if found is None:
            raise InferenceError(ErrorCode.NOT_FOUND, f"Unable to find {kind} shared memory region: '{name}'")
        if found.kind is not kind:
            sentence = (
                f"The region named '{name}' is registered as {_in_words(found.kind)} shared memory,"
                f" not {_in_words(kind)} shared memory"
            )
            raise InferenceError(ErrorCode.NOT_FOUND, sentence)
        return [RegionFacts(name, found.region.details())]

    def close(self) -> None:
        """Give up all regions."""
        for entry in self._entries.values():
            entry.region.close()
        self._entries.clear()

    # -- requests

    def lease(self) -> RegionLease:
        """Return what one request uses of the regions: nothing yet."""
        return RegionLease(self)

    def use(self, part: Slice) -> _Entry:
        """Return the region of a part, in use until ``give_back``.

        Raises:
            InferenceError: there is no such region, or the part reaches past it.
        """
        entry = self._entries.get(part.region)
        if entry is None:
            raise InferenceError(ErrorCode.NOT_FOUND, f"Unable to find shared memory region: '{part.region}'")
        check_part(part, entry.region.byte_size)
        entry.users += 1
        return entry

    def give_back(self, entries: Iterable[_Entry]) -> None:
        """Note that a request is through with them."""
        for entry in entries:
            entry.users -= 1
            self._remove_if_left(entry)

    def _remove_if_left(self, entry: _Entry) -> None:
        if entry.leaving and not entry.users and self._entries.get(entry.name) is entry:
            del self._entries[entry.name]
            entry.region.close()


@dataclass(slots=True)
class RegionLease:
    """What one request uses of the regions, until its final response."""

    _memory: SharedMemory
    _used: list[_Entry] = field(default_factory=list)
    _targets: dict[str, tuple[Slice, _Entry]] = field(default_factory=dict)

    def read(self, part: Slice) -> memoryview:
        """Return the bytes of an input: a view of system memory, a copy of a device's.

        Raises:
            InferenceError: there is no such region, or the part reaches past it.
        """
        entry = self._memory.use(part)
        self._used.append(entry)
        data = entry.region.read(part.offset, part.byte_size)
        if data is None:
            raise past_the_end(part)
        return data

    def direct(self, output: str, part: Slice) -> None:
        """Have an output written there. Of two places for one output, the first counts.

        Raises:
            InferenceError: there is no such region, or the part reaches past it.
        """
        entry = self._memory.use(part)
        self._used.append(entry)
        self._targets.setdefault(output, (part, entry))

    def store(self, tensor: Tensor) -> bool:
        """Write an output to its place; tell whether it has one.

        Raises:
            InferenceError: INTERNAL, the place is too small.
        """
        target = self._targets.get(tensor.name)
        if target is None:
            return False
        part, entry = target
        size = len(tensor.data)
        if size > part.byte_size:
            sentence = (
                f"shared memory size specified with the request for output '{tensor.name}' ({part.byte_size} bytes)"
                f" should be at least {size} bytes to hold the results"
            )
            raise InferenceError(ErrorCode.INTERNAL, sentence)
        if size and not entry.region.write(part.offset, tensor.data):
            raise past_the_end(part)
        return True

    def release(self) -> None:
        """Give everything back. Idempotent."""
        used, self._used = self._used, []
        self._targets.clear()
        self._memory.give_back(used)

    def until_final(self, deliver: Callable[[InferenceResponse], None]) -> Callable[[InferenceResponse], None]:
        """Return ``deliver`` with a release after the final response."""

        def deliver_and_release(response: InferenceResponse) -> None:
            try:
                deliver(response)
            finally:
                if response.final:
                    self.release()

        return deliver_and_release


def check_part(part: Slice, region_bytes: int) -> None:
    """Refuse a part that is not inside a region of ``region_bytes``. Numbers are those of an unsigned 64-bit size.

    Raises:
        InferenceError: INVALID_ARG.
    """
    if part.offset >= region_bytes:
        sentence = f"Invalid offset for shared memory region: '{part.region}'"
        raise InferenceError(ErrorCode.INVALID_ARG, sentence)
    if part.byte_size > _SIZE_MAX - part.offset:
        sentence = (
            f"Integer overflow detected: byte_size ({part.byte_size}) + offset ({part.offset}) exceeds maximum value"
            f" ({_SIZE_MAX}) for region '{part.region}'"
        )
        raise InferenceError(ErrorCode.INVALID_ARG, sentence)
    if part.offset + part.byte_size > region_bytes:
        raise past_the_end(part)


def past_the_end(part: Slice) -> InferenceError:
    """Return the error for a part that reaches past its region."""
    sentence = f"Invalid offset + byte size for shared memory region: '{part.region}'"
    return InferenceError(ErrorCode.INVALID_ARG, sentence)


def _in_words(kind: RegionKind) -> str:
    return "CUDA" if kind is RegionKind.CUDA else "system"
