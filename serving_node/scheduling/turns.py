"""Whose turn it is to run, on a node with a rate limiter: one ``Turns`` for all schedulers of all models.

A scheduler asks for its idle instances when it has work for them. When one's turn has come its ``run`` is called, which
forms the batch then and not earlier, gives it to the instance and returns True; or returns False when there is nothing
to run any more. When the batch is over the scheduler says ``release`` and asks again. For a scheduler with an instance
of its own to drive this is all::

    turns.ask([instance], self._run)      # instead of self._run(instance)
    turns.release(instance)               # in front of the next ask, when the batch is over

Without ``--rate-limit=execution_count`` there is no ``Turns``, and schedulers run what is idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import structlog

from serving_node.core.backend import Device
from serving_node.scheduling.rate_limit import GLOBAL, Limit, Need, RateLimiter

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelInstanceGroup

Key = TypeVar("Key", bound=Hashable)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Share:
    """What an instance needs to run, and how seldom it does: priority 2 half as often as 1. 0 counts as 1."""

    needs: tuple[Need, ...] = ()
    priority: int = 0


def share_of(group: ModelInstanceGroup, device: Device) -> Share:
    """Return the share of an instance of ``group`` on ``device``. As in Triton, the CPU counts as device 0."""
    limiter = group.rate_limiter
    needs = (Need(one.name, one.count, GLOBAL if getattr(one, "global") else device.index) for one in limiter.resources)
    return Share(tuple(needs), limiter.priority)


class Turns:
    """The members are instances, known by any key.

    Concurrency: all methods are called on the event loop. ``run`` is called from ``ask``, also from that of another
    scheduler, or from the loop itself; so nobody may hold a lock while it asks.
    """

    def __init__(self, limits: Iterable[Limit] = ()) -> None:
        self._limiter = RateLimiter(limits)
        self._members: set[Hashable] = set()
        # what to call when their turn has come: those that wait
        self._waiting: dict[Hashable, Callable[[], bool]] = {}
        self._holding: set[Hashable] = set()
        self._is_granting = False
        self._grant_is_due = False

    def add(self, shares: Mapping[Hashable, Share]) -> None:
        """Let instances take part, all or none. Raises InferenceError INVALID_ARG: see ``RateLimiter.add``."""
        added: list[Hashable] = []
        try:
            for key, share in shares.items():
                self._limiter.add(key, share.needs, share.priority)
                added.append(key)
        except BaseException:
            for key in added:
                self._limiter.remove(key)
            raise
        self._members.update(added)

    def remove(self, keys: Iterable[Hashable]) -> None:
        """Let instances leave; what they hold is free again. Unknown ones are no error."""
        for key in keys:
            self._limiter.remove(key)
            self._members.discard(key)
            self._waiting.pop(key, None)
            self._holding.discard(key)
        self._grant_soon()

    def ask(self, keys: Iterable[Key], run: Callable[[Key], bool]) -> None:
        """Have ``run`` called for each of these idle instances when its turn has come, which may be now.

        Instances that ask already, or that have the turn, and those that left, are passed over.
        """
        for key in keys:
            if key in self._members and key not in self._waiting and key not in self._holding:
                self._waiting[key] = partial(run, key)
                self._limiter.ask(key)
        self._grant()

    def withdraw(self, keys: Iterable[Hashable]) -> None:
        """Ask no more for these instances: there is no work for them, or they cannot run."""
        for key in keys:
            if self._waiting.pop(key, None) is not None:
                self._limiter.withdraw(key)
        self._grant_soon()

    def release(self, key: Hashable) -> None:
        """Take back what an instance held that has run. Others get it when its scheduler had the time to ask again."""
        if key in self._holding:
            self._holding.discard(key)
            self._limiter.release(key)
            self._grant_soon()

    def _grant_soon(self) -> None:
        if self._waiting and not self._grant_is_due:
            self._grant_is_due = True
            asyncio.get_running_loop().call_soon(self._grant)

    def _grant(self) -> None:
        self._grant_is_due = False
        if self._is_granting:
            return  # called from a run: the loop below goes on
        self._is_granting = True
        try:
            while granted := self._limiter.grant():
                for key in granted:
                    self._holding.add(key)
                    if not self._ran(key):
                        self._holding.discard(key)
                        self._limiter.release(key, ran=False)
        finally:
            self._is_granting = False

    def _ran(self, key: Hashable) -> bool:
        run = self._waiting.pop(key, None)
        if run is None:
            return False  # withdrawn or removed by one that ran just now
        try:
            return run()
        except Exception:
            # one model's fault must not keep the others from running
            log.exception("turns.run_failed", instance=repr(key))
            return False
