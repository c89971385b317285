"""Whether a change may start in an environment now: facts and the time in, a verdict with every reason out. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from registry.domain.checks import CHECK_KINDS, check_kind
from registry.domain.texts import gettext as _
from registry.domain.windows import Window, closing_at, opening
from registry.errors import ValidationFailed

MAX_WAIT_MINUTES = 30 * 24 * 60
MAX_APPROVALS = 10


@dataclass(frozen=True, slots=True)
class RequiredCheck:
    """A check that every version in a plan must have passed; ``allow_warn`` takes a warning for a pass."""

    kind: str
    allow_warn: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the document kept with the environment."""
        return {"kind": self.kind, "allow_warn": self.allow_warn}

    def is_met(self, verdict: str | None) -> bool:
        """Say whether a verdict is good enough; None: there is none."""
        return verdict == "pass" or (self.allow_warn and verdict == "warn")


@dataclass(frozen=True, slots=True)
class Rules:
    """What an environment asks of a change. ``approvals`` 0: nobody has to approve.

    ``approvers`` (ids) and those with at least ``approver_role`` are the only ones whose approval counts; with neither,
    everybody's does who has the role to approve.
    """

    approvals: int = 0
    approvers: frozenset[uuid.UUID] = frozenset()
    approver_role: str = ""
    checks: tuple[RequiredCheck, ...] = ()
    wait_minutes: int = 0
    windows: tuple[Window, ...] = ()

    @property
    def names_approvers(self) -> bool:
        """Whether only some may approve."""
        return bool(self.approvers or self.approver_role)


@dataclass(frozen=True, slots=True)
class CheckedVersion:
    """A version of the plan and the verdict of each kind of check that it has."""

    label: str
    format: str
    verdicts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known about a request: approvals and wishes for changes that count, when it was approved, its checks."""

    approvals: int = 0
    changes_requested: int = 0
    approved_at: datetime | None = None
    versions: tuple[CheckedVersion, ...] = ()


class Standing(StrEnum):
    """How one rule stands."""

    MET = "met"
    UNMET = "unmet"
    WAITS = "waits"


@dataclass(frozen=True, slots=True)
class Finding:
    """How one rule stands, in a sentence. ``until`` is when a waiting one is met, None when that is not known yet."""

    rule: str
    standing: Standing
    sentence: str
    until: datetime | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the finding for answers of the API."""
        return {
            "rule": self.rule,
            "standing": str(self.standing),
            "sentence": self.sentence,
            "until": self.until.isoformat() if self.until is not None else None,
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """All findings. Denied when any rule is unmet, else waiting when any waits, else allowed."""

    findings: tuple[Finding, ...] = ()

    @property
    def is_denied(self) -> bool:
        """Whether something must happen first that no clock brings."""
        return any(finding.standing is Standing.UNMET for finding in self.findings)

    @property
    def is_allowed(self) -> bool:
        """Whether the change may start now."""
        return all(finding.standing is Standing.MET for finding in self.findings)

    @property
    def until(self) -> datetime | None:
        """When it may start by the clock alone; None when it may now, when it is denied, or when that is not known."""
        times = [finding.until for finding in self.findings if finding.until is not None]
        return max(times) if times and not self.is_denied else None

    @property
    def reasons(self) -> tuple[str, ...]:
        """The sentences of all rules that are not met."""
        return tuple(finding.sentence for finding in self.findings if finding.standing is not Standing.MET)


@dataclass(frozen=True, slots=True)
class Timing:
    """What the clock alone asks of a change that nothing else holds up.

    ``opens_at`` is when the windows ``closed_by`` let it start, None when they are open or (``is_shut``) do not open in
    sight. ``wait_minutes`` begin when nothing else is missing, so they have no moment yet.
    """

    opens_at: datetime | None = None
    closed_by: str = ""
    is_shut: bool = False
    wait_minutes: int = 0

    def __bool__(self) -> bool:
        """Whether it holds anything up."""
        return self.opens_at is not None or self.is_shut or bool(self.wait_minutes)


def timing(windows: Sequence[Window], wait_minutes: int, now: datetime) -> Timing:
    """Return what the clock asks of a change that is asked for now."""
    ready = now + timedelta(minutes=wait_minutes)
    opens = opening(windows, ready)
    if opens == ready:
        return Timing(wait_minutes=wait_minutes)
    return Timing(opens, closing_at(windows, ready), opens is None, wait_minutes)


def judge(rules: Rules, facts: Facts, now: datetime) -> Verdict:
    """Return how a request stands. The wait begins with the approval; the windows are looked at when it has ended."""
    findings = [*_approvals(rules, facts), *_checks(rules, facts.versions)]
    ready = now
    if rules.wait_minutes:
        wait = _wait(rules.wait_minutes, facts.approved_at, now)
        findings.append(wait)
        ready = max(now, wait.until or now)
    if rules.windows:
        findings.append(_windows(rules.windows, now, ready))
    return Verdict(tuple(findings))


def read_checks(documents: object, *, field: str = "required_checks") -> tuple[RequiredCheck, ...]:
    """Read required checks from JSON: objects with ``kind`` and ``allow_warn``, each kind once.

    Raises:
        ValidationFailed: no such kind, or a wrong type.
    """
    if not isinstance(documents, list | tuple) or len(documents) > 2 * len(CHECK_KINDS):
        raise _bad(field, _("Required checks are a list."))
    found: dict[str, RequiredCheck] = {}
    for index, document in enumerate(documents):
        where = f"{field}[{index}]"
        if not isinstance(document, Mapping) or not set(document) <= {"kind", "allow_warn"}:
            raise _bad(where, _("A required check has the fields kind and allow_warn."))
        kind, allow_warn = document.get("kind"), document.get("allow_warn", False)
        if not isinstance(kind, str) or check_kind(kind) is None:
            raise _bad(f"{where}.kind", _("There is no such kind of check."))
        if not isinstance(allow_warn, bool):
            raise _bad(f"{where}.allow_warn", _("This is true or false."))
        if kind in found:
            raise _bad(f"{where}.kind", _("This kind is named twice."))
        found[kind] = RequiredCheck(kind, allow_warn)
    return tuple(found.values())


def _approvals(rules: Rules, facts: Facts) -> Iterable[Finding]:
    if rules.approvals:
        sentence = _("%(given)d of %(needed)d approvals.") % {"given": facts.approvals, "needed": rules.approvals}
        yield Finding("approvals", _met(facts.approvals >= rules.approvals), sentence)
    if facts.changes_requested:
        sentence = _("%(count)d asked for changes.") % {"count": facts.changes_requested}
        yield Finding("changes", Standing.UNMET, sentence)


def _checks(rules: Rules, versions: Sequence[CheckedVersion]) -> Iterable[Finding]:
    for required in rules.checks:
        kind = check_kind(required.kind)
        label = kind.label if kind is not None else required.kind
        for version in versions:
            if kind is not None and not kind.applies_to(version.format):
                continue
            verdict = version.verdicts.get(required.kind)
            words = {"check": label, "version": version.label, "verdict": verdict or ""}
            sentence = (
                _("The check “%(check)s” of %(version)s: %(verdict)s.")
                if verdict is not None
                else _("%(version)s has no check “%(check)s” yet.")
            ) % words
            yield Finding("checks", _met(required.is_met(verdict)), sentence)


def _wait(minutes: int, approved_at: datetime | None, now: datetime) -> Finding:
    if approved_at is None:
        sentence = _("It waits %(minutes)d minutes once nothing else is missing.") % {"minutes": minutes}
        return Finding("wait", Standing.WAITS, sentence, now + timedelta(minutes=minutes))
    until = approved_at + timedelta(minutes=minutes)
    if now >= until:
        return Finding("wait", Standing.MET, _("The wait of %(minutes)d minutes is over.") % {"minutes": minutes})
    return Finding("wait", Standing.WAITS, _("It waits %(minutes)d minutes.") % {"minutes": minutes}, until)


def _windows(windows: Sequence[Window], now: datetime, ready: datetime) -> Finding:
    opens = opening(windows, ready)
    if opens is None:
        return Finding("window", Standing.UNMET, _("No window for changes opens in the next 400 days."))
    if opens <= now:
        return Finding("window", Standing.MET, _("Changes may start now."))
    if opens == ready:
        return Finding("window", Standing.WAITS, _("Changes may start when the wait is over."), opens)
    sentence = _("Closed for changes by: %(names)s.") % {"names": closing_at(windows, ready)}
    return Finding("window", Standing.WAITS, sentence, opens)


def _met(is_met: bool) -> Standing:
    return Standing.MET if is_met else Standing.UNMET


def _bad(field: str, message: str) -> ValidationFailed:
    return ValidationFailed(message, errors=[{"field": field, "message": message}])
