"""How a check says its verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from django.utils.translation import gettext as _

from registry.errors import StorageFailed
from registry.models import Check, ModelVersion, Verdict
from registry.services.versions import check_finish, check_start
from workers.locks.leases import LeaseLost


class CheckFailed(Exception):
    """What was looked at is not as it must be; the message is the one sentence that says why."""

    def __init__(self, message: str, *, errors: list[dict[str, str]] | None = None) -> None:
        super().__init__(message)
        self.errors = errors or []


class VersionRejected(CheckFailed):
    """The version cannot become ready."""


class NotChecked(CheckFailed):
    """The check could not be done, so nothing is known; the verdict is error, whatever the reason."""


class NeverRun(VersionRejected, NotChecked):
    """Without that check the version cannot become ready."""


@dataclass(slots=True)
class Finding:
    """Filled in by a check while it runs: what it saw, warnings that do not stop the version, and what was printed."""

    summary: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    log: str = ""


_only: ContextVar[frozenset[str] | None] = ContextVar("only", default=None)


@contextmanager
def recording(kinds: frozenset[str]) -> Iterator[None]:
    """Write down the verdicts of these kinds only; the others are made, because these build on them, and forgotten."""
    token = _only.set(kinds)
    try:
        yield
    finally:
        _only.reset(token)


def is_asked(kind: str) -> bool:
    """Return whether somebody asked for this very check, of a version that has its number."""
    return kind in (_only.get() or ())


@contextmanager
def check(version: ModelVersion, kind: str) -> Iterator[Finding]:
    """Run the block as the check ``kind``: fail on CheckFailed, error on anything else, else pass or warn.

    A lost lease leaves the row running: whoever has the lease now, or the sweep, ends it.
    """
    only = _only.get()
    finding = Finding()
    if only is not None and kind not in only:
        yield finding
        return
    row = check_start(version=version, kind=kind)
    try:
        yield finding
    except CheckFailed as error:
        verdict = Verdict.ERROR if isinstance(error, NotChecked) else Verdict.FAIL
        _finish(row, verdict, str(error), finding, [problem["message"] for problem in error.errors])
        raise
    except LeaseLost:
        raise
    except StorageFailed as error:
        _finish(row, Verdict.ERROR, error.message, finding, [])
        raise
    except Exception:
        _finish(row, Verdict.ERROR, _("The check itself failed; it will be tried again."), finding, [])
        raise
    verdict = Verdict.WARN if finding.warnings else Verdict.PASS
    _finish(row, verdict, finding.warnings[0] if finding.warnings else finding.summary, finding, finding.warnings)


def _finish(row: Check, verdict: str, summary: str, finding: Finding, lines: list[str]) -> None:
    evidence: Mapping[str, Any] = finding.evidence
    log = "\n".join([*lines, finding.log] if finding.log else lines)
    check_finish(check=row, verdict=verdict, summary=summary, evidence=evidence, log=log)
