"""A node in memory for tests: obeys the desired-state rules of a real node and can be told to misbehave."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from serving_node.contract.control import Desired, Observed, ObservedUnit, Reason
from serving_node.contract.states import UnitState
from workers.node_client.client import BinaryRequest, Exposition, NodeAddress, Target
from workers.node_client.errors import NodeClientError, NodeErrorCode

_PATH = [UnitState.FETCHING, UnitState.LOADING, UnitState.WARMING, UnitState.READY]


@dataclass
class FakeNode:
    """The node behind a client. ``advance`` moves every unit one step; nothing moves by itself.

    ``refuse_requests``/``lose_answers``: how many of the next calls do not arrive, or arrive but go unanswered.
    ``failing``: unit id to the reason with which its loading fails. ``pushes`` keeps every accepted Desired.
    """

    name: str
    desired: Desired | None = None
    states: dict[str, UnitState] = field(default_factory=dict)
    failing: dict[str, Reason] = field(default_factory=dict)
    refuse_requests: int = 0
    lose_answers: int = 0
    sequence: int = 0
    pushes: list[Desired] = field(default_factory=list)
    inferences: list[tuple[str, Target, dict[str, Any]]] = field(default_factory=list)
    measured: list[tuple[str, Target, BinaryRequest]] = field(default_factory=list)
    answers: deque[dict[str, Any] | NodeClientError] = field(default_factory=deque)
    exposition: Exposition = field(default_factory=lambda: Exposition("text/plain", b""))
    log: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def connect(self, address: NodeAddress) -> FakeNodeClient:
        """Return a client, whatever the address; matches ``Connect``."""
        return FakeNodeClient(self)

    def accept(self, desired: Desired) -> None:
        """Take a desired state, or refuse it as a real node does."""
        known = self.desired
        if known is not None and known.epoch == desired.epoch:
            if desired.generation < known.generation:
                text = f"generation {desired.generation} is older than {known.generation}"
                raise NodeClientError(NodeErrorCode.CONFLICT, text)
            if desired.generation == known.generation and desired != known:
                raise NodeClientError(NodeErrorCode.CONFLICT, f"generation {desired.generation} is known differently")
        if desired == known:
            return
        self.desired = desired
        self.pushes.append(desired)
        wanted = {unit.unit for model in desired.models for unit in model.units}
        self.states = {unit: self.states.get(unit, UnitState.ABSENT) for unit in wanted}
        self._touch()

    def advance(self, steps: int = 1) -> None:
        """Move each unit ``steps`` steps towards ready, or to failed when it is in ``failing``."""
        for _ in range(steps):
            for unit, state in self.states.items():
                if state is UnitState.LOADING and unit in self.failing:
                    self.states[unit] = UnitState.FAILED
                elif state is UnitState.ABSENT:
                    self.states[unit] = _PATH[0]
                elif state in _PATH[:-1]:
                    self.states[unit] = _PATH[_PATH.index(state) + 1]
            self._touch()

    def restart(self) -> None:
        """Come back with the stored desired state and nothing loaded."""
        self.states = dict.fromkeys(self.states, UnitState.ABSENT)
        self.sequence = 0
        self._touch()

    def observed(self) -> Observed:
        """Return what a real node would report now."""
        desired = self.desired
        if desired is None:
            return Observed(node=self.name, epoch=0, generation_seen=0, generation_applied=0, sequence=self.sequence)
        settled = all(state in {UnitState.READY, UnitState.FAILED} for state in self.states.values())
        return Observed(
            node=self.name,
            epoch=desired.epoch,
            generation_seen=desired.generation,
            generation_applied=desired.generation if settled else max(desired.generation - 1, 0),
            sequence=self.sequence,
            models=tuple(
                self._unit(model.name, unit.unit, unit.version) for model in desired.models for unit in model.units
            ),
            draining=desired.drain is not None,
        )

    def _unit(self, name: str, unit: str, version: int) -> ObservedUnit:
        state = self.states[unit]
        reason = self.failing.get(unit) if state is UnitState.FAILED else None
        return ObservedUnit(name=name, unit=unit, version=version, state=state, reason=reason)

    def _touch(self) -> None:
        self.sequence += 1
        self.changed.set()


class FakeNodeClient:
    """Client of a FakeNode; see NodeClient."""

    def __init__(self, node: FakeNode) -> None:
        self._node = node

    async def put_desired(self, desired: Desired) -> Observed:
        self._arrive()
        # Through JSON, as on the wire: what cannot be written or read fails here too.
        self._node.accept(Desired.from_json(desired.to_json()))
        return self._answer()

    async def observed(self, *, after: int | None, timeout_seconds: float) -> Observed:
        self._arrive()
        while after is not None and self._node.sequence <= after:
            self._node.changed.clear()
            try:
                await asyncio.wait_for(self._node.changed.wait(), timeout_seconds)
            except TimeoutError:
                break
        return self._answer()

    async def infer(
        self, model: str, body: dict[str, Any], *, target: Target, timeout_seconds: float
    ) -> dict[str, Any]:
        self._arrive()
        self._node.inferences.append((model, target, body))
        answer = self._node.answers.popleft()
        if isinstance(answer, NodeClientError):
            raise answer
        return answer

    async def measure(
        self, model: str, request: BinaryRequest, *, target: Target, timeout_seconds: float
    ) -> dict[str, Any]:
        self._arrive()
        self._node.measured.append((model, target, request))
        if self._node.states.get(target.unit) is not UnitState.READY:
            raise NodeClientError(NodeErrorCode.UNAVAILABLE, f"unit {target.unit} is not at ready state")
        if self._node.answers and isinstance(refusal := self._node.answers[0], NodeClientError):
            raise refusal
        await asyncio.sleep(0)
        return {"outputs": [], "timing": {"queue_us": 10, "compute_us": 40}}

    async def logs(self, *, tail: int) -> list[str]:
        self._arrive()
        return self._node.log[-tail:]

    async def metrics(self) -> Exposition:
        self._arrive()
        return dataclasses.replace(self._node.exposition)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def _arrive(self) -> None:
        if self._node.refuse_requests:
            self._node.refuse_requests -= 1
            raise NodeClientError(NodeErrorCode.UNREACHABLE, f"{self._node.name} cannot be reached: connection refused")

    def _answer(self) -> Observed:
        if self._node.lose_answers:
            self._node.lose_answers -= 1
            raise NodeClientError(NodeErrorCode.TIMEOUT, f"{self._node.name} did not answer in time.")
        return self._node.observed()
