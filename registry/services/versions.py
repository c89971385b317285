"""Model versions: made by uploads, judged by checks, immutable once ready."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from registry import telemetry
from registry.domain.actors import Actor
from registry.domain.paths import clash, require_path
from registry.domain.storable import storable, storable_text
from registry.domain.version_facts import MAX_METADATA_BYTES, metric_problems, source_problems
from registry.errors import Conflict, Immutable, NotFound, PermissionDenied, ValidationFailed
from registry.models import (
    Alias,
    Blob,
    CodeFormats,
    ModelState,
    ModelVersion,
    Operation,
    OperationQueue,
    RegisteredModel,
    Route,
    Upload,
    UploadState,
    VersionFile,
    VersionState,
)
from registry.selectors.blobs import actor_may_read
from registry.selectors.configs import config_latest
from registry.services import audit, quotas
from registry.services.checks import check_finish, check_start, checks_begin
from registry.services.code import code_permit
from registry.services.configs import first_config
from registry.services.contributors import contribution_note
from registry.services.operations import operation_create
from registry.services.permissions import require
from registry.services.staging import staged_remove
from registry.services.transition import move
from serving_node.contract.model_config import ModelConfig, parse_json
from serving_node.contract.signature import ModelSignature

__all__ = [
    "check_finish",
    "check_start",
    "version_abandon",
    "version_accept",
    "version_add_file",
    "version_annotate",
    "version_archive",
    "version_attach_blob",
    "version_create",
    "version_divide",
    "version_quarantine",
    "version_rearrange",
    "version_reject",
    "version_restore",
    "version_submit",
]

_CHECKER = "checks"


def version_create(
    *,
    model: RegisteredModel,
    source: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
    parent: ModelVersion | None = None,
    taken_from: ModelVersion | None = None,
    actor: Actor,
) -> ModelVersion:
    """Create an empty version in state uploading; it has an id and no number yet.

    ``parent`` is the version that it is made from, a numbered one of the same project. ``taken_from`` is the upload
    whose files it gets: whoever sent some of those has a part in it.

    Raises:
        ValidationFailed: ``source`` has names that it does not know or claims a conversion, which only a report can;
            or metrics, metadata or parent are not acceptable.
        Conflict: the model is archived.
        QuotaExceeded: the project has as many versions as it may have.
    """
    require(actor, "version.write", model)
    if actor.user_id is None:
        raise PermissionDenied(_("A version needs an author."))
    _require_facts(source or {}, metrics or {}, metadata or {})
    _require_parent(model, parent)
    with transaction.atomic():
        _require_active(model)
        quotas.require_version(model.project_id)
        version = ModelVersion.objects.create(
            model=model,
            source=dict(source or {}),
            metadata=dict(metadata or {}),
            metrics=dict(metrics or {}),
            parent=parent,
            author_id=actor.user_id,
            author_token_id=actor.token_id,
            contributors=list(taken_from.contributors) if taken_from is not None else [],
        )
        audit.record(actor=actor, action="version.create", obj=version, after={"source": version.source})
        _publish(version)
    return version


def version_annotate(
    *,
    version: ModelVersion,
    metadata: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
    actor: Actor,
) -> ModelVersion:
    """Replace metadata or metrics, also of a ready version: results come in after it was made. None leaves them.

    Files, signature, source and lineage never change, and nothing that an approval is bound to does.

    Raises:
        Immutable: the version was refused or given up.
        ValidationFailed: metrics or metadata are not acceptable.
    """
    require(actor, "version.write", version)
    _require_facts({}, metrics or {}, metadata or {})
    with transaction.atomic():
        held = ModelVersion.objects.select_for_update(of=("self",), no_key=True).get(pk=version.pk)
        if held.state in (VersionState.REJECTED, VersionState.ABANDONED):
            raise Immutable(_("This version is %(state)s; nothing about it changes any more.") % {"state": held.state})
        before = {"metadata": held.metadata, "metrics": held.metrics}
        wanted = {"metadata": metadata, "metrics": metrics}
        after = {**before, **{name: dict(value) for name, value in wanted.items() if value is not None}}
        version.metadata, version.metrics = after["metadata"], after["metrics"]
        if before != after:
            version.save(update_fields=["metadata", "metrics"])
            audit.record(actor=actor, action="version.annotate", obj=version, before=before, after=after)
            _publish(version)
    return version


def version_attach_blob(*, version: ModelVersion, path: str, sha256: str, actor: Actor) -> VersionFile:
    """Add a file without sending bytes.

    Raises:
        NotFound: no version that the actor may read holds such a blob.
        ValidationFailed: a bad path.
        Immutable: the version is not uploading any more.
        Conflict: the path is taken.
        QuotaExceeded: the project has no room left.
    """
    require(actor, "version.write", version)
    require_path(path)
    # The same answer whether it does not exist or is somebody else's: a digest must not reveal what others hold.
    blob = Blob.objects.filter(sha256=sha256).first() if actor_may_read(actor, sha256) else None
    if blob is None:
        raise NotFound(_("No version that you can read holds this content; upload it."))
    with transaction.atomic():
        quotas.require_bytes(
            version.model.project_id, blob.size
        )  # holds the project: before the version, as uploads do
        _lock_uploading(version)
        if Upload.objects.filter(version=version, path=path, state__in=_RUNNING_UPLOADS).exists():
            raise Conflict(_("An upload to “%(path)s” is under way.") % {"path": path})
        file = version_add_file(version=version, path=path, blob=blob)
        contribution_note(version, actor)
        audit.record(actor=actor, action="version.attach", obj=version, after={"path": path, "sha256": sha256})
    return file


def version_add_file(*, version: ModelVersion, path: str, blob: Blob) -> VersionFile:
    """Add a stored blob under a path (workers, while uploading or validating). Same path and blob: nothing changes.

    Raises:
        Immutable: the version is finished.
        Conflict: the path holds other content.
    """
    with transaction.atomic():
        state = ModelVersion.objects.select_for_update().values_list("state", flat=True).get(pk=version.pk)
        if state not in (VersionState.UPLOADING, VersionState.VALIDATING):
            raise Immutable(_("This version is %(state)s; make a new one.") % {"state": state})
        # Collection locks the blob row before it looks for references.
        if not Blob.objects.select_for_update().filter(pk=blob.pk).exists():
            raise NotFound(_("The content was collected meanwhile; upload it again."))
        try:
            with transaction.atomic():
                file, _made = VersionFile.objects.get_or_create(version=version, path=path, defaults={"blob": blob})
        except IntegrityError:
            file = VersionFile.objects.get(version=version, path=path)
        if file.blob_id != blob.pk:
            raise Conflict(_("The version has another file “%(path)s” already.") % {"path": path})
        _publish(version)
    return file


def version_rearrange(*, version: ModelVersion, files: Mapping[str, Blob], origin: Mapping[str, Any]) -> None:
    """Give a version that is being checked other files: those of the archive or folder that was uploaded (workers).

    ``origin`` goes into ``metadata["import"]``. Doing it again changes nothing.

    Raises:
        NotFound: content was collected meanwhile; do it again from the start.
        QuotaExceeded: the project has no room for what was unpacked.
    """
    with transaction.atomic():
        quotas.require_bytes(version.model.project_id, sum({blob.pk: blob.size for blob in files.values()}.values()))
        VersionFile.objects.filter(version=version).delete()
        for path, blob in files.items():
            version_add_file(version=version, path=require_path(path), blob=blob)
        version.metadata = {**version.metadata, **({"import": dict(origin)} if origin else {})}
        version.save(update_fields=["metadata"])
        audit.record(
            actor=Actor.system(_CHECKER),
            action="version.rearrange",
            obj=version,
            after={"files": sorted(files), "import": dict(origin)},
        )


def version_divide(*, version: ModelVersion, reason: str) -> None:
    """End a version that other ones were made of: validating -> abandoned. Its files are let go; they hold them."""
    actor = Actor.system(_CHECKER)
    with transaction.atomic():
        move(version, "state", VersionState.ABANDONED, cause=reason, actor=actor, state_reason=reason)
        _let_go(version)
        audit.record(actor=actor, action="version.divide", obj=version, after={"reason": reason})
        _publish(version)


def version_submit(*, version: ModelVersion, actor: Actor) -> Operation:
    """Start the checks: uploading -> validating. Returns the operation ``validate_version`` on queue jobs.

    Raises:
        ValidationFailed: no files, or uploads are not complete.
        InvalidTransition: it is not uploading.
    """
    require(actor, "version.write", version)
    with transaction.atomic():
        ModelVersion.objects.select_for_update().get(pk=version.pk)
        uploads = list(Upload.objects.filter(version=version, state__in=_RUNNING_UPLOADS))
        loose = [upload for upload in uploads if upload.is_part and upload.whole_id is None]
        missing = sorted(
            {upload.path for upload in uploads if upload.state == UploadState.RECEIVING or upload in loose}
        )
        if missing:
            raise ValidationFailed(
                _("These files are not uploaded completely: %(files)s.") % {"files": ", ".join(missing)},
                errors=[{"field": path, "message": _("The upload is not complete.")} for path in missing],
            )
        paths = list(VersionFile.objects.filter(version=version).values_list("path", flat=True))
        paths += [upload.path for upload in uploads if not upload.is_part]
        if not paths:
            raise ValidationFailed(_("The version has no files; upload at least one."))
        problem = clash(paths)
        if problem:
            raise ValidationFailed(problem, errors=[{"field": "files", "message": problem}])
        move(version, "state", VersionState.VALIDATING, cause="submitted", actor=actor)
        audit.record(actor=actor, action="version.submit", obj=version, after={"files": sorted(paths)})
        _publish(version)
        return operation_create(
            kind="validate_version",
            queue=OperationQueue.JOBS,
            subject_type="version",
            subject_id=version.id,
            project=version.model.project,
            actor=actor,
        )


def version_accept(
    *,
    version: ModelVersion,
    signature: ModelSignature,
    format: str,
    manifest_digest: str,
    size: int,
    warnings: Sequence[str] = (),
    config: ModelConfig | None = None,
    actor: Actor | None = None,
) -> int:
    """Give the version its number: validating -> ready. Makes the model's first config when it has none.

    ``config`` is what came with the files, used for that first config; else one is made from the signature.
    Returns the number. Called again for a ready version with the same digest it returns the same number.
    """
    actor = actor or Actor.system(_CHECKER)
    with transaction.atomic():
        model = RegisteredModel.objects.select_for_update().get(pk=version.model_id)
        version.refresh_from_db()
        if version.state == VersionState.READY and version.manifest_digest == manifest_digest and version.number:
            return version.number
        number = model.next_version
        RegisteredModel.objects.filter(pk=model.pk).update(next_version=number + 1)
        move(
            version,
            "state",
            VersionState.READY,
            cause="checks passed",
            actor=actor,
            number=number,
            signature=signature.to_json(),
            format=format,
            manifest_digest=manifest_digest,
            size_bytes=size,
            state_reason=storable_text(" ".join(warnings)),
            ready_at=timezone.now(),
        )
        model.next_version = number + 1
        first_config(model=model, version=version, signature=signature, format=format, config=config)
        served = config_latest(model)
        # Where approvals name code, none has been given yet.
        if served is not None and version.model.project.code_formats != CodeFormats.APPROVE:
            code_permit(version=version, config=parse_json(served.body), actor=Actor.system(_CHECKER))
        audit.record(
            actor=actor,
            action="version.ready",
            obj=version,
            after={"number": number, "manifest_digest": manifest_digest, "format": format},
        )
        checks_begin(version=version)
        _publish(version)
    return number


def version_reject(
    *, version: ModelVersion, reason: str, errors: Sequence[Mapping[str, str]] = (), actor: Actor | None = None
) -> None:
    """Refuse the version for good with one sentence: validating -> rejected. Its files are let go.

    Their names stay in ``metadata["files"]``, ``errors`` in ``metadata["errors"]``. Doing it again changes nothing.
    """
    actor = actor or Actor.system(_CHECKER)
    reason = storable_text(reason)
    with transaction.atomic():
        version.refresh_from_db()
        if version.state == VersionState.REJECTED:
            return
        paths = sorted({*version.files.values_list("path", flat=True), *version.uploads.values_list("path", flat=True)})
        metadata = {**version.metadata, "files": paths, "errors": storable([dict(error) for error in errors])}
        move(
            version,
            "state",
            VersionState.REJECTED,
            cause=reason,
            actor=actor,
            state_reason=reason,
            metadata=metadata,
        )
        _let_go(version)
        audit.record(actor=actor, action="version.reject", obj=version, after={"reason": reason})
        _publish(version)


def version_archive(*, version: ModelVersion, actor: Actor) -> None:
    """Hide a ready version that no deployment uses and no alias names: ready -> archived.

    Raises:
        Conflict: a deployment uses it, or aliases point at it; the message names them.
    """
    require(actor, "version.write", version)
    with transaction.atomic():
        ModelVersion.objects.select_for_update().get(pk=version.pk)
        used = Route.objects.filter(version=version).select_related("deployment__fleet").first()
        if used is not None:
            raise Conflict(_("%(deployment)s uses this version.") % {"deployment": str(used.deployment)})
        names = list(Alias.objects.filter(version=version).order_by("name").values_list("name", flat=True))
        if names:
            raise Conflict(
                _("Aliases point at this version: %(names)s. Move them first.") % {"names": ", ".join(names)}
            )
        _move_by_person(version, VersionState.ARCHIVED, "archived", actor)


def version_restore(*, version: ModelVersion, actor: Actor) -> None:
    """Bring an archived or quarantined version back: -> ready."""
    quarantined = version.state == VersionState.QUARANTINED
    require(actor, "version.quarantine" if quarantined else "version.write", version)
    with transaction.atomic():
        _move_by_person(version, VersionState.READY, "restored", actor)


def version_quarantine(*, version: ModelVersion, reason: str, actor: Actor) -> None:
    """Block new deployments of a version: ready | archived -> quarantined.

    Aliases go on pointing at it, so that the lists show them as quarantined; deploying by them is refused.
    """
    require(actor, "version.quarantine", version)
    with transaction.atomic():
        _move_by_person(version, VersionState.QUARANTINED, reason, actor)


def version_abandon(*, version: ModelVersion, reason: str = "", actor: Actor) -> None:
    """Give up a version that was not submitted: uploading -> abandoned. Its uploads end and its files are let go."""
    require(actor, "version.write", version)
    with transaction.atomic():
        move(version, "state", VersionState.ABANDONED, cause=reason or "abandoned", actor=actor, state_reason=reason)
        _let_go(version)
        audit.record(actor=actor, action="version.abandon", obj=version, after={"reason": reason})
        _publish(version)


_RUNNING_UPLOADS = (UploadState.RECEIVING, UploadState.RECEIVED)


def _move_by_person(version: ModelVersion, to: str, reason: str, actor: Actor) -> None:
    before = move(version, "state", to, cause=reason, actor=actor, state_reason=reason)
    audit.record(
        actor=actor,
        action=f"version.{to}",
        obj=version,
        before={"state": before},
        after={"state": to, "reason": reason},
    )
    _publish(version)


def _let_go(version: ModelVersion) -> None:
    """End uploads and drop the references to blobs, so that collection can take what nobody else holds."""
    actor = Actor.system(_CHECKER)
    for upload in version.uploads.filter(state__in=_RUNNING_UPLOADS):
        move(upload, "state", UploadState.TERMINATED, cause="the version ended", actor=actor)
    for upload_id in version.uploads.values_list("id", flat=True):
        staged_remove(upload_id)
    version.files.all().delete()


def _require_facts(source: Mapping[str, Any], metrics: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    errors = [*source_problems(source), *metric_problems(metrics)]
    if len(json.dumps(dict(metadata), default=str)) > MAX_METADATA_BYTES:
        message = _("Metadata has at most %(limit)d KiB.") % {"limit": MAX_METADATA_BYTES // 1024}
        errors.append({"field": "metadata", "message": message})
    if errors:
        raise ValidationFailed(errors[0]["message"], errors=errors)


def _require_parent(model: RegisteredModel, parent: ModelVersion | None) -> None:
    # Only a numbered version can be a parent and a parent never changes, so that lineage has no cycles.
    if parent is None or (parent.number is not None and parent.model.project_id == model.project_id):
        return
    message = _("A version is made from a numbered one of the same project.")
    raise ValidationFailed(message, errors=[{"field": "parent", "message": message}])


def _require_active(model: RegisteredModel) -> None:
    """Hold the model, so that it is not archived meanwhile."""
    rows = RegisteredModel.objects.select_for_update(no_key=True).filter(pk=model.pk)
    if rows.values_list("state", flat=True).first() != ModelState.ACTIVE:
        raise Conflict(_("The model “%(model)s” is archived; restore it first.") % {"model": model.slug})


def _lock_uploading(version: ModelVersion) -> None:
    state = ModelVersion.objects.select_for_update().values_list("state", flat=True).get(pk=version.pk)
    if state != VersionState.UPLOADING:
        raise Immutable(_("This version is %(state)s; make a new one.") % {"state": state})


def _publish(version: ModelVersion) -> None:
    project_id = version.model.project_id
    telemetry.publish_on_commit(f"version:{version.id}", project=project_id)
    telemetry.publish_on_commit(f"model:{version.model_id}", project=project_id)
