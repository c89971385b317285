"""Makes ONNX of an upload that nodes do not serve as it is: in the sandbox, as a version of its own."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.db import transaction
from django.utils.translation import gettext as _

import conversion.process
import serving_node.contract
from registry.domain.actors import Actor
from registry.domain.storable import storable_text
from registry.errors import RegistryError, StorageFailed
from registry.models import CodeFormats, ModelVersion, Project, VersionFile
from registry.services.blobs import blob_keep
from registry.services.conversions import CONVERSION, conversion_attach, conversion_summary
from registry.services.versions import version_add_file, version_create, version_divide, version_submit
from registry.storage import artifact_store
from serving_node.contract.conversion import ConversionReport, ConversionVerdict, judged
from serving_node.contract.errors import ContractError
from workers.checks.config_check import MODEL_FILE
from workers.checks.formats import reads_as_code
from workers.checks.verdicts import Finding, NeverRun, VersionRejected, check
from workers.locks.leases import Lease
from workers.sandbox import Command, Ending, Limits, Mount, Outcome, SandboxUnavailable, run

_PROGRAM = Path(__file__).resolve().parent / "conversion_program.py"
_SCRATCH_BYTES = 1 << 30
_LOG_BYTES = 32768
_MAX_HEAD = 4 << 20
_PIECE = 1 << 20


class NeedsConversion(VersionRejected):
    """The version's only model is ``path``, of which ONNX can be made; the message says how a person does that."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path


def convert(version: ModelVersion, needed: NeedsConversion, lease: Lease) -> list[dict[str, Any]]:
    """Convert the file and hand it in as a new version; return that as ``{"model", "version", "operation"}``.

    The version itself ends as abandoned; the new one holds its other files, its facts and the report, which names the
    file that was converted.

    Raises:
        VersionRejected: it cannot be converted, or not here; the message says what to do instead.
        StorageFailed: the store did not give or take the bytes; trying again may help.
        LeaseLost: the operation was cancelled.
    """
    file = version.files.select_related("blob").get(path=needed.path)
    with _folder(version) as folder, check(version, CONVERSION) as finding:
        source = folder / "in" / Path(needed.path).name
        artifact_store().copy_to(file.blob.sha256, source)
        _require_allowed(version, source, needed)
        lease.report(50, _("Converting %(path)s to ONNX") % {"path": needed.path})
        report = _converted(source, folder, finding, needed, lease)
        lease.check()
        if report.source.sha256 != file.blob.sha256:
            raise VersionRejected(_("The conversion reports about another file than was given to it."))
        finding.evidence["report"] = report.to_json()
        finding.summary = conversion_summary(report)
        if report.verdict is ConversionVerdict.FAIL:
            raise VersionRejected(_("The converted file answers differently. %(what)s") % {"what": finding.summary})
        return [_handed_in(version, file, report, folder / MODEL_FILE)]


def _require_allowed(version: ModelVersion, source: Path, needed: NeedsConversion) -> None:
    project = Project.objects.get(models=version.model_id)
    if project.code_formats == CodeFormats.FORBID and reads_as_code(source):
        text = _("Project “%(project)s” does not allow code in versions, and reading %(path)s runs some.")
        raise VersionRejected(text % {"project": project.slug, "path": needed.path})
    if not settings.SANDBOX:
        raise NeverRun(str(needed))


def _converted(source: Path, folder: Path, finding: Finding, needed: NeedsConversion, lease: Lease) -> ConversionReport:
    """Return the report, with the new file in the folder. Raises VersionRejected."""
    with (folder / "answer").open("w+b") as answer:
        try:
            outcome = run(_command(source), _limits(), lambda: lease.is_lost, answer)
        except SandboxUnavailable as error:
            raise NeverRun(f"{needed} {error}") from error
        lease.check()
        finding.log = outcome.output[-_LOG_BYTES:]
        if outcome.ending is not Ending.ITSELF:
            raise VersionRejected(f"{_ending(outcome)} {needed}")
        answer.seek(0)
        head = _head(answer, needed)
        if "error" in head:
            raise VersionRejected(f"{storable_text(str(head['error'])[:500])} {needed}")
        try:
            report = judged(ConversionReport.from_json(head["report"]))
        except (ContractError, KeyError) as error:
            raise VersionRejected(_unread(needed)) from error
        with (folder / MODEL_FILE).open("wb") as made:
            shutil.copyfileobj(answer, made, _PIECE)
    return report


def _head(answer: IO[bytes], needed: NeedsConversion) -> dict[str, Any]:
    try:
        head = json.loads(answer.readline(_MAX_HEAD))
    except (ValueError, RecursionError) as error:
        raise VersionRejected(_unread(needed)) from error
    if not isinstance(head, dict):
        raise VersionRejected(_unread(needed))
    return head


def _unread(needed: NeedsConversion) -> str:
    return _("The conversion gave no good report.") + f" {needed}"


def _handed_in(version: ModelVersion, file: VersionFile, report: ConversionReport, made: Path) -> dict[str, Any]:
    """Make the new version and end the old one, both or neither."""
    blob = blob_keep(made)
    # Whoever uploaded it makes the version, with the rights of now.
    actor = Actor.person(version.author, token=version.author_token)
    origin = {"layout": "converted", "file": file.path, "upload": str(version.pk)}
    others = version.files.exclude(pk=file.pk).select_related("blob")
    try:
        with transaction.atomic():
            new = version_create(
                model=version.model,
                source=version.source,
                metadata={**version.metadata, "import": origin},
                metrics=version.metrics,
                parent=version.parent,
                taken_from=version,
                actor=actor,
            )
            version_add_file(version=new, path=MODEL_FILE, blob=blob)
            for other in others:
                version_add_file(version=new, path=other.path, blob=other.blob)
            conversion_attach(version=new, report=report, actor=actor)
            operation = version_submit(version=new, actor=actor)
            version_divide(version=version, reason=_("Converted into another version of the model."))
    except StorageFailed:
        raise
    except RegistryError as error:
        raise VersionRejected(error.message, errors=error.errors) from error
    return {"model": version.model.slug, "version": str(new.pk), "operation": str(operation.pk)}


@contextmanager
def _folder(version: ModelVersion) -> Iterator[Path]:
    """Give an empty folder that is named after the version, so that the next attempt removes what this one left."""
    folder = Path(settings.STAGING_DIR) / f"convert-{version.pk}"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        try:
            (folder / "in").mkdir(parents=True)
        except OSError as error:
            raise StorageFailed(_("The file cannot be copied: %(why)s.") % {"why": error.strerror}) from error
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _command(source: Path) -> Command:
    source.parent.chmod(0o755)  # for the user of the sandbox
    source.chmod(0o644)
    mounts = (
        Mount(Path(serving_node.contract.__file__).resolve().parent.parent, "/flotilla/serving_node"),
        Mount(Path(conversion.process.__file__).resolve().parent, "/flotilla/conversion"),
        Mount(_PROGRAM, "/flotilla/program.py"),
        Mount(source.parent.resolve(), "/files"),
    )
    # Its own deadline comes first, so that it can say at which step it was.
    seconds = str(0.9 * settings.SANDBOX_SECONDS)
    return Command(
        (sys.executable, "-s", "/flotilla/program.py", f"/files/{source.name}", str(_memory()), seconds),
        mounts=mounts,
        environment={"PYTHONPATH": "/flotilla", "OMP_NUM_THREADS": "2"},
        hidden=(Path(settings.DATA_DIR).absolute(), Path(settings.STAGING_DIR).absolute()),
    )


def _memory() -> int:
    return int(settings.SANDBOX_MEMORY_BYTES)


def _limits() -> Limits:
    return Limits(
        seconds=float(settings.SANDBOX_SECONDS),
        memory_bytes=_memory(),
        scratch_bytes=2 * _SCRATCH_BYTES,
        file_bytes=_SCRATCH_BYTES,
        cpu_seconds=4 * settings.SANDBOX_SECONDS,
        answer_bytes=_SCRATCH_BYTES + _MAX_HEAD,
    )


def _ending(outcome: Outcome) -> str:
    words = {"seconds": settings.SANDBOX_SECONDS, "size": settings.SANDBOX_MEMORY_BYTES >> 20}
    match outcome.ending:
        case Ending.DEADLINE:
            return _("The conversion took longer than %(seconds)d seconds and was ended.") % words
        case Ending.MEMORY:
            return _("The conversion took more than %(size)d MiB of memory and was ended.") % words
        case _:
            return _("The conversion was stopped.")
