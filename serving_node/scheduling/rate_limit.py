"""Which instances may run when they share resources. Pure.

An instance asks when it has work, holds its resources while it runs, and gives them back. Those that ask are served in
the order of executions times priority, lowest first; the first of them is never overtaken by one that needs less, so
nobody starves. Source: Triton's rate limiter (core, rate_limiter.cc), which serves at most one instance for each event;
here everything that fits runs at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError

# Instead of a device number: one pool for the whole server, and (for limits) the same pool on each device.
GLOBAL = -2
EACH_DEVICE = -1

# Entries of the queue that may be out of date before they are thrown away.
_STALE_SLACK = 64

Key = Hashable


@dataclass(frozen=True, slots=True)
class Need:
    """How much of a resource an instance holds while it runs. ``device`` is the GPU's number or ``GLOBAL``."""

    resource: str
    count: int
    device: int = GLOBAL


@dataclass(frozen=True, slots=True)
class Limit:
    """How much of a resource there is on a device, or ``EACH_DEVICE``. Source: ``--rate-limit-resource``."""

    resource: str
    count: int
    device: int = EACH_DEVICE


@dataclass(slots=True)
class _Member:
    needs: dict[tuple[int, str], int]
    priority: int
    order: int
    executions: int = 0
    asked: int = 0
    waits: bool = False
    holds: bool = False


@dataclass(slots=True)
class _Pools:
    """What there is of each resource, and what is taken, by device and name."""

    total: dict[tuple[int, str], int] = field(default_factory=dict)
    taken: dict[tuple[int, str], int] = field(default_factory=dict)

    def fits(self, needs: Mapping[tuple[int, str], int]) -> bool:
        return all(self.taken.get(pool, 0) + count <= self.total.get(pool, 0) for pool, count in needs.items())

    def take(self, needs: Mapping[tuple[int, str], int]) -> None:
        for pool, count in needs.items():
            self.taken[pool] = self.taken.get(pool, 0) + count

    def give_back(self, needs: Mapping[tuple[int, str], int]) -> None:
        for pool, count in needs.items():
            self.taken[pool] -= count


class RateLimiter:
    """The resources of one node. Without limits there is as much of a resource as the neediest instance needs.

    State of a member: idle -> (ask) waits -> (grant) holds -> (release) idle; ``withdraw`` leads from waits to idle.
    A member that holds may ask no more until it has released.
    """

    def __init__(self, limits: Iterable[Limit] = ()) -> None:
        self._limits: dict[tuple[int, str], int] = {}
        for limit in limits:
            pool = (limit.device, limit.resource)
            self._limits[pool] = max(limit.count, self._limits.get(pool, 0))
        self._members: dict[Key, _Member] = {}
        self._pools = _Pools()
        # (executions x priority, order of joining, how often it asked, key); only a waiting member's last entry counts
        self._queue: list[tuple[int, int, int, Key]] = []
        self._joined = 0

    def add(self, key: Key, needs: Iterable[Need], priority: int = 0) -> None:
        """Let an instance take part. ``priority`` 0 counts as 1; an instance of priority 2 runs half as often.

        Raises:
            InferenceError: INVALID_ARG, a resource is both global and of a device, or there is too little of it.
                Nothing has changed then.
        """
        wanted: dict[tuple[int, str], int] = {}
        for need in needs:
            pool = (need.device, need.resource)
            wanted[pool] = max(need.count, wanted.get(pool, 0))
        member = _Member(wanted, max(priority, 1), self._joined)
        members = {**self._members, key: member}
        total = self._totals(members.values())
        self._joined += 1
        self._members = members
        self._pools.total = total

    def remove(self, key: Key) -> None:
        """Let an instance leave; what it holds is free again. Unknown keys are no error."""
        member = self._members.pop(key, None)
        if member is None:
            return
        if member.holds:
            self._pools.give_back(member.needs)
        self._pools.total = self._totals(self._members.values())

    def ask(self, key: Key) -> None:
        """Note that an idle instance has work."""
        member = self._members[key]
        if member.waits or member.holds:
            raise ValueError("the instance already waits or runs")
        member.waits = True
        member.asked += 1
        heapq.heappush(self._queue, (member.executions * member.priority, member.order, member.asked, key))
        if len(self._queue) > 2 * len(self._members) + _STALE_SLACK:
            self._queue = [entry for entry in self._queue if self._counts(entry)]
            heapq.heapify(self._queue)

    def withdraw(self, key: Key) -> None:
        """Note that the work of a waiting instance is gone."""
        self._members[key].waits = False

    def grant(self) -> list[Key]:
        """Return the instances that run now, in order; they hold their resources from here on."""
        granted: list[Key] = []
        while self._queue:
            key = self._queue[0][-1]
            if not self._counts(self._queue[0]):
                heapq.heappop(self._queue)
                continue
            member = self._members[key]
            if not self._pools.fits(member.needs):
                break
            heapq.heappop(self._queue)
            self._pools.take(member.needs)
            member.waits, member.holds = False, True
            granted.append(key)
        return granted

    def release(self, key: Key, *, ran: bool = True) -> None:
        """Take back what an instance holds. ``ran``: it has run, which counts for its place the next time."""
        member = self._members.get(key)
        if member is None or not member.holds:
            return  # it left while it ran
        member.holds = False
        member.executions += ran
        self._pools.give_back(member.needs)

    def _counts(self, entry: tuple[int, int, int, Key]) -> bool:
        _, order, asked, key = entry
        member = self._members.get(key)
        return member is not None and member.order == order and member.asked == asked and member.waits

    def _totals(self, members: Iterable[_Member]) -> dict[tuple[int, str], int]:
        """Return how much there is of each resource that is needed. Raises InferenceError INVALID_ARG."""
        neediest: dict[tuple[int, str], int] = {}
        for member in members:
            for pool, count in member.needs.items():
                neediest[pool] = max(count, neediest.get(pool, 0))
        total = {pool: self._limited(pool, count) for pool, count in neediest.items()} if self._limits else neediest
        shared = {resource for device, resource in neediest if device == GLOBAL}
        both = sorted(resource for device, resource in neediest if device != GLOBAL and resource in shared)
        if both:
            sentence = (
                f'Resource "{both[0]}" is present as both global and device-specific resource in the model'
                " configuration."
            )
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        return total

    def _limited(self, pool: tuple[int, str], needed: int) -> int:
        device, resource = pool
        if device == GLOBAL:
            # the device of a limit means nothing for a resource that all devices share
            given = [count for (_, name), count in self._limits.items() if name == resource]
        else:
            given = [self._limits.get((where, resource), 0) for where in (device, EACH_DEVICE)]
        available = max(given, default=0)
        if available < needed:
            sentence = (
                f'Resource count for "{resource}" is limited to {available} which will prevent scheduling of one or'
                f" more model instances, the minimum required count is {needed}"
            )
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        return available
