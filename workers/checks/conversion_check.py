"""The report of a conversion against the files that came: it must be about one of them, and must not fail."""

from __future__ import annotations

from collections.abc import Collection

from django.utils.translation import gettext as _

from registry.models import Check, ModelVersion, Verdict
from registry.services.checks import check_finish
from registry.services.conversions import CONVERSION, conversion_summary
from serving_node.contract.conversion import ConversionReport
from workers.checks.verdicts import VersionRejected


def check_conversion(version: ModelVersion, digests: Collection[str], warnings: list[str]) -> None:
    """Judge the report that was attached, if one was. ``digests``: SHA-256 of the files of the version.

    Raises:
        VersionRejected: the report is about another file, or says that the answers differ too much.
    """
    row = Check.objects.filter(version=version, kind=CONVERSION).first()
    if row is None:
        return
    report = ConversionReport.from_json(row.evidence["report"])
    if report.target.sha256 not in digests:
        problem = _("The conversion report is about another file: none here has the SHA-256 %(digest)s.") % {
            "digest": report.target.sha256[:12]
        }
        check_finish(check=row, verdict=Verdict.FAIL, summary=problem, evidence=row.evidence, log=row.log)
        raise VersionRejected(problem)
    if row.verdict == Verdict.FAIL:
        raise VersionRejected(_("The converted file answers differently. %(what)s") % {"what": row.summary})
    if row.verdict == Verdict.WARN:
        warnings.append(conversion_summary(report))
