"""What was uploaded becomes versions: archives are unpacked, and repositories, MLflow models and .mar are taken apart.

Content is kept by its digest, so that taking apart copies nothing that is in the store already. Either everything
happens or nothing: what was unpacked and not used is collected.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from registry.domain.actors import Actor
from registry.domain.layouts import Layout, LayoutKind, PlannedVersion, archive_among, is_apart, recognise
from registry.domain.paths import MAX_FILES
from registry.errors import Conflict, NotFound, PermissionDenied, QuotaExceeded, StorageFailed, ValidationFailed
from registry.models import Blob, ModelVersion, VersionFile, VersionState
from registry.selectors.quotas import bytes_used
from registry.services.blobs import blob_keep
from registry.services.models import model_get_or_create
from registry.services.versions import (
    version_add_file,
    version_create,
    version_divide,
    version_rearrange,
    version_submit,
)
from registry.storage import artifact_store
from workers.checks.archives import Limits, unpack
from workers.checks.verdicts import Finding, VersionRejected, check
from workers.locks.leases import Lease

OLDER_SECONDS = 60.0
_TEXT_LIMIT = 1 << 20
_REFUSED = (ValidationFailed, Conflict, NotFound, PermissionDenied, QuotaExceeded)

Blobs = Mapping[str, Blob]


def take_apart(
    version: ModelVersion, files: list[VersionFile], lease: Lease, warnings: list[str]
) -> list[dict[str, Any]]:
    """Return ``{"model", "version", "operation"}`` of the versions that were made of this one, which is over then.

    An empty list: it is one version, whose files may have other names now, and its checks go on.

    Raises:
        VersionRejected: the archive or what it describes is not as it must be.
        StorageFailed: the store did not take or give the bytes.
    """
    blobs: Blobs = {file.path: file.blob for file in files}
    archive = archive_among([*blobs])
    if not archive and not is_apart([*blobs]):
        return []
    with check(version, "layout") as finding:
        try:
            if archive:
                lease.report(12, _("Unpacking %(name)s") % {"name": archive})
                blobs = {path: blob for path, blob in blobs.items() if path != archive} | _unpacked(
                    version, archive, blobs[archive], lease
                )
            layout = _layout(blobs)
            lease.check()
            made = _arranged(version, layout, blobs, finding)
        except _REFUSED as error:
            raise VersionRejected(error.message, errors=error.errors) from error
        warnings.extend(finding.warnings)
    return made


def wait_for_older(version: ModelVersion, lease: Lease) -> None:
    """Let the versions that were made of the same upload before this one get their numbers first, for a while.

    Two workers may check them at once. The wait is bounded: an older one may itself wait for a worker.
    """
    upload = (version.metadata.get("import") or {}).get("upload")
    if not upload:
        return
    older = ModelVersion.objects.filter(
        model=version.model_id,
        state=VersionState.VALIDATING,
        metadata__import__upload=upload,
        created_at__lt=version.created_at,
    )
    deadline = time.monotonic() + OLDER_SECONDS
    while older.exists() and time.monotonic() < deadline:
        lease.check()
        time.sleep(0.1)


def _layout(blobs: Blobs) -> Layout:
    return recognise(sorted(blobs), lambda path: _text(path, blobs[path]))


def _text(path: str, blob: Blob) -> str:
    if blob.size > _TEXT_LIMIT:
        raise ValidationFailed(_("%(path)s is too large for what it is.") % {"path": path})
    try:
        return b"".join(artifact_store().open_range(blob.sha256)).decode()
    except UnicodeDecodeError as error:
        raise ValidationFailed(_("%(path)s is not text in UTF-8.") % {"path": path}) from error


def _unpacked(version: ModelVersion, name: str, archive: Blob, lease: Lease) -> dict[str, Blob]:
    folder = Path(settings.STAGING_DIR) / f"unpack-{version.pk}"
    shutil.rmtree(folder, ignore_errors=True)
    found: dict[str, Blob] = {}

    def keep(path: str, pieces: Iterator[bytes]) -> None:
        lease.check()
        member = folder / "member"
        with member.open("wb") as file:
            for piece in pieces:
                file.write(piece)
        found[path] = blob_keep(member)

    try:
        try:
            folder.mkdir(parents=True)
            local = folder / "archive"
        except OSError as error:
            raise StorageFailed(_("The archive cannot be unpacked: %(why)s.") % {"why": error.strerror}) from error
        artifact_store().copy_to(archive.sha256, local)
        project = version.model.project
        room = max(0, project.quota_bytes - bytes_used(project)) + archive.size
        unpack(local, name, Limits(MAX_FILES, min(room, settings.MAX_UPLOAD_BYTES)), keep)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _arranged(version: ModelVersion, layout: Layout, blobs: Blobs, finding: Finding) -> list[dict[str, Any]]:
    finding.evidence.update(
        layout=layout.kind.value,
        versions=[{"model": one.model or version.model.slug, **one.origin} for one in layout.versions],
    )
    finding.warnings += dict.fromkeys(note for one in layout.versions for note in one.notes)
    if len(layout.versions) == 1 and layout.versions[0].model in ("", version.model.slug):
        (only,) = layout.versions
        version_rearrange(version=version, files=_content(only, blobs), origin=only.origin)
        finding.summary = _("Unpacked.") if layout.kind == LayoutKind.FILES else _("Taken out of its folder.")
        return []
    # Whoever uploaded it makes the versions, with the rights of now.
    actor = Actor.person(version.author, token=version.author_token)
    with transaction.atomic():
        made = [_made(version, one, _content(one, blobs), actor) for one in layout.versions]
        count = ngettext("%(count)d version", "%(count)d versions", len(made)) % {"count": len(made)}
        finding.summary = _("Taken apart: %(versions)s.") % {"versions": count}
        names = ", ".join(dict.fromkeys(one["model"] for one in made))
        version_divide(
            version=version,
            reason=_("Taken apart into %(versions)s of %(names)s.") % {"versions": count, "names": names},
        )
    return made


def _content(planned: PlannedVersion, blobs: Blobs) -> Blobs:
    return {path: blobs[where] for path, where in planned.files.items()}


def _made(version: ModelVersion, planned: PlannedVersion, content: Blobs, actor: Actor) -> dict[str, Any]:
    model = version.model
    if planned.model and planned.model != model.slug:
        try:
            model, _new = model_get_or_create(project=model.project, slug=planned.model, actor=actor)
        except ValidationFailed as error:
            words = {"name": planned.model, "why": error.message}
            raise ValidationFailed(_("The folder “%(name)s” cannot be a model: %(why)s") % words) from error
    metadata = {**version.metadata, "import": {**planned.origin, "upload": str(version.pk)}}
    made = version_create(model=model, source=version.source, metadata=metadata, taken_from=version, actor=actor)
    for path, blob in content.items():
        version_add_file(version=made, path=path, blob=blob)
    operation = version_submit(version=made, actor=actor)
    return {"model": model.slug, "version": str(made.pk), "operation": str(operation.pk)}
