"""Reports of conversions: what an uploaded file was made from, and how far its answers are from that file's."""

from __future__ import annotations

from django.db import transaction
from django.utils.translation import gettext as _

from registry import telemetry
from registry.domain.actors import Actor
from registry.domain.storable import storable, storable_text
from registry.errors import Immutable
from registry.models import Check, ModelVersion, VersionFile, VersionState
from registry.services import audit
from registry.services.checks import check_finish, check_start
from registry.services.permissions import require
from serving_node.contract.conversion import ConversionReport, ConversionVerdict, judged, worst_output

CONVERSION = "conversion"
"""Kind of the check that holds the report."""


def conversion_attach(*, version: ModelVersion, report: ConversionReport, actor: Actor) -> Check:
    """Store the report of whoever converted the file that this version will hold, as its check ``conversion``.

    The verdict is made here, from the report's figures. ``source["converted_from"]`` of the version then names the
    file that was converted, and the newest version of the project that holds it, if one does. The checks refuse a
    version whose report fails, or is about other files.

    Raises:
        Immutable: the version is not uploading any more.
    """
    require(actor, "version.write", version)
    report = judged(report)
    with transaction.atomic():
        locked = ModelVersion.objects.select_for_update().get(pk=version.pk)
        if locked.state != VersionState.UPLOADING:
            raise Immutable(_("This version is %(state)s; make a new one.") % {"state": locked.state})
        origin = {"file": report.source.name, "sha256": report.source.sha256, **_parent(version, report.source.sha256)}
        version.source = storable({**locked.source, "converted_from": origin})
        version.save(update_fields=["source"])
        check = check_start(version=version, kind=CONVERSION)
        check_finish(
            check=check,
            verdict=report.verdict.value,
            summary=conversion_summary(report),
            evidence={"report": report.to_json(), "converted_from": origin},
            log="\n".join(report.notes),
        )
        audit.record(
            actor=actor,
            action="version.conversion",
            obj=version,
            after={"verdict": report.verdict.value, "converted_from": version.source["converted_from"]},
        )
        telemetry.publish_on_commit(f"version:{version.pk}", project=version.model.project_id)
    return check


def conversion_summary(report: ConversionReport) -> str:
    """Return the sentence that stands beside the verdict."""
    rows = sum(report.samples.rows)
    words = {"steps": " + ".join(report.steps), "file": report.source.name, "rows": rows}
    output = worst_output(report)
    if output is None:
        return storable_text(_("%(file)s (%(steps)s): no output was compared.") % words)
    words |= {"output": output.name, "worst": f"{output.worst:.2g}", "problem": output.problem}
    if output.problem:
        text = _("%(file)s (%(steps)s): output “%(output)s” %(problem)s.") % words
    elif report.verdict is ConversionVerdict.FAIL and (output.is_exact or output.non_finite):
        differing = output.differing if output.is_exact else output.non_finite
        words |= {"differing": differing, "elements": output.elements}
        text = _("%(file)s (%(steps)s): %(differing)d of %(elements)d elements of “%(output)s” are not equal.") % words
    else:
        text = (
            _("%(file)s (%(steps)s), rows compared: %(rows)d; the largest difference is %(worst)s of what is allowed.")
            % words
        )
    return storable_text(text)


def _parent(version: ModelVersion, sha256: str) -> dict[str, str | int]:
    """Return the newest numbered version of the project that holds the content, of the same model if there is one."""
    held = VersionFile.objects.filter(
        blob__sha256=sha256, version__model__project=version.model.project_id, version__number__isnull=False
    ).select_related("version__model")
    newest = held.order_by("-version__created_at")
    found = newest.filter(version__model=version.model_id).first() or newest.first()
    return {"model": found.version.model.slug, "version": found.version.number or 0} if found else {}
