"""Whether a version is larger than its project and the site want."""

from __future__ import annotations

from collections.abc import Sequence

from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from registry.domain.sizes import Excess, excesses, limits_json, measured
from registry.models import ModelVersion, Project, VersionFile
from registry.selectors.policies import size_limits_of
from workers.checks.verdicts import VersionRejected, check

KIND = "size"


def check_size(version: ModelVersion, files: Sequence[VersionFile], warnings: list[str]) -> None:
    """Measure a version.

    Raises:
        VersionRejected: it is above a limit.
    """
    with check(version, KIND) as finding:
        limits = size_limits_of(Project.objects.get(models=version.model_id))
        found = measured([file.blob.size for file in files])
        largest = max(files, key=lambda file: file.blob.size)
        finding.evidence.update(found=found, limits=limits_json(limits), largest=largest.path)
        above = excesses(found, limits)
        refused = [_sentence(one, largest.path) for one in above if one.is_refused]
        if refused:
            raise VersionRejected(refused[0], errors=[{"field": "files", "message": text} for text in refused])
        finding.warnings += [_sentence(one, largest.path) for one in above]
        warnings.extend(finding.warnings)
        text = ngettext("%(count)d file, %(size)s.", "%(count)d files, %(size)s.", len(files))
        finding.summary = text % {"count": len(files), "size": _size(found["total_bytes"])}


def _sentence(excess: Excess, largest: str) -> str:
    words = {"found": _size(excess.found), "limit": _size(excess.limit), "path": largest}
    match excess.measure:
        case "total_bytes":
            said = _("It has %(found)s in all, more than %(limit)s.") % words
        case "file_bytes":
            said = _("%(path)s has %(found)s, more than %(limit)s.") % words
        case _:
            counts = {"found": excess.found, "limit": excess.limit}
            said = _("It has %(found)d files, more than %(limit)d.") % counts
    if not excess.is_refused:
        return said
    return said + " " + _("Versions of this project may not be larger.")


def _size(count: int) -> str:
    return filesizeformat(count).replace("\N{NO-BREAK SPACE}", " ")
