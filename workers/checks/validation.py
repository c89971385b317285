"""The checks of a submitted version, in order. Each leaves a row; the last one gives the version its number.

May run again from the start at any time: stored uploads stay stored, verdicts are overwritten with the same ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models import Exists, OuterRef
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from registry.domain.paths import clash, path_problem
from registry.errors import StorageFailed, ValidationFailed
from registry.models import (
    ModelVersion,
    Operation,
    OperationState,
    Upload,
    UploadState,
    VersionFile,
    VersionState,
)
from registry.selectors.configs import config_latest
from registry.services.uploads import upload_store
from registry.services.versions import version_accept, version_reject
from registry.storage import artifact_store
from serving_node.contract.control import FileRef
from serving_node.contract.digests import manifest_digest
from serving_node.contract.model_config import ModelConfig
from serving_node.contract.signature import ModelSignature
from workers.checks.arranging import take_apart, wait_for_older
from workers.checks.code_check import check_code
from workers.checks.config_check import CONFIG_FILE, MODEL_FILE, check_config
from workers.checks.conversion_check import check_conversion
from workers.checks.converting import NeedsConversion, convert
from workers.checks.described import DESCRIBED, DESCRIBED_ALONE, described_signature, filled_in
from workers.checks.formats import conversion_advice, describe_content
from workers.checks.licence_check import check_licence
from workers.checks.onnx_file import NotOnnx, OnnxSummary, UnreadableModel, read_onnx
from workers.checks.onnx_limits import RUNTIME, domain_name, limit_problems, operator_warnings
from workers.checks.onnx_signature import signature_of
from workers.checks.pickle_check import check_pickles
from workers.checks.signing_check import check_signed
from workers.checks.size_check import check_size
from workers.checks.unopened import MODEL_FILES, check_unopened, declared_signature, signature_in, unopened_format
from workers.checks.verdicts import VersionRejected, check
from workers.locks.leases import Lease
from workers.scratch import remove_left_behind

FORMAT = "onnx"


def validate_version(operation: Operation, lease: Lease) -> Mapping[str, Any]:
    """Check the version ``operation.subject_id`` and accept or reject it; return ``{"version", "number"}``.

    An upload that is more than one version (a repository...) is taken apart, and one that nodes do not serve as it is
    gets converted: ``number`` is None then, and ``made`` names the versions, ``{"model", "version", "operation"}``
    each.

    Raises:
        VersionRejected: it was rejected, now or in an earlier attempt.
        StorageFailed: the store did not take or give the bytes; trying again may help.
    """
    version = ModelVersion.objects.select_related("model").get(pk=operation.subject_id)
    _remove_copies(version)
    remove_left_behind(version)
    if version.state == VersionState.READY:
        return {"version": str(version.pk), "number": version.number}
    if version.state != VersionState.VALIDATING:
        raise VersionRejected(version.state_reason or _("The version is %(state)s.") % {"state": version.state})
    warnings: list[str] = []
    try:
        apart = take_apart(version, _check_files(version, lease), lease, warnings)
        if apart:
            lease.report(100, _("Taken apart into %(count)d versions") % {"count": len(apart)})
            return {"version": str(version.pk), "number": None, "made": apart}
        number = _run_checks(version, lease, warnings)
    except NeedsConversion as needed:
        return _converted(version, needed, lease)
    except VersionRejected as error:
        lease.check()
        version_reject(version=version, reason=str(error), errors=error.errors)
        raise
    lease.report(100, _("Version %(number)d is ready") % {"number": number})
    return {"version": str(version.pk), "number": number}


def _converted(version: ModelVersion, needed: NeedsConversion, lease: Lease) -> Mapping[str, Any]:
    try:
        made = convert(version, needed, lease)
    except VersionRejected as error:
        lease.check()
        version_reject(version=version, reason=str(error), errors=error.errors)
        raise
    lease.report(100, _("Converted into another version"))
    return {"version": str(version.pk), "number": None, "made": made}


def reject_stranded() -> int:
    """Reject versions whose checks nobody will finish (cancelled, or given up), so that nothing half-made stays."""
    running = Operation.objects.filter(
        kind="validate_version",
        subject_id=OuterRef("pk"),
        state__in=(OperationState.PENDING, OperationState.RUNNING),
    )
    stranded = ModelVersion.objects.filter(state=VersionState.VALIDATING).exclude(Exists(running))
    count = 0
    for version in stranded.select_related("model")[:100]:
        last = Operation.objects.filter(kind="validate_version", subject_id=version.pk).order_by("-created_at").first()
        reason = (last.error or {}).get("message") if last is not None else None
        text = _("The checks could not be finished: %(reason)s") % {"reason": reason or _("they were cancelled.")}
        version_reject(version=version, reason=text)
        _remove_copies(version)
        remove_left_behind(version)
        count += 1
    return count


def recheck(version: ModelVersion, lease: Lease) -> None:
    """Make the checks of a version that has its number once more. Its verdicts change, the version does not.

    Raises:
        VersionRejected: it would not become ready today.
        StorageFailed: the store did not give the bytes.
    """
    _remove_copies(version)
    _looked_at(version, lease)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the checks found out about a version that passed them. ``config`` is to become the model's first."""

    files: list[VersionFile]
    format: str
    signature: ModelSignature
    config: ModelConfig | None
    warnings: list[str]


def _run_checks(version: ModelVersion, lease: Lease, warnings: list[str]) -> int:
    seen = _looked_at(version, lease)
    wait_for_older(version, lease)
    lease.check()
    return version_accept(
        version=version,
        signature=seen.signature,
        format=seen.format,
        manifest_digest=_manifest(seen.files),
        size=sum(file.blob.size for file in seen.files),
        warnings=[*warnings, *seen.warnings],
        config=seen.config,
    )


def _looked_at(version: ModelVersion, lease: Lease) -> _Seen:
    warnings: list[str] = []
    lease.report(5, _("Storing files"))
    files = _check_files(version, lease)
    check_size(version, files, warnings)
    check_conversion(version, {file.blob.sha256 for file in files}, warnings)
    # Before anything reads the model.
    check_signed(version, files, warnings)
    with _local_copies(version, files, lease) as folder:
        lease.report(50, _("Reading the model"))
        given = _config_copy(files, folder)
        format = unopened_format([file.path for file in files], given, version)
        if format is not None:
            check_licence(version, files, {}, warnings)
            check_pickles(version, files, folder, lease, warnings)
            heads = {file.path: folder / str(index) for index, file in enumerate(_candidates(files))}
            return _code_seen(
                version, format, files, check_unopened(version, format, heads, given, warnings), given, lease, warnings
            )
        try:
            summary = _check_format(version, files, folder, warnings)
        except NeedsConversion:
            # Before anything reads what is in it.
            check_pickles(version, files, folder, lease, warnings)
            raise
        check_licence(version, files, summary.metadata, warnings)
        check_pickles(version, files, folder, lease, warnings)
        lease.report(70, _("Comparing with the runtime"))
        _check_runtime(version, summary, warnings)
        signature = _check_signature(version, summary)
        paths = [file.path for file in files]
        lease.report(80, _("Comparing with the config"))
        config = check_config(version, given, paths, signature, warnings)
        lease.report(90, _("Looking for code"))
        check_code(version, paths, config)
    return _Seen(files, FORMAT, signature, config, warnings)


def _code_seen(
    version: ModelVersion,
    format: str,
    files: list[VersionFile],
    known: ModelConfig,
    uploaded: Path | None,
    lease: Lease,
    warnings: list[str],
) -> _Seen:
    """Go on with a version that the worker does not open. Whether code is allowed is decided before any runs."""
    paths = [file.path for file in files]
    lease.report(60, _("Looking for code"))
    check_code(version, paths, known)
    with check(version, "runtime") as finding:
        finding.summary = _("The worker opens nothing of it; the nodes do that when they load the version.")
    description = None
    if format in DESCRIBED or (format in DESCRIBED_ALONE and not (known.input and known.output)):
        lease.report(70, _("Loading it on a scratch node"))
        description = described_signature(version, format, known, lease, warnings)
        signature = description.signature if description is not None else signature_in(known)
    else:
        signature = declared_signature(version, known)
    lease.report(90, _("Comparing with the config"))
    config = check_config(version, uploaded, paths, signature, warnings)
    if description is not None and format == "python" and config_latest(version.model) is None:
        config = filled_in(config or known, description.config)
    return _Seen(files, format, signature, config, warnings)


def _check_files(version: ModelVersion, lease: Lease) -> list[VersionFile]:
    with check(version, "files") as finding:
        received = Upload.objects.filter(version=version, state=UploadState.RECEIVED, is_part=False)
        for upload in received.order_by("created_at"):
            lease.report(10, _("Storing %(path)s") % {"path": upload.path})
            try:
                upload_store(upload_id=upload.pk)
            except ValidationFailed as error:
                raise VersionRejected(error.message, errors=error.errors) from error
        files = list(VersionFile.objects.filter(version=version).select_related("blob").order_by("path"))
        finding.evidence["files"] = [
            {"path": file.path, "size": file.blob.size, "sha256": file.blob.sha256} for file in files
        ]
        _require_good_names([file.path for file in files])
        count, size = len(files), sum(file.blob.size for file in files)
        text = ngettext("%(count)d file, %(size)d bytes.", "%(count)d files, %(size)d bytes.", count)
        finding.summary = text % {"count": count, "size": size}
    return files


def _require_good_names(paths: list[str]) -> None:
    if not paths:
        raise VersionRejected(_("The version has no files."))
    errors = [{"field": path, "message": problem} for path in paths if (problem := path_problem(path))]
    if errors:
        raise VersionRejected(errors[0]["message"], errors=errors)
    problem = clash(paths)
    if problem:
        raise VersionRejected(problem)


@contextmanager
def _local_copies(version: ModelVersion, files: list[VersionFile], lease: Lease) -> Iterator[Path]:
    """Give a folder with the files that may be models; weights beside them are not copied.

    The folder is named after the version, so that what a killed attempt left is found and removed by the next.
    """
    folder = _copies_folder(version)
    try:
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise StorageFailed(_("The file cannot be copied: %(why)s.") % {"why": error.strerror}) from error
        for index, file in enumerate(_candidates(files)):
            lease.check()
            artifact_store().copy_to(file.blob.sha256, folder / str(index))
        for file in files:
            if file.path == CONFIG_FILE:
                artifact_store().copy_to(file.blob.sha256, folder / CONFIG_FILE)
        yield folder
    finally:
        _remove_copies(version)


def _copies_folder(version: ModelVersion) -> Path:
    return Path(settings.STAGING_DIR) / f"check-{version.pk}"


def _remove_copies(version: ModelVersion) -> None:
    shutil.rmtree(_copies_folder(version), ignore_errors=True)


def _candidates(files: list[VersionFile]) -> list[VersionFile]:
    """Return the files that could be the model: those with its name or suffix at the top, else all at the top."""
    top = [file for file in files if "/" not in file.path and file.path != CONFIG_FILE]
    named = [file for file in top if file.path == MODEL_FILE]
    suffixed = [file for file in top if file.path.lower().endswith(".onnx")]
    return (named or suffixed or top)[:20]


def _check_format(version: ModelVersion, files: list[VersionFile], folder: Path, warnings: list[str]) -> OnnxSummary:
    with check(version, "format") as finding:
        file, summary = _find_model(files, folder)
        finding.evidence.update(
            format=FORMAT,
            file=file.path,
            producer=summary.producer,
            nodes=summary.node_count,
            external_files=sorted({item.location for item in summary.external}),
        )
        _require_external_files(summary, files)
        if file.path != MODEL_FILE:
            finding.warnings.append(
                _("%(path)s is served as %(name)s, the name that nodes look for.")
                % {"path": file.path, "name": MODEL_FILE}
            )
            file.path = MODEL_FILE
            file.save(update_fields=["path"])
            files.sort(key=lambda one: one.path)
        finding.summary = _("ONNX with %(count)d operators.") % {"count": summary.node_count}
        warnings.extend(finding.warnings)
    return summary


def _find_model(files: list[VersionFile], folder: Path) -> tuple[VersionFile, OnnxSummary]:
    found: list[tuple[VersionFile, OnnxSummary]] = []
    candidates = _candidates(files)
    for index, file in enumerate(candidates):
        path = folder / str(index)
        try:
            found.append((file, read_onnx(path, file.path)))
        except NotOnnx as error:
            if len(candidates) == 1 or file.path.lower().endswith(".onnx"):
                raise _not_onnx(file.path, str(error), path) from error
        except UnreadableModel as error:
            raise VersionRejected(str(error)) from error
    if not found:
        for index, file in enumerate(candidates):
            if advice := conversion_advice(folder / str(index), file.path):
                raise NeedsConversion(advice, file.path)
        raise VersionRejected(
            _("None of the files is an ONNX model, nor has one of the names %(names)s.")
            % {"names": ", ".join(MODEL_FILES)}
        )
    if len(found) > 1:
        names = ", ".join(file.path for file, _summary in found[:5])
        raise VersionRejected(
            _("There are several ONNX files (%(names)s); name the one to serve %(name)s.")
            % {"names": names, "name": MODEL_FILE}
        )
    return found[0]


def _not_onnx(name: str, message: str, path: Path) -> VersionRejected:
    if advice := conversion_advice(path, name):
        return NeedsConversion(advice, name)
    description = describe_content(path)
    if not description:
        return VersionRejected(message)
    text = _("%(name)s is not an ONNX file: it is %(description)s.")
    return VersionRejected(text % {"name": name, "description": description})


def _require_external_files(summary: OnnxSummary, files: list[VersionFile]) -> None:
    sizes = {file.path: file.blob.size for file in files}
    for item in sorted(summary.external, key=lambda one: one.location):
        problem = path_problem(item.location)
        if problem:
            raise VersionRejected(
                _("The model keeps weights in '%(path)s', which is not allowed: %(problem)s")
                % {"path": item.location, "problem": problem}
            )
        if item.location not in sizes:
            raise VersionRejected(
                _("The model keeps weights in '%(path)s', but that file was not uploaded.") % {"path": item.location}
            )
        if item.end < 0 or item.end > sizes[item.location]:
            raise VersionRejected(
                _("'%(path)s' has %(size)d bytes, but the model needs %(end)d of them; upload it again.")
                % {"path": item.location, "size": sizes[item.location], "end": item.end}
            )


def _check_runtime(version: ModelVersion, summary: OnnxSummary, warnings: list[str]) -> None:
    with check(version, "runtime") as finding:
        finding.evidence.update(
            runtime=RUNTIME,
            ir_version=summary.ir_version,
            opsets={domain_name(domain): number for domain, number in sorted(summary.opsets.items())},
        )
        problems = list(limit_problems(summary))
        if problems:
            raise VersionRejected(problems[0], errors=[{"field": "model", "message": text} for text in problems])
        finding.warnings.extend(operator_warnings(summary))
        finding.summary = _("%(runtime)s can load it.") % {"runtime": RUNTIME}
        warnings.extend(finding.warnings)


def _check_signature(version: ModelVersion, summary: OnnxSummary) -> ModelSignature:
    with check(version, "signature") as finding:
        try:
            signature = signature_of(summary)
        except UnreadableModel as error:
            raise VersionRejected(str(error)) from error
        finding.evidence.update(signature.to_json())
        inputs, outputs = len(signature.inputs), len(signature.outputs)
        finding.summary = _("%(inputs)s, %(outputs)s.") % {
            "inputs": ngettext("%(count)d input", "%(count)d inputs", inputs) % {"count": inputs},
            "outputs": ngettext("%(count)d output", "%(count)d outputs", outputs) % {"count": outputs},
        }
    return signature


def _config_copy(files: list[VersionFile], folder: Path) -> Path | None:
    return folder / CONFIG_FILE if any(file.path == CONFIG_FILE for file in files) else None


def _manifest(files: list[VersionFile]) -> str:
    return manifest_digest(FileRef(path=file.path, sha256=file.blob.sha256, size=file.blob.size) for file in files)
