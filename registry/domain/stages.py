"""The stages of a change, from the wish to the last node: what each waits for, since when, and until when. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from registry.domain.protection import Standing, Verdict
from registry.domain.texts import gettext as _


class StageState(StrEnum):
    """How a stage stands. ``waits``: its time has not come; ``paused``: somebody holds it."""

    DONE = "done"
    CURRENT = "current"
    WAITS = "waits"
    PAUSED = "paused"
    AHEAD = "ahead"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage. ``gate`` says what it waits for, or what ended it.

    ``until`` is when the clock does what ``then`` says: ``starts``, ``expires`` or ``gives_up``. ``percent`` of what it
    loads is there.
    """

    name: str
    state: StageState
    gate: str
    began_at: datetime | None = None
    ended_at: datetime | None = None
    until: datetime | None = None
    then: str = ""
    percent: int | None = None

    @property
    def seconds(self) -> float | None:
        """How long it took; None when it has not ended."""
        if self.began_at is None or self.ended_at is None:
            return None
        return max(0.0, (self.ended_at - self.began_at).total_seconds())


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """A request for approval. ``verdict``: how the rules stand now; ``has_clock``: they name a wait or windows."""

    state: str
    asked_at: datetime
    expires_at: datetime
    verdict: Verdict
    has_clock: bool
    approved_at: datetime | None = None
    applied_at: datetime | None = None
    due_at: datetime | None = None
    bypassed_by: str = ""


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    """A rollout. ``verifying_at`` and ``aborting_at`` are when it came there last; None: it did not.

    ``waits_for`` and ``percent`` tell how far the nodes are; ``gives_up_at`` is None where it waits for ever.
    """

    phase: str
    reason: str
    began_at: datetime
    can_revert: bool
    verifying_at: datetime | None = None
    aborting_at: datetime | None = None
    finished_at: datetime | None = None
    waits_for: str = ""
    percent: int = 0
    gives_up_at: datetime | None = None


def stages(request: RequestFacts | None, rollout: RolloutProgress | None) -> tuple[Stage, ...]:
    """Return the stages of a change in their order.

    Without a request nobody had to be asked and no time was waited for; without a rollout it has not begun.
    """
    return (*(_asked(request) if request is not None else ()), *_nodes(rollout))


def _asked(request: RequestFacts) -> Iterator[Stage]:
    begun, ended = request.asked_at, request.approved_at or request.applied_at
    if request.bypassed_by:
        gate = _("%(who)s bypassed the rules.") % {"who": request.bypassed_by}
        yield Stage("approval", StageState.SKIPPED, gate, begun, request.applied_at)
    elif request.state == "open":
        gate = _reasons(request.verdict, Standing.UNMET) or _("Looked at again within a minute.")
        yield Stage("approval", StageState.CURRENT, gate, begun, until=request.expires_at, then="expires")
    else:
        yield Stage("approval", StageState.DONE, _("Nothing was missing any more."), begun, ended)
    if not request.has_clock or request.bypassed_by:
        return
    gate = _reasons(request.verdict, Standing.WAITS) or _("Waits and windows of the environment.")
    if request.state == "open":
        yield Stage("start", StageState.AHEAD, gate)
    elif request.state == "approved":
        yield Stage("start", StageState.WAITS, gate, request.approved_at, until=request.due_at, then="starts")
    else:
        yield Stage("start", StageState.DONE, _("Its time had come."), request.approved_at, request.applied_at)


def _nodes(rollout: RolloutProgress | None) -> Iterator[Stage]:
    load, verify = _("Every unit loads on every node that answers."), _("Every route is in force on them.")
    if rollout is None:
        yield Stage("load", StageState.AHEAD, load)
        yield Stage("verify", StageState.AHEAD, verify)
        return
    began, verifying, stopped = rollout.began_at, rollout.verifying_at, rollout.aborting_at
    given_up = stopped or (rollout.finished_at if rollout.phase != "succeeded" else None)
    if verifying is not None:
        yield Stage("load", StageState.DONE, load, began, verifying)
        yield _last_gate(rollout, verifying, given_up, verify)
    elif given_up is not None:
        yield _stopped("load", rollout, began, given_up)
        yield Stage("verify", StageState.SKIPPED, verify)
    else:
        yield _under_way("load", rollout, began, load)
        yield Stage("verify", StageState.AHEAD, verify)
    if stopped is not None:
        yield _back(rollout, stopped)


def _last_gate(rollout: RolloutProgress, since: datetime, given_up: datetime | None, gate: str) -> Stage:
    if rollout.phase == "succeeded":
        return Stage("verify", StageState.DONE, gate, since, rollout.finished_at)
    if given_up is not None:
        return _stopped("verify", rollout, since, given_up)
    return _under_way("verify", rollout, since, gate)


def _under_way(name: str, rollout: RolloutProgress, since: datetime, gate: str) -> Stage:
    if rollout.phase == "paused":
        return Stage(name, StageState.PAUSED, rollout.reason, since, percent=rollout.percent)
    waits_for, until = rollout.waits_for or gate, rollout.gives_up_at
    then = "gives_up" if until is not None else ""
    return Stage(name, StageState.CURRENT, waits_for, since, until=until, then=then, percent=rollout.percent)


def _stopped(name: str, rollout: RolloutProgress, since: datetime, at: datetime) -> Stage:
    # A newer change took its place: nothing went wrong.
    state = StageState.SKIPPED if rollout.phase == "superseded" else StageState.FAILED
    return Stage(name, state, rollout.reason, since, at)


def _back(rollout: RolloutProgress, since: datetime) -> Stage:
    gate = _("What was there before is in force again on every node that answers.")
    ended = rollout.finished_at
    if rollout.phase == "superseded":
        return Stage("back", StageState.SKIPPED, gate, since, ended)
    if rollout.phase == "aborting":
        return _under_way("back", rollout, since, gate)
    if not rollout.can_revert:
        return Stage("back", StageState.FAILED, _("There was nothing before it to go back to."), since, ended)
    return Stage("back", StageState.DONE, gate, since, ended)


def _reasons(verdict: Verdict, standing: Standing) -> str:
    return " ".join(finding.sentence for finding in verdict.findings if finding.standing is standing)
