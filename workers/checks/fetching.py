"""Files of a version from an address: one file of a web server, or all below a prefix of a store.

Everything lands in the staging folder first, counted while it comes; the version gets its files at the end, all or
none.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx2
import obstore
import obstore.exceptions
from django.conf import settings
from django.db import transaction
from django.utils.translation import gettext as _
from obstore.store import from_url

from registry.domain.actors import Actor
from registry.domain.import_sources import WEB_SCHEMES, source_problem
from registry.domain.paths import MAX_FILES, clash, path_problem
from registry.errors import QuotaExceeded, StorageFailed, ValidationFailed
from registry.models import ApiToken, Blob, ModelVersion, Operation, User, VersionState
from registry.selectors.quotas import bytes_used
from registry.services.blobs import blob_keep
from registry.services.quotas import require_bytes
from registry.services.versions import version_add_file, version_submit
from workers.checks.verdicts import VersionRejected
from workers.locks.leases import Lease

# Without a byte for so long, or longer than that in all, a source counts as gone. A task of a worker has 15 minutes
# (CELERY_TASK_TIME_LIMIT), and one that is killed would begin again.
_IDLE_SECONDS, _WHOLE_SECONDS = 60.0, 13 * 60.0
_PIECE = 4 * 1024 * 1024
_SOURCE_ERRORS = (obstore.exceptions.BaseError, httpx2.HTTPError, OSError)

Pieces = Iterator[bytes]


def fetch_version(operation: Operation, lease: Lease) -> Mapping[str, Any]:
    """Fetch, add and submit; return ``{"version", "operation"}``, the operation of the checks.

    Raises:
        VersionRejected: the address or what is there is not allowed, or too large; the version goes on waiting.
        StorageFailed: the source or the store does not answer; trying again may help.
    """
    try:
        return _fetch(operation, lease)
    except (ValidationFailed, QuotaExceeded) as error:
        raise VersionRejected(error.message) from error


def _fetch(operation: Operation, lease: Lease) -> Mapping[str, Any]:
    version = ModelVersion.objects.select_related("model__project").get(pk=operation.subject_id)
    address = str(operation.params["address"])
    if problem := source_problem(address, settings.IMPORT_SOURCES):
        raise ValidationFailed(problem)
    if version.state != VersionState.UPLOADING:
        raise ValidationFailed(_("The version is %(state)s meanwhile.") % {"state": version.state})
    folder = Path(settings.STAGING_DIR) / f"fetch-{version.pk}"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(parents=True)
        found = _fetched(version, address, folder / "file", lease)
    except httpx2.HTTPStatusError as error:
        words = {"address": address, "status": error.response.status_code}
        raise ValidationFailed(_("%(address)s answered %(status)d.") % words) from error
    except _SOURCE_ERRORS as error:
        why = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise StorageFailed(_("%(address)s cannot be read: %(why)s") % {"address": address, "why": why}) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    lease.check()
    with transaction.atomic():
        require_bytes(version.model.project_id, sum(blob.size for blob in found.values()))
        for path, blob in found.items():
            version_add_file(version=version, path=path, blob=blob)
        submitted = version_submit(version=version, actor=_actor(operation))
    return {"version": str(version.pk), "operation": str(submitted.pk)}


def _actor(operation: Operation) -> Actor:
    """Whoever asked, with the rights of now."""
    token = operation.params.get("token")
    user = User.objects.filter(pk=str(operation.actor_id)).first()
    if user is None:
        raise ValidationFailed(_("Whoever asked for this has no account any more."))
    return Actor.person(user, token=ApiToken.objects.filter(pk=str(token)).first() if token else None)


def _fetched(version: ModelVersion, address: str, local: Path, lease: Lease) -> dict[str, Blob]:
    project = version.model.project
    room = min(settings.MAX_UPLOAD_BYTES, max(0, project.quota_bytes - bytes_used(project)))
    deadline = time.monotonic() + _WHOLE_SECONDS
    files = _web(address) if urlsplit(address).scheme in WEB_SCHEMES else _store(address)
    found: dict[str, Blob] = {}
    for path, pieces in files:
        if len(found) >= MAX_FILES:
            raise ValidationFailed(_("A version has at most %(count)s files.") % {"count": MAX_FILES})
        if problem := path_problem(path):
            raise ValidationFailed(f"{path[:200]}: {problem}")
        lease.report(min(90, len(found)), _("Fetching %(path)s") % {"path": path})
        room -= _write(local, pieces, room, deadline, lease)
        found[path] = blob_keep(local)
    if not found:
        raise ValidationFailed(_("There is nothing at %(address)s.") % {"address": address})
    if problem := clash([*found]):
        raise ValidationFailed(problem)
    return found


def _write(local: Path, pieces: Pieces, room: int, deadline: float, lease: Lease) -> int:
    size = 0
    with local.open("wb") as file:
        for piece in pieces:
            lease.check()
            size += len(piece)
            if size > room:
                raise ValidationFailed(_("There is room for only %(room)d bytes more.") % {"room": room})
            if time.monotonic() > deadline:
                raise ValidationFailed(
                    _("Fetching took longer than %(minutes)d minutes.") % {"minutes": _WHOLE_SECONDS // 60}
                )
            file.write(piece)
    return size


def _web(address: str) -> Iterator[tuple[str, Pieces]]:
    """Yield the one file. Redirects are not followed: they might lead to what the operator did not allow."""
    name = unquote(urlsplit(address).path).rpartition("/")[2]
    timeout = httpx2.Timeout(_IDLE_SECONDS, connect=10.0)
    with (
        httpx2.Client(timeout=timeout, trust_env=False, follow_redirects=False) as client,
        client.stream("GET", address, headers={"Accept-Encoding": "identity"}) as response,
    ):
        if response.status_code != 200:
            raise httpx2.HTTPStatusError("refused", request=response.request, response=response)
        yield name, response.iter_raw(_PIECE)


def _store(address: str) -> Iterator[tuple[str, Pieces]]:
    """Yield every object below the prefix, or the one object that it names. Credentials are those of the worker."""
    store: Any = from_url(address)
    listed = [meta["path"] for page in obstore.list(store) for meta in page]
    if not listed:
        parent, _slash, name = address.rstrip("/").rpartition("/")
        store, listed = from_url(parent), [name]
    for path in sorted(listed):
        yield path, iter(obstore.get(store, path).stream(min_chunk_size=_PIECE))
