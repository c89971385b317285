"""Model versions: made by uploads, judged by checks, immutable once ready."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from registry.domain.actors import Actor
from registry.models import Blob, Check, ModelVersion, Operation, RegisteredModel, VersionFile
from serving_node.contract.signature import ModelSignature


def version_create(
    *,
    model: RegisteredModel,
    source: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    actor: Actor,
) -> ModelVersion:
    """Create an empty version in state uploading; it has an id and no number yet."""
    raise NotImplementedError


def version_attach_blob(*, version: ModelVersion, path: str, sha256: str, actor: Actor) -> VersionFile:
    """Add a file without sending bytes.

    Raises:
        NotFound: no version that the actor may read holds such a blob.
        ValidationFailed: a bad path.
        Immutable: the version is not uploading any more.
        Conflict: the path is taken.
    """
    raise NotImplementedError


def version_add_file(*, version: ModelVersion, path: str, blob: Blob) -> VersionFile:
    """Add a stored blob under a path (workers, while uploading or validating). Same path and blob: nothing changes."""
    raise NotImplementedError


def version_submit(*, version: ModelVersion, actor: Actor) -> Operation:
    """Start the checks: uploading -> validating. Returns the operation ``validate_version`` on queue jobs.

    Raises:
        ValidationFailed: no files, or uploads are not complete.
        InvalidTransition: it is not uploading.
    """
    raise NotImplementedError


def version_accept(
    *,
    version: ModelVersion,
    signature: ModelSignature,
    format: str,
    manifest_digest: str,
    size: int,
    warnings: Sequence[str] = (),
    actor: Actor | None = None,
) -> int:
    """Give the version its number: validating -> ready. Makes the model's first config when it has none.

    Returns the number. Called again for a ready version with the same digest it returns the same number.
    """
    raise NotImplementedError


def version_reject(
    *, version: ModelVersion, reason: str, errors: Sequence[Mapping[str, str]] = (), actor: Actor | None = None
) -> None:
    """Refuse the version for good with one sentence: validating -> rejected. Its files are let go."""
    raise NotImplementedError


def version_archive(*, version: ModelVersion, actor: Actor) -> None:
    """Hide a ready version that no deployment uses: ready -> archived."""
    raise NotImplementedError


def version_restore(*, version: ModelVersion, actor: Actor) -> None:
    """Bring an archived or quarantined version back: -> ready."""
    raise NotImplementedError


def version_quarantine(*, version: ModelVersion, reason: str, actor: Actor) -> None:
    """Block new deployments of a version: ready | archived -> quarantined."""
    raise NotImplementedError


def version_abandon(*, version: ModelVersion, reason: str = "", actor: Actor) -> None:
    """Give up a version that was not submitted: uploading -> abandoned. Its uploads end and its files are let go."""
    raise NotImplementedError


def check_start(*, version: ModelVersion, kind: str) -> Check:
    """Begin (or begin again) a check of a version; verdict running. Pages see it at once."""
    raise NotImplementedError


def check_finish(
    *, check: Check, verdict: str, summary: str, evidence: Mapping[str, Any] | None = None, log: str = ""
) -> None:
    """Write a check's verdict: pass, warn, fail or error."""
    raise NotImplementedError
