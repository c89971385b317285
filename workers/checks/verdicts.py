"""How a check says its verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.utils.translation import gettext as _

from registry.errors import StorageFailed
from registry.models import Check, ModelVersion, Verdict
from registry.services.versions import check_finish, check_start


class VersionRejected(Exception):
    """The version cannot become ready; the message is the one sentence that says why."""

    def __init__(self, message: str, *, errors: list[dict[str, str]] | None = None) -> None:
        super().__init__(message)
        self.errors = errors or []


@dataclass(slots=True)
class Finding:
    """Filled in by a check while it runs: what it saw, and warnings that do not stop the version."""

    summary: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


@contextmanager
def check(version: ModelVersion, kind: str) -> Iterator[Finding]:
    """Run the block as the check ``kind``: fail on VersionRejected, error on anything else, else pass or warn."""
    row = check_start(version=version, kind=kind)
    finding = Finding()
    try:
        yield finding
    except VersionRejected as error:
        _finish(row, Verdict.FAIL, str(error), finding.evidence, [problem["message"] for problem in error.errors])
        raise
    except StorageFailed as error:
        _finish(row, Verdict.ERROR, error.message, finding.evidence, [])
        raise
    except Exception:
        _finish(row, Verdict.ERROR, _("The check itself failed; it will be tried again."), finding.evidence, [])
        raise
    verdict = Verdict.WARN if finding.warnings else Verdict.PASS
    summary = finding.warnings[0] if finding.warnings else finding.summary
    _finish(row, verdict, summary, finding.evidence, finding.warnings)


def _finish(row: Check, verdict: str, summary: str, evidence: Mapping[str, Any], lines: list[str]) -> None:
    check_finish(check=row, verdict=verdict, summary=summary, evidence=evidence, log="\n".join(lines))
