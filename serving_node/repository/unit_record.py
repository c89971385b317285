"""What a node knows about one unit while it works on it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from serving_node.contract.control import ObservedUnit, Reason, Unit
from serving_node.contract.states import UnitState
from serving_node.repository.convergence import UnitFacts, models_used
from serving_node.scheduling.served_model import ServedModel

_RETRY_FIRST_SECONDS = 1.0
_RETRY_LIMIT_SECONDS = 60.0


@dataclass(slots=True)
class UnitRecord:
    """One unit of one served name. Changed on the event loop's thread only, except ``bytes_done``.

    States: a step sets (state, busy); its end clears busy, or sets FAILED with a reason, and ``retry_at`` when the
    failure may pass by itself.
    """

    name: str
    unit: Unit
    state: UnitState = UnitState.ABSENT
    busy: bool = False
    retry_at: float | None = None
    failures: int = 0
    reason: Reason | None = None
    bytes_done: int = 0
    load_seconds: float = 0.0
    build_log: str = ""
    runs_code: bool = False
    served: ServedModel | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def bytes_total(self) -> int:
        """Bytes of all files, each content counted once."""
        return sum({file.sha256: file.size for file in self.unit.files}.values())

    def facts(self) -> UnitFacts:
        """Return what the planner needs."""
        return UnitFacts(self.state, self.busy, self.retry_at, models_used(self.unit), self.runs_code)

    def begin(self, state: UnitState) -> None:
        """A step runs from now on."""
        self.state, self.busy, self.retry_at = state, True, None
        if state is not UnitState.UNLOADING:
            # The reason of an earlier failure is shown until the unit has got past the step that failed.
            self.cancelled = threading.Event() if state is UnitState.FETCHING else self.cancelled

    def end(self, state: UnitState) -> None:
        """The step is done."""
        self.state, self.busy = state, False
        if state is UnitState.READY:
            self.reason, self.failures = None, 0

    def fail(self, reason: Reason, now: float, *, transient: bool) -> None:
        """The step failed; in passing, so that it is retried after a growing pause, or for good."""
        self.state, self.busy, self.reason = UnitState.FAILED, False, reason
        self.failures += 1
        pause = min(_RETRY_FIRST_SECONDS * 2 ** min(self.failures - 1, 10), _RETRY_LIMIT_SECONDS)
        self.retry_at = now + pause if transient else None

    def reset(self) -> None:
        """A new generation: what failed starts again from the beginning."""
        if self.state is UnitState.FAILED:
            self.state, self.retry_at, self.failures = UnitState.ABSENT, None, 0

    def observed(self, routed_weight: int) -> ObservedUnit:
        """Return what the control plane is told."""
        return ObservedUnit(
            name=self.name,
            unit=self.unit.unit,
            version=self.unit.version,
            state=self.state,
            reason=self.reason,
            bytes_done=self.bytes_done,
            bytes_total=self.bytes_total,
            memory_bytes=self.served.memory_bytes if self.served else 0,
            load_seconds=self.load_seconds,
            manifest_digest=self.unit.manifest_digest,
            routed_weight=routed_weight,
            build_log=self.build_log,
        )
